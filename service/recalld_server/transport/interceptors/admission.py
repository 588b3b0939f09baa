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


class Gate:
    """Lets calls of one kind through, first come first served. patience: seconds that a caller waits at most."""

    def __init__(self, work: Work, capacity: Capacity, patience: float) -> None:
        self._work = work
        self._capacity = capacity
        self._patience = patience
        self._free = asyncio.Semaphore(capacity.at_once)
        self._waiting = 0

    @asynccontextmanager
    async def entered(self) -> AsyncGenerator[None]:
        """Holds a place. Raises Overloaded when too many wait, or the wait is too long."""
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        try:
            yield
        finally:
            self._free.release()

    @asynccontextmanager
    async def queued(self) -> AsyncGenerator[None]:
        """Holds a place, however long it takes: for a caller who is held back by other means meanwhile."""
        async with self._free:
            yield

    async def _wait(self) -> None:
        if self._waiting >= self._capacity.waiting:
            raise self._overloaded()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise self._overloaded() from None
        finally:
            self._waiting -= 1

    def _overloaded(self) -> Overloaded:
        return Overloaded(f"the server is at its limit of {self._capacity.at_once} calls of kind {self._work.value!r}")


class Admission:
    """One gate for each kind of work that has a capacity."""

    def __init__(self, capacities: Mapping[Work, Capacity], patience: float) -> None:
        self._gates = {work: Gate(work, capacity, patience) for work, capacity in capacities.items()}

    def gate(self, work: Work) -> Gate:
        return self._gates[work]

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        gate = self._gates.get(call.method.work)
        if gate is None:
            return await proceed()
        stage, call.stage = call.stage, "admission"
        async with gate.entered():
            call.stage = stage
            return await proceed()
