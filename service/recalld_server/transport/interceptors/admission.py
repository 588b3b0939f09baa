"""Bounds how much the server works on at once, for each kind of work apart.

gRPC's own limit counts health checks and idle streams too, so that a busy server would look dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from recalld.errors import Overloaded
from recalld_server.transport.call import Call, Work
from recalld_server.transport.pipeline import Proceed


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many calls of a kind run at once, and how many more may wait for their turn."""

    at_once: int
    waiting: int


class WaitingBytes:
    """Bounds the memory of messages that wait for a place, of all calls and streams together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def charge(self, size: int) -> Charge:
        """Counts a message in. Raises Overloaded when there is no room for it beside the others."""
        if self._held and self._held + size > self._most:
            raise Overloaded(f"messages of {self._held} bytes wait for a place already; {self._most} may")
        self._held += size
        return Charge(self, size)

    def give_back(self, size: int) -> None:
        self._held -= size


class Charge:
    """A message that is counted in until it is let go, once."""

    def __init__(self, waiting: WaitingBytes, size: int) -> None:
        self._waiting = waiting
        self._size = size

    def let_go(self) -> None:
        """The message waits no more."""
        size, self._size = self._size, 0
        self._waiting.give_back(size)


class Gate:
    """Lets calls of one kind through, first come first served. patience: seconds that a caller waits at most."""

    def __init__(self, work: Work, capacity: Capacity, patience: float, waiting_bytes: WaitingBytes) -> None:
        self._work = work
        self._capacity = capacity
        self._patience = patience
        self._waiting_bytes = waiting_bytes
        self._free = asyncio.Semaphore(capacity.at_once)
        self._waiting = 0

    async def enter(self, size: int) -> Place:
        """A place, which the caller leaves. size: of the message that waits meanwhile. Raises Overloaded when too many
        wait, or too much, or the wait is too long."""
        if self._free.locked():
            await self._wait(size)
        else:
            await self._free.acquire()
        return Place(self._free)

    @asynccontextmanager
    async def queued(self) -> AsyncGenerator[None]:
        """Holds a place, however long it takes: for a caller who is held back by other means meanwhile."""
        async with self._free:
            yield

    def charge(self, size: int) -> Charge:
        """Counts in a message that will wait for a place. Raises Overloaded."""
        return self._waiting_bytes.charge(size)

    async def _wait(self, size: int) -> None:
        if self._waiting >= self._capacity.waiting:
            raise self._overloaded()
        charge = self.charge(size)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise self._overloaded() from None
        finally:
            self._waiting -= 1
            charge.let_go()

    def _overloaded(self) -> Overloaded:
        return Overloaded(f"the server is at its limit of {self._capacity.at_once} calls of kind {self._work.value!r}")


class Place:
    """A place at a gate, until it is left, once."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free: asyncio.Semaphore | None = free

    def leave(self) -> None:
        """Lets the next caller in."""
        free, self._free = self._free, None
        if free is not None:
            free.release()


class Admission:
    """One gate for each kind of work that has a capacity.

    sending: how many answers are sent at once, of calls that have left their place; a client that does not read keeps
    one of these for a while and no place. max_waiting_bytes: of messages that wait for a place.
    """

    def __init__(
        self, capacities: Mapping[Work, Capacity], patience: float, *, sending: int, max_waiting_bytes: int
    ) -> None:
        waiting_bytes = WaitingBytes(max_waiting_bytes)
        self._gates = {work: Gate(work, capacity, patience, waiting_bytes) for work, capacity in capacities.items()}
        self._sending = asyncio.Semaphore(sending)

    def gate(self, work: Work) -> Gate:
        return self._gates[work]

    @asynccontextmanager
    async def sending(self, call: Call) -> AsyncGenerator[None]:
        """For the answer of a call whose work is done: leaves the call's place, once the answer may be sent."""
        async with self._sending:
            call.leave_place()
            yield

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        gate = self._gates.get(call.method.work)
        if gate is None:
            return await proceed()
        stage, call.stage = call.stage, "admission"
        place = await gate.enter(call.request_bytes)
        call.leave_place = place.leave
        try:
            call.stage = stage
            return await proceed()
        finally:
            place.leave()
