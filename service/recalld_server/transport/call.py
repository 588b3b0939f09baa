"""One call as the server's own code sees it: what is known of it, and its messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError, Message

from recalld.errors import DeadlineExceeded, InvalidField, RecalldError
from recalld.scope import Ctx, Scope
from recalld_server.transport.beside import beside_the_loop

_LOG = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

#: gRPC's view of a call; messages are bytes, since this package reads and writes protobuf itself.
Context = grpc.aio.ServicerContext[Any, Any]


class Work(Enum):
    """What a call costs; calls of one kind share a limit. LIGHT has none."""

    QUERY = "query"
    READ = "read"
    WRITE = "write"
    STREAM = "write stream"
    LIGHT = "light"


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC. path: `/recalld.v1.MemoryService/Query`. run: takes the request (the `Requests` of a client stream)
    and the call; gives the answer, or None when it has sent its answers itself."""

    path: str
    work: Work
    request: type[Message]
    streams_in: bool
    streams_out: bool
    run: Callable[[Any, Call], Awaitable[Message | None]]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def _nothing() -> None:
    return None


def log_event(event: str, fields: Mapping[str, Any]) -> None:
    """Logs what the memory observes: a source or a leg that did not contribute, a write that was dropped."""
    error = fields.get("error")
    # A record has a `message` of its own, and refuses another.
    told = {"detail" if name == "message" else name: str(value) for name, value in fields.items()}
    _LOG.warning(event, extra=told, exc_info=error if isinstance(error, Exception) else None)


class Call:
    """One call in progress.

    stage: what it is doing, told when its deadline passes. failure: what it ended with, for the log. via: the servers
    that it came through, this one last. request_bytes: of the one request. stall_seconds: how long a client may read
    nothing of an answer. leave_place: gives back the place at which the call was admitted, before it ends.
    """

    def __init__(self, method: Method, context: Context) -> None:
        self.method = method
        self.context = context
        self.request_id = ""
        self.via: tuple[str, ...] = ()
        self.request_bytes = 0
        self.stall_seconds: float | None = None
        self.leave_place: Callable[[], None] = _nothing
        self.stage = method.name.lower()
        self.failure: RecalldError | None = None
        self.deadline: float | None = None

    def ctx(self, scope: Scope, user: str) -> Ctx:
        """The context in which the memory is asked."""
        return Ctx(
            scope,
            user_id=user or None,
            observe=log_event,
            request_id=self.request_id,
            # The loop tells the time that `time.monotonic` tells.
            deadline=self.deadline,
            trace=self._metadata("traceparent"),
            hops=len(self.via),
            via=self.via,
        )

    def _metadata(self, key: str) -> str | None:
        for name, value in self.context.invocation_metadata() or ():
            if name == key and isinstance(value, str):
                return value
        return None

    async def send(self, message: Message) -> None:
        """Sends one message of a server stream; waits while the client does not read, and raises DeadlineExceeded when
        it reads nothing for too long."""
        try:
            async with asyncio.timeout(self.stall_seconds):
                await self.context.write(message.SerializeToString())
        except TimeoutError:
            raise DeadlineExceeded(
                f"the client read nothing for {self.stall_seconds:g} s", details={"stage": "sending"}
            ) from None


def decode(cls: type[M], data: bytes, max_bytes: int) -> M:
    """The message in the bytes. Raises InvalidField when there are too many or they are no such message."""
    if len(data) > max_bytes:
        raise InvalidField(
            violations={"message": f"has {len(data)} bytes, more than the {max_bytes} of max_message_bytes"}
        )
    try:
        return cls.FromString(data)
    except DecodeError:
        raise InvalidField(violations={"message": f"is not a valid {cls.DESCRIPTOR.full_name}"}) from None


class Requests(Generic[M]):
    """The messages of a client stream."""

    def __init__(self, cls: type[M], context: Context, max_bytes: int) -> None:
        self._cls = cls
        self._context = context
        self._max_bytes = max_bytes

    async def next(self) -> M | None:
        """The next message, None when the client has sent all. Raises InvalidField for what does not decode."""
        data = await self._context.read()
        # The end of the stream is grpc.aio.EOF, the one thing here that is not bytes.
        if not isinstance(data, bytes):
            return None
        return await beside_the_loop(len(data), lambda: decode(self._cls, data, self._max_bytes))
