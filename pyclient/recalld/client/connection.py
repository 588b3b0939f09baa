"""One remote server: the channels to it, one for each event loop, and calls that survive a lost connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from recalld.client.forks import is_severed, watch_channel, watch_keeper
from recalld.client.patience import Patience, TryAgain
from recalld.client.reachability import explain_unreachable, never_connected, proxy_options
from recalld.client.tls import TLSConfig
from recalld.errors import InvalidField, RecalldError, SourceUnavailable, WrongType
from recalld.v1 import admin_service_pb2_grpc, memory_service_pb2_grpc
from recalld.wire import error_from_rpc

if TYPE_CHECKING:
    from recalld.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from recalld.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

T = TypeVar("T")

_OPTIONS: Sequence[tuple[str, int]] = (
    # What a server may send is its own limit to keep; gRPC's default of 4 MiB would cut it short.
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    # Calls are retried here, where a write's idempotency key and the caller's time are known.
    ("grpc.enable_retries", 0),
    # A server that comes back is found in seconds, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Servers punish pings more often than every five minutes. Having keepalive on at all makes the kernel give up on a
    # peer that stopped acknowledging for `keepalive_timeout`.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

#: The names that gRPC gives the ways to find a server; what follows one is gRPC's to read.
_RESOLVED = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds|google-c2p):.")
_HOST_AND_PORT = re.compile(r"(?:\[[^\s\[\]/]+\]|[^\s\[\]/:]+):([0-9]{1,5})")


@dataclass(frozen=True)
class Opened:
    """A channel in the event loop that it belongs to, with its stubs."""

    loop: asyncio.AbstractEventLoop
    channel: grpc.aio.Channel
    memory: MemoryServiceAsyncStub
    admin: AdminServiceAsyncStub


class Connection:
    """Makes calls to one server; opens a channel on first use, one for each event loop.

    One that was given a channel uses that, and leaves it open. After `close` every call is refused.
    """

    def __init__(
        self,
        target: str,
        *,
        label: str,
        tls: TLSConfig | None = None,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        """label: what errors call the server. Raises InvalidField for a target that cannot be one; with a channel
        given, any target will do."""
        if channel is None:
            _check_target(target)
        else:
            watch_channel(channel)
        self._target = target
        self._label = label
        self._tls = tls
        self._given = channel
        self._opened: dict[asyncio.AbstractEventLoop, Opened] = {}
        self._changes: set[asyncio.Future[None]] = set()
        self._losses = 0
        self._closing = False
        self._closed = False
        watch_keeper(self)

    @property
    def label(self) -> str:
        """What errors call the server."""
        return self._label

    @property
    def losses(self) -> int:
        """How often a call found the server away; what was learnt of it before may be out of date."""
        return self._losses

    def check_open(self) -> None:
        """Raises SourceUnavailable after `close`, and in a process that was forked beside a living connection."""
        if is_severed():
            raise self._unavailable(
                "this process was forked while its parent had a gRPC connection open, which gRPC does not survive; "
                "close it before the fork, or start workers with spawn"
            )
        if self._closing:
            raise self._unavailable("is closed")

    @contextmanager
    def changing(self) -> Generator[None]:
        """Around a change: `close` waits until it has ended. Raises as `check_open` does."""
        self.check_open()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.add(ended)
        try:
            yield
        finally:
            self._changes.discard(ended)
            if not ended.done():
                ended.set_result(None)

    async def call(
        self, attempt: Callable[[Opened, float], Awaitable[T]], patience: Patience, *, largest: str = "request"
    ) -> T:
        """What `attempt` returns, given the open channel and the seconds left.

        An attempt that fails because the connection is lost or the server is at its limit is repeated within the
        caller's patience. largest: the field to name when the request is too large for a message. Raises RecalldError,
        never a gRPC error.
        """
        while True:
            patience.check(self._label)
            opened = self._open()
            try:
                return await attempt(opened, patience.left)
            except grpc.aio.AioRpcError as error:
                failure = self._read_failure(error, largest)
                failure.__cause__ = error
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise failure from error
            except TryAgain as again:
                failure = again.failure
            except grpc.aio.UsageError as error:
                raise self._unavailable("the channel is closed") from error
            except grpc.aio.BaseError as error:
                failure = self._unavailable("the call broke", retry_after=0.0)
                failure.__cause__ = error
            except asyncio.CancelledError:
                # A closing channel cancels its calls, and gRPC shows that as if the task had been cancelled.
                task = asyncio.current_task()
                if task is None or task.cancelling() or opened is self._opened.get(opened.loop):
                    raise
                raise self._unavailable("the connection was closed during the call") from None
            if isinstance(failure, SourceUnavailable):
                self._losses += 1
            await patience.pause(failure)

    async def close(self) -> None:
        """Waits for the changes under way in this event loop, then closes its channel if that is ours; other calls in
        flight end in SourceUnavailable. Channels of other loops are dropped."""
        self._closing = True
        loop = asyncio.get_running_loop()
        changes = [each for each in list(self._changes) if each.get_loop() is loop]
        if changes:
            await asyncio.wait(changes)
        self._closed = True
        opened = self._opened.pop(loop, None)
        self._opened.clear()
        if opened is not None and self._given is None:
            await opened.channel.close()

    def drop_ended(self) -> None:
        """Lets go of the channels whose event loop has ended."""
        # A channel cannot be awaited without its loop; dropping it closes it.
        for loop in list(self._opened):  # a copy: threads with loops of their own come and go
            if loop.is_closed():
                self._opened.pop(loop, None)

    def _open(self) -> Opened:
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            if self._closed or is_severed():
                self.check_open()
            self.drop_ended()
            channel = self._given or self._make_channel()
            opened = self._opened[loop] = Opened(
                loop,
                channel,
                memory_service_pb2_grpc.MemoryServiceStub(channel),
                admin_service_pb2_grpc.AdminServiceStub(channel),
            )
        return opened

    def _make_channel(self) -> grpc.aio.Channel:
        options = [*_OPTIONS, *proxy_options(self._target)]
        if self._tls is None:
            channel = grpc.aio.insecure_channel(self._target, options=options)
        else:
            if self._tls.server_name_override is not None:
                options.append(("grpc.ssl_target_name_override", self._tls.server_name_override))
            channel = grpc.aio.secure_channel(self._target, self._tls.credentials(), options=options)
        watch_channel(channel)
        return channel

    def _read_failure(self, error: grpc.aio.AioRpcError, largest: str) -> RecalldError:
        details = error.details() or ""
        if error.code() is grpc.StatusCode.UNAVAILABLE and never_connected(details) and self._given is None:
            why = explain_unreachable(self._target, details, tls=self._tls is not None)
            return self._unavailable(why, retry_after=0.0)
        return error_from_rpc(error, self._label, largest=largest)

    def _unavailable(self, why: str, *, retry_after: float = 1.0) -> SourceUnavailable:
        return SourceUnavailable(f"{self._label}: {why}", details={"source": self._label}, retry_after=retry_after)


def _check_target(target: Any) -> None:
    """gRPC takes nearly any text, reads `http://host:1` as a name to look up and a missing port as 443; the call then
    fails after its whole timeout, and says little."""
    if not isinstance(target, str):
        raise WrongType(violations={"target": f"must be a string, not {type(target).__name__}"})
    if _RESOLVED.match(target):
        return
    found = _HOST_AND_PORT.fullmatch(target)
    if found is None or not 1 <= int(found[1]) <= 65_535:
        raise InvalidField(violations={"target": f"is {target!r}; it must be HOST:PORT, or a gRPC target as `dns:///`"})
