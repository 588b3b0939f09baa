"""A Write stream: reads ahead, works on several batches at once, acknowledges in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field

from recalld.errors import RecalldError, SourceUnavailable, StreamProtocol
from recalld.lanes import Lanes
from recalld.limits import Limits
from recalld.sources.composite import CompositeMemory
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire import encode_write_error
from recalld.wire.answers import encode_outcome
from recalld_server.transport.beside import beside_the_loop
from recalld_server.transport.call import Call, Requests
from recalld_server.transport.commits import commit_write
from recalld_server.transport.interceptors.admission import Charge, Gate
from recalld_server.transport.requests import read_write

_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class WriteStream:
    """One stream.

    Nothing more is read once the client has sent all, broke the protocol, or the server is stopping; what was read is
    still acknowledged before the stream ends. While the window is full nothing is read either, so that gRPC's flow
    control slows a client that sends more. The batches of a scope are stored in their order: they share a lane.
    """

    memory: CompositeMemory
    limits: Limits
    gate: Gate
    stopping: asyncio.Event
    call: Call
    _pending: deque[asyncio.Task[pb.WriteResponse]] = field(
        default_factory=deque[asyncio.Task[pb.WriteResponse]], init=False
    )
    _reads: Lanes = field(default_factory=Lanes, init=False)
    _read: int = field(default=0, init=False)
    _reading: bool = field(default=True, init=False)
    _failure: RecalldError | None = field(default=None, init=False)

    async def run(self, requests: Requests[pb.WriteRequest]) -> None:
        """Serves the stream to its end. Raises what ended it, unless the client did."""
        stop = asyncio.create_task(self.stopping.wait())
        next_request: asyncio.Task[pb.WriteRequest | None] | None = None
        try:
            while self._reading or self._pending:
                if self._reading and next_request is None and len(self._pending) < self.limits.max_unacked_batches:
                    next_request = asyncio.create_task(requests.next())
                await self._something_happened(next_request, stop)
                if self._pending and self._pending[0].done():
                    await self.call.send(self._pending.popleft().result())
                if self._reading and next_request is not None and next_request.done():
                    self._take(next_request)
                    next_request = None
                if stop.done() and self._reading:
                    self._end(SourceUnavailable(f"{self.memory.name} is stopping"))
        finally:
            await _cancelled(stop, next_request, *self._pending)
        if self._failure is not None:
            raise self._failure

    async def _something_happened(
        self, next_request: asyncio.Task[pb.WriteRequest | None] | None, stop: asyncio.Task[bool]
    ) -> None:
        """Waits for the oldest answer; while the stream is read also for the next request and for the stop."""
        waited: list[asyncio.Task[pb.WriteResponse] | asyncio.Task[pb.WriteRequest | None] | asyncio.Task[bool]] = []
        if self._pending:
            waited.append(self._pending[0])
        if self._reading:
            waited.append(stop)
            if next_request is not None:
                waited.append(next_request)
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    def _end(self, failure: RecalldError | None) -> None:
        self._reading = False
        self._failure = failure

    def _take(self, next_request: asyncio.Task[pb.WriteRequest | None]) -> None:
        try:
            request = next_request.result()
        except RecalldError as error:
            self._end(error)
            return
        if request is None:
            self._end(None)
            return
        expected = self._read + 1
        if request.sequence != expected:
            self._end(StreamProtocol(f"sequence: is {request.sequence}, and the next batch is {expected}"))
            return
        self._read = expected
        self._start(request)

    def _start(self, request: pb.WriteRequest) -> None:
        try:
            charge = self.gate.charge(request.ByteSize())
        except RecalldError as error:
            work = _refused(request.sequence, error)
        else:
            work = self._apply(request, charge)
        self._pending.append(asyncio.create_task(work))

    async def _apply(self, request: pb.WriteRequest, charge: Charge) -> pb.WriteResponse:
        sequence = request.sequence
        try:
            # Places are given first come first served, so the batches of a lane reach the memory in their order. What
            # waits for one is the message as it came, which takes far less than its items.
            async with self.gate.queued():
                charge.let_go()
                with self._reads.enter(self) as place:
                    write = await beside_the_loop(request.ByteSize(), lambda: read_write(request, self.limits))
                    await place.comes()
                    # Tasks begin in the order in which they are made, and enter the lane as they begin.
                    lane = (id(self), write.scope)
                    commit = asyncio.create_task(commit_write(self.memory, write, self.call, lane=lane))
                outcome = await commit
        except RecalldError as error:
            return pb.WriteResponse(sequence=sequence, error=encode_write_error(error))
        except Exception as error:  # noqa: BLE001 - a defect fails its batch; the others have their own answers
            _LOG.exception("defect")
            return pb.WriteResponse(sequence=sequence, error=encode_write_error(error))
        finally:
            charge.let_go()
        return pb.WriteResponse(sequence=sequence, outcome=encode_outcome(outcome))


async def _refused(sequence: int, error: RecalldError) -> pb.WriteResponse:
    return pb.WriteResponse(sequence=sequence, error=encode_write_error(error))


async def _cancelled(*tasks: asyncio.Task[object] | None) -> None:
    """Cancels what still runs and waits for it, so that no task outlives the stream."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
