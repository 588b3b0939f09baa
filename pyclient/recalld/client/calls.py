"""What every client of a server has: its connection, what it sends with each call, and what the server is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from recalld.client.caller import (
    Caller,
    Metadata,
    check_metadata,
    check_names,
    check_timeout,
    encode_token,
    read_caller,
    read_ctx,
    read_metadata,
    replace_metadata,
)
from recalld.client.connection import Connection, Opened
from recalld.client.patience import Patience
from recalld.client.results import HealthStatus, ServerInfo, decode_server_info
from recalld.client.tls import TLSConfig
from recalld.errors import InternalFailure, ItemNotFound
from recalld.scope import Ctx, CtxLike
from recalld.store import WriteOutcome
from recalld.v1 import admin_service_pb2
from recalld.values import Violations
from recalld.wire.health import HEALTH_CHECK, decode_health_response, encode_health_request

T = TypeVar("T")

#: From how many bytes on an answer is decoded off the event loop.
_LARGE = 65_536


class ServerCalls:
    """The connection of a `MemoryClient`, which documents the parameters."""

    def __init__(
        self,
        target: str,
        *,
        sources: Sequence[str] = (),
        timeout: float = 10.0,
        token: str | None = None,
        tls: TLSConfig | None = None,
        channel: grpc.aio.Channel | None = None,
        metadata: Metadata = (),
        label: str | None = None,
    ) -> None:
        self._timeout = check_timeout(timeout)
        self._sources = check_names(sources, "sources")
        self._metadata = replace_metadata(encode_token(token), check_metadata(metadata, "metadata"))
        self._connection = Connection(target, label=label or target, tls=tls, channel=channel)
        self._known: ServerInfo | None = None
        self._known_after = 0

    @property
    def known(self) -> ServerInfo | None:
        """What the server last said of itself; None before it did."""
        return self._known

    @property
    def accepts_writes(self) -> bool:
        """Whether any of the server's (selected) sources accepts writes, as it last said; True before it said so."""
        return self._known is None or self._known.accepts_writes(self._sources)

    async def server_info(self, *, ctx: CtxLike | None = None, call_metadata: Metadata = ()) -> ServerInfo:
        """What the server says of itself now."""
        told, patience = self._begin(ctx, call_metadata)
        return await self._ask_info(patience, told)

    async def health(
        self, service: str = "", *, ctx: CtxLike | None = None, call_metadata: Metadata = ()
    ) -> HealthStatus:
        """Whether the server, or one of its services such as `recalld.v1.MemoryService`, answers. A server that cannot
        be reached raises SourceUnavailable, at the first attempt."""
        told, patience = self._begin(ctx, call_metadata, attempts=1)

        async def ask(opened: Opened, left: float) -> int:
            check: Any = opened.channel.unary_unary(
                HEALTH_CHECK, request_serializer=encode_health_request, response_deserializer=decode_health_response
            )
            return await check(service, timeout=left, metadata=told)

        try:
            return HealthStatus(await self._connection.call(ask, patience))
        except ItemNotFound:
            return HealthStatus.SERVICE_UNKNOWN
        except ValueError:  # a status of a later version
            return HealthStatus.UNKNOWN

    async def close(self) -> None:
        """Waits for the changes under way, then disconnects; other calls in flight end in SourceUnavailable, and so
        does every later one. A given channel is left open."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # For the calls of subclasses.

    def _caller(self, ctx: Ctx, call_metadata: Metadata) -> Caller:
        """Who calls. Raises SourceUnavailable when the client is closed."""
        metadata = replace_metadata(self._metadata, check_metadata(call_metadata, "call_metadata"))
        caller = read_caller(ctx, metadata, self._timeout)
        self._connection.check_open()
        return caller

    def _selected(self, sources: Sequence[str] | None) -> Sequence[str]:
        return self._sources if sources is None else check_names(sources, "sources")

    def _first(self, source: str | None) -> str:
        """The source that a call reads: the one named, else the first of the client's, else the server's choice."""
        if source is None:
            return self._sources[0] if self._sources else ""
        return check_names([source], "source")[0]

    async def _call(
        self,
        attempt: Callable[[Opened, float], Awaitable[T]],
        caller: Caller,
        *,
        largest: str,
        attempts: int | None = None,
    ) -> T:
        """What `attempt` returns, once the server has said what it is; as `Connection.call`."""
        patience = caller.patience()
        await self._info(caller, patience)
        if attempts is not None:
            patience = caller.patience(attempts=attempts)
        return await self._connection.call(attempt, patience, largest=largest)

    async def _look_again(self, outcome: WriteOutcome, caller: Caller) -> WriteOutcome:
        """The outcome; where every source turned the write away, the client knows then whether any takes writes."""
        if not outcome.accepted and not outcome.failed:
            await self._ask_info(caller.patience(), caller.metadata)
        return outcome

    async def _decode(self, size: int, decode: Callable[[Violations], T]) -> T:
        """What `decode` makes of an answer of so many bytes. Raises InternalFailure where it finds violations."""
        violations: Violations = {}
        # A large answer would hold up the event loop.
        answer = await asyncio.to_thread(decode, violations) if size > _LARGE else decode(violations)
        if violations:
            raise InternalFailure(f"{self._connection.label}: sent an item that does not read: {violations}")
        return answer

    async def _info(self, caller: Caller, patience: Patience) -> ServerInfo:
        """What the server said of itself; asked on first use and after the connection was lost."""
        if self._known is None or self._known_after != self._connection.losses:
            return await self._ask_info(patience, caller.metadata)
        return self._known

    async def _ask_info(self, patience: Patience, metadata: Metadata) -> ServerInfo:
        request = admin_service_pb2.GetServerInfoRequest()

        async def ask(opened: Opened, left: float) -> admin_service_pb2.GetServerInfoResponse:
            return await opened.admin.GetServerInfo(request, timeout=left, metadata=metadata)

        self._known = decode_server_info(await self._connection.call(ask, patience))
        self._known_after = self._connection.losses
        return self._known

    def _begin(
        self, ctx: CtxLike | None, call_metadata: Metadata, *, attempts: int | None = None
    ) -> tuple[Metadata, Patience]:
        """The metadata and the time of a call that is for no tenant."""
        self._connection.check_open()
        told = Ctx() if ctx is None else read_ctx(ctx)
        metadata = replace_metadata(self._metadata, check_metadata(call_metadata, "call_metadata"))
        patience = Patience(self._timeout, deadline=told.deadline, attempts=attempts)
        return read_metadata(told, metadata), patience
