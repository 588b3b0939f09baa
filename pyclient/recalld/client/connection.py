"""One remote server: the channel to it, what it says of itself, and calls that survive a lost connection."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio

from recalld.client.reachability import proxy_options
from recalld.errors import InvalidField, RecalldError, Retryable, SourceUnavailable
from recalld.v1 import admin_service_pb2, admin_service_pb2_grpc, memory_service_pb2_grpc
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

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True)
class TLSConfig:
    """How to trust the server and, for mutual TLS, who we are. Each part is PEM bytes or a path to a PEM file.

    ca: the roots; None for the system's. cert, key: the client's certificate chain and key, both or neither.
    server_name_override: the name that the server's certificate must have, where it is not that of the target.
    Raises InvalidField (a ValueError) for a certificate without key or the reverse.
    """

    ca: bytes | str | os.PathLike[str] | None = None
    cert: bytes | str | os.PathLike[str] | None = None
    key: bytes | str | os.PathLike[str] | None = None
    server_name_override: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidField(violations={"tls": "needs both cert and key, or neither"})

    def credentials(self) -> grpc.ChannelCredentials:
        """The channel credentials; reads the files. Raises InvalidField naming a file that cannot be read."""
        return grpc.ssl_channel_credentials(_pem("ca", self.ca), _pem("key", self.key), _pem("cert", self.cert))


def _pem(part: str, value: bytes | str | os.PathLike[str] | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        return Path(value).read_bytes()
    except OSError as error:
        raise InvalidField(violations={f"tls.{part}": f"cannot be read: {error}"}) from error


@dataclass(frozen=True)
class ServerFacts:
    """What a client needs of GetServerInfo.

    Every server states its limits; where one does not, 100 items and one unacknowledged batch stand in, below the
    defaults in the contract so that they fit also a server set up smaller, and the contract's own defaults for the
    others.

    sources: whether each accepts writes, by name, in the server's order.
    """

    name: str
    sources: dict[str, bool]
    max_batch_items: int
    max_message_bytes: int
    max_unacked_batches: int
    max_content_bytes: int
    max_k: int

    @classmethod
    def of(cls, info: admin_service_pb2.GetServerInfoResponse) -> ServerFacts:
        limits = info.limits
        return cls(
            name=info.name,
            sources={source.name: source.accepts_writes for source in info.sources},
            max_batch_items=limits.max_batch_items or 100,
            max_message_bytes=limits.max_message_bytes or 4 * 1024 * 1024,
            max_unacked_batches=limits.max_unacked_batches or 1,
            max_content_bytes=limits.max_content_bytes or 65_536,
            max_k=limits.max_k or 1000,
        )

    def accepts_writes(self, selected: Sequence[str]) -> bool:
        """Whether any selected source (none selected: any at all) accepts writes. A server that names no sources is
        taken to accept."""
        considered = [accepts for name, accepts in self.sources.items() if not selected or name in selected]
        return any(considered) if considered else not self.sources


class Patience:
    """How long a call may still take, and the pauses between its attempts.

    timeout: seconds. attempts: the most attempts, None for as many as fit. Pauses grow exponentially with jitter, and
    are never shorter than what the server asked for.
    """

    def __init__(self, timeout: float, *, attempts: int | None = None) -> None:
        self._timeout = timeout
        self._attempts = attempts
        self._failures = 0
        self._until = 0.0
        self.renew()

    def renew(self) -> None:
        """Starts over: there was progress."""
        self._failures = 0
        self._until = asyncio.get_running_loop().time() + self._timeout

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def pause(self, failure: RecalldError) -> None:
        """Waits before another attempt. Raises `failure` when another attempt cannot help or would come too late."""
        if not isinstance(failure, Retryable):
            raise failure
        backoff = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._failures += 1
        if self._attempts is not None and self._failures >= self._attempts:
            raise failure
        delay = max(backoff, failure.retry_after)
        if delay >= self.left:
            raise failure
        await asyncio.sleep(delay)


class TryAgain(Exception):
    """Raised by an attempt that got an answer, which asks for another attempt; `failure` says why."""

    def __init__(self, failure: RecalldError) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass(frozen=True)
class Opened:
    """A channel in the event loop that it belongs to, with its stubs and the metadata of every call."""

    loop: asyncio.AbstractEventLoop
    channel: grpc.aio.Channel
    memory: MemoryServiceAsyncStub
    admin: AdminServiceAsyncStub
    metadata: Sequence[tuple[str, str]]


class Connection:
    """Makes calls to one server; opens the channel on first use.

    A channel belongs to an event loop. A connection that made its own makes another when it is used from another loop,
    or after `close`. One that was given a channel uses that and leaves it open.
    """

    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        tls: TLSConfig | None = None,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        """Raises InvalidField for a token that an HTTP header cannot carry, and for a target that cannot be one; with a
        channel given, any target will do."""
        if channel is None:
            _check_target(target)
        if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
            raise InvalidField(violations={"token": "must be printable ASCII without spaces around it"})
        self._target = target
        self._metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
        self._tls = tls
        self._given = channel
        self._opened: Opened | None = None
        self._facts: ServerFacts | None = None
        self._facts_are_current = False

    @property
    def known(self) -> ServerFacts | None:
        """What the server last said of itself; None before it did."""
        return self._facts

    async def facts(self, patience: Patience, source: str, *, again: bool = False) -> ServerFacts:
        """What the server says of itself; asked on first use, after the connection was lost, and where the caller
        wants it `again`. Raises as `call` does."""
        if again or self._facts is None or not self._facts_are_current:
            request = admin_service_pb2.GetServerInfoRequest()

            async def ask(opened: Opened, left: float) -> admin_service_pb2.GetServerInfoResponse:
                return await opened.admin.GetServerInfo(request, timeout=left, metadata=opened.metadata)

            self._facts = ServerFacts.of(await self.call(ask, patience, source))
            self._facts_are_current = True
        return self._facts

    async def call(self, attempt: Callable[[Opened, float], Awaitable[T]], patience: Patience, source: str) -> T:
        """What `attempt` returns, given the open channel and the seconds left.

        An attempt that fails because the connection is lost or the server is at its limit is repeated within the
        caller's patience. Raises RecalldError, never a gRPC error; `source` names the remote party in it.
        """
        while True:
            opened = self._open()
            try:
                return await attempt(opened, patience.left)
            except grpc.aio.AioRpcError as error:
                failure = error_from_rpc(error, source)
                failure.__cause__ = error
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise failure from error
            except TryAgain as again:
                failure = again.failure
            except grpc.aio.UsageError as error:
                message = f"{source}: the channel is closed"
                raise SourceUnavailable(message, details={"source": source}) from error
            except grpc.aio.BaseError as error:
                failure = SourceUnavailable(f"{source}: the call broke", details={"source": source}, retry_after=0.0)
                failure.__cause__ = error
            except asyncio.CancelledError:
                # A closing channel cancels its calls, and gRPC shows that as if the task had been cancelled.
                task = asyncio.current_task()
                if task is None or task.cancelling() or opened is self._opened:
                    raise
                message = f"{source}: the connection was closed during the call"
                raise SourceUnavailable(message, details={"source": source}) from None
            if isinstance(failure, SourceUnavailable):
                self._facts_are_current = False
            await patience.pause(failure)

    async def close(self) -> None:
        """Closes the channel, if it is ours. A later call opens another."""
        opened, self._opened = self._opened, None
        self._facts_are_current = False
        if opened is not None and self._given is None and opened.loop is asyncio.get_running_loop():
            await opened.channel.close()

    def _open(self) -> Opened:
        loop = asyncio.get_running_loop()
        if self._opened is None or (self._opened.loop is not loop and self._given is None):
            # A channel left over from a loop that has ended cannot be awaited any more; dropping it closes it.
            channel = self._given or self._new_channel()
            self._opened = Opened(
                loop,
                channel,
                memory_service_pb2_grpc.MemoryServiceStub(channel),
                admin_service_pb2_grpc.AdminServiceStub(channel),
                self._metadata,
            )
        return self._opened

    def _new_channel(self) -> grpc.aio.Channel:
        options = [*_OPTIONS, *proxy_options(self._target)]
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options=options)
        if self._tls.server_name_override is not None:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name_override))
        return grpc.aio.secure_channel(self._target, self._tls.credentials(), options=options)


def _check_target(target: str) -> None:
    """gRPC takes nearly any text, reads `http://host:1` as a name to look up and a missing port as 443; the call then
    fails after its whole timeout, and says little."""
    if _RESOLVED.match(target):
        return
    found = _HOST_AND_PORT.fullmatch(target)
    if found is None or not 1 <= int(found[1]) <= 65_535:
        raise InvalidField(violations={"target": f"is {target!r}; it must be HOST:PORT, or a gRPC target as `dns:///`"})
