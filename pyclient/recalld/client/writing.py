"""One write as batches over a Write stream: the window, the keys, and what became of each batch."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import grpc.aio

from recalld.client.batches import WritePart, merge, place, progress
from recalld.client.caller import Caller, Metadata
from recalld.client.connection import Connection, Opened
from recalld.client.patience import Patience, TryAgain
from recalld.errors import DeadlineExceeded, RecalldError, Retryable, SourceUnavailable, StreamProtocol
from recalld.store import WriteOutcome
from recalld.v1 import memory_service_pb2
from recalld.wire import decode_write_error
from recalld.wire.answers import decode_outcome

T = TypeVar("T")

#: The details of the status that grpc.aio makes up, and how many seconds to wait for the real one.
_SEND_FAILED = "Internal error from Core"
_STATUS_WAIT = 1.0


class BatchWriter:
    """Writes batches over one stream at a time and keeps what was acknowledged when the connection is lost.

    The caller's timeout is of seconds without any progress; each batch that is decided starts it anew. The deadline is
    that of the whole write. window: the most batches sent and not acknowledged.
    """

    def __init__(
        self,
        connection: Connection,
        caller: Caller,
        *,
        sources: Sequence[str],
        window: int,
    ) -> None:
        self._connection = connection
        self._caller = caller
        self._sources = sources
        self._window = max(1, window)

    async def write(self, batches: Sequence[WritePart], patience: Patience) -> WriteOutcome:
        """Sends every batch and waits until each is decided.

        After a lost connection, or where a batch was turned away for now, only undecided batches are sent again, with
        the same keys. The first batch that is refused for good stops the write: its error is raised, with a note of
        what is stored. Raises DeadlineExceeded when nothing moves for the timeout, or the deadline comes.
        """
        outcomes: dict[int, WriteOutcome] = {}

        async def attempt(opened: Opened, left: float) -> None:
            pending = [index for index in range(len(batches)) if index not in outcomes]
            stream = _Stream(self, opened, batches, pending, outcomes, patience)
            try:
                async with asyncio.timeout(left) as limit:
                    await stream.run(limit)
            except RecalldError:
                raise  # a batch's own answer, which may be a DeadlineExceeded and so a TimeoutError
            except TimeoutError:
                raise DeadlineExceeded(
                    f"{self.source}: no answer to a write in time", details={"stage": "write"}
                ) from None

        try:
            await self._connection.call(attempt, patience, largest="items")
        except RecalldError as error:
            if len(batches) > 1:
                error.add_note(progress(batches, outcomes))
            raise
        return merge(batches, outcomes)

    def request(self, batch: WritePart, sequence: int) -> memory_service_pb2.WriteRequest:
        """The batch as the message of its place in a stream."""
        return memory_service_pb2.WriteRequest(
            scope=self._caller.scope,
            sequence=sequence,
            items=batch.items,
            idempotency_key=batch.key,
            sources=self._sources,
            on_behalf_of_user_id=self._caller.user,
        )

    @property
    def source(self) -> str:
        return self._connection.label

    @property
    def metadata(self) -> Metadata:
        return self._caller.metadata

    @property
    def window(self) -> int:
        return self._window


class _Stream:
    """One Write stream over the pending batches."""

    def __init__(
        self,
        writer: BatchWriter,
        opened: Opened,
        batches: Sequence[WritePart],
        pending: Sequence[int],
        outcomes: dict[int, WriteOutcome],
        patience: Patience,
    ) -> None:
        self._writer = writer
        self._call = opened.memory.Write(metadata=writer.metadata, timeout=patience.left_for_all)
        self._batches = batches
        self._pending = pending
        self._outcomes = outcomes
        self._patience = patience
        self._sent = 0
        self._answered = 0
        self._refusal: RecalldError | None = None
        self._turned_away: RecalldError | None = None
        self._end: grpc.aio.AioRpcError | None = None
        self._ended = asyncio.Event()
        self._call.add_done_callback(self._keep_status)

    async def run(self, limit: asyncio.Timeout) -> None:
        """Returns when every batch is decided; raises the first refusal, or TryAgain when some were turned away."""
        try:
            await self._send()
            async for response in self._call:
                if self._take(response):
                    self._patience.renew()
                    limit.reschedule(asyncio.get_running_loop().time() + self._patience.left)
                await self._send()
        except grpc.aio.AioRpcError as error:
            # How a stream ends does not matter once every batch that was sent is answered and no other will follow.
            if not self._finished:
                await self._raise_real_status(error)
        finally:
            self._call.cancel()
        if not self._finished:
            message = f"{self._writer.source}: the write stream ended before every batch was acknowledged"
            raise TryAgain(SourceUnavailable(message, details={"source": self._writer.source}, retry_after=0.0))
        if self._refusal is not None:
            raise self._refusal
        if self._turned_away is not None:
            raise TryAgain(self._turned_away)

    async def _raise_real_status(self, error: grpc.aio.AioRpcError) -> None:
        """Raises how the server ended the call; returns when it ended it well."""
        if error.details() != _SEND_FAILED:
            raise error
        with suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_WAIT):
                await self._ended.wait()
        if self._end is None:
            message = f"{self._writer.source}: the connection was lost during a write"
            raise TryAgain(SourceUnavailable(message, details={"source": self._writer.source}, retry_after=0.0))
        if self._end.code() is not grpc.StatusCode.OK:
            raise self._end

    def _keep_status(self, _call: object) -> None:
        """Called when the call's status is set: keeps the one that came from the server.

        When the call has ended while a message is being sent, grpc.aio puts a status of its own (INTERNAL, "Internal
        error from Core") over the server's, before or after that arrives.
        """
        # The status is there, so these coroutines end at their first step; later it may be covered.
        details = _at_once(self._call.details())
        code, trailers = _at_once(self._call.code()), _at_once(self._call.trailing_metadata())
        if details != _SEND_FAILED and code is not None and trailers is not None:
            self._end = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details=details)
            self._ended.set()

    @property
    def _finished(self) -> bool:
        return self._answered == self._sent and (self._refusal is not None or self._sent == len(self._pending))

    async def _send(self) -> None:
        # A call that has ended refuses writes in several ways; the reading side then tells how it ended.
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError, grpc.aio.BaseError):
            while (
                self._refusal is None
                and self._sent < len(self._pending)
                and self._sent - self._answered < self._writer.window
            ):
                batch = self._batches[self._pending[self._sent]]
                await self._call.write(self._writer.request(batch, self._sent + 1))
                self._sent += 1
            if self._refusal is not None or self._sent == len(self._pending):
                await self._call.done_writing()

    def _take(self, response: memory_service_pb2.WriteResponse) -> bool:
        """Files an acknowledgement; whether it is progress."""
        self._answered += 1
        if response.sequence != self._answered or self._answered > self._sent:
            raise StreamProtocol(
                f"{self._writer.source}: acknowledged batch {response.sequence}, expected {self._answered}"
            )
        index = self._pending[self._answered - 1]
        if response.WhichOneof("result") == "outcome":
            self._outcomes[index] = decode_outcome(response.outcome)
            return True
        error = place(decode_write_error(response.error, self._writer.source), self._batches[index])
        if isinstance(error, Retryable):
            self._turned_away = error
        elif self._refusal is None:
            self._refusal = error
        return False


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T | None:
    """What the coroutine returns without waiting; None when it would wait."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    coroutine.close()
    return None
