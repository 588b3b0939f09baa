"""A recalld server as a source."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import grpc.aio

from recalld.client.connection import Connection, Opened, Patience, TLSConfig
from recalld.client.writing import write_items
from recalld.errors import InternalFailure, InvalidField, MemoryWriteRefused, ScopeRequired, SourceUnavailable
from recalld.item import MemoryAttributes, MemoryItem, assign_owner
from recalld.scope import CtxLike, Scope, observe, scope_of, user_of
from recalld.source import check_query
from recalld.v1 import memory_service_pb2
from recalld.where import parse_where
from recalld.wire import Violations, checked_text, decode_item, encode_filter, encode_scope, encode_writes, reason_name

__all__ = ["RemoteMemory", "TLSConfig"]


class RemoteMemory:
    """A MemorySource over the wire; its backend is a recalld server.

    target: where the server listens, `host:port` or a gRPC target (`dns:///...`, `unix:...`, `ipv4:...`). name: what
    items are stamped with; without one it is the target, and the name that the server gives itself from the first
    contact on. Name each where several servers are composed. sources: the server-side sources to use; empty for all.
    timeout: seconds, see `query` and `write`.
    token: sent as `authorization: Bearer ...`, also without TLS, where everybody on the way can read it: keep that to
    loopback and trusted networks. tls: None for plain text. channel: a channel to use in place of an own one; it stays
    the caller's to close, and `target`, `token` aside, is only a label.

    It connects on first use, as an async context manager or with `close` it disconnects, and a call after that connects
    anew, also from another event loop. Raises InvalidField (a ValueError) for a target, timeout or token that cannot
    be.
    """

    name: str

    def __init__(
        self,
        target: str,
        *,
        name: str | None = None,
        sources: Sequence[str] = (),
        timeout: float = 10.0,
        token: str | None = None,
        tls: TLSConfig | None = None,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        if not (math.isfinite(timeout) and timeout > 0):
            raise InvalidField(violations={"timeout": f"is {timeout}; it must be a positive number of seconds"})
        if isinstance(sources, str):
            raise InvalidField(violations={"sources": "is a string; it must be a sequence of names"})
        violations: Violations = {}
        for index, source in enumerate(sources):
            checked_text(source, f"sources[{index}]", violations)
        if violations:
            raise InvalidField(violations=violations)
        self.name = name or target
        self._named = bool(name)
        self._sources = tuple(sources)
        self._timeout = timeout
        self._connection = Connection(target, token=token, tls=tls, channel=channel)

    @property
    def accepts_writes(self) -> bool:
        """Whether any of the server's (selected) sources accepts writes, as it last said; True before it said so."""
        known = self._connection.known
        return known is None or known.accepts_writes(self._sources)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The best `k` items, or as many as the server gives at once. `source` is this source's name, and
        `attributes.origin` the server-side source.

        `ctx.user_id` is the user on whose behalf the server looks. What the server left out is observed:
        `memory.source_degraded` with `source`, `component`, `reason` and `message`.

        Everything that can go wrong is a RecalldError. InvalidFilter, InvalidField and ScopeRequired are raised before
        anything is sent. A lost connection is retried until `timeout` seconds are over; then SourceUnavailable, or
        DeadlineExceeded when the server did not answer.
        """
        check_query(query, k=k)
        condition = parse_where(where)
        scope = _required_scope(ctx)
        if k <= 0:
            return []
        violations: Violations = {}
        request = memory_service_pb2.QueryRequest(
            scope=encode_scope(scope),
            query=checked_text(query, "query", violations),
            sources=self._sources,
            on_behalf_of_user_id=checked_text(user_of(ctx) or "", "user_id", violations),
        )
        if violations:
            raise InvalidField(violations=violations)
        if condition is not None:
            request.where.CopyFrom(encode_filter(condition))
        patience = Patience(self._timeout)
        facts = await self._connection.facts(patience, self.name)
        self._learn_name(facts.name)
        request.k = min(k, facts.max_k)

        async def attempt(opened: Opened, left: float) -> tuple[list[MemoryItem], memory_service_pb2.QuerySummary]:
            call = opened.memory.Query(request, timeout=left, metadata=opened.metadata)
            try:
                return await self._read(call)
            finally:
                call.cancel()

        items, summary = await self._connection.call(attempt, patience, self.name)
        for each in summary.degradations:
            observe(
                ctx,
                "memory.source_degraded",
                source=self.name,
                component=each.component,
                reason=reason_name(each.reason),
                message=each.message,
            )
        return items[:k]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Stores the items on the server; returns when they are durable there.

        An item that names no user is `ctx.user_id`'s, so that by default it stays private to that user.

        An item's `id` is kept and writes that record, whatever source the item came from; one without gets a fresh id.
        All items are checked before anything is sent: InvalidField names every violation, and WrongType (a TypeError)
        says that `items` is a text or a single item. They go in batches over one
        stream. Each batch has an idempotency key: after a lost connection only batches that were not acknowledged are
        sent again, and none is stored twice. `timeout` bounds the wait for progress: each acknowledged batch starts it
        anew, so that a long write need not fit into it.

        Raises CompositeWriteError with the server's own split when some of its sources failed, and MemoryWriteRefused
        when the server turned the write away as read-only. A server whose sources all ignore writes stores nothing:
        then the call returns, `accepts_writes` is False, and the context's observer is told: `memory.write_refused`
        with `source` (the server-side one) and `count`.
        """
        scope = encode_scope(_required_scope(ctx))
        encoded = encode_writes(assign_owner(items, ctx))
        if not encoded:
            return
        facts = await self._connection.facts(Patience(self._timeout), self.name)
        self._learn_name(facts.name)
        key = uuid.uuid4().hex
        try:
            written = await write_items(
                self._connection,
                encoded,
                source=self.name,
                scope=scope,
                sources=self._sources,
                timeout=self._timeout,
                key=lambda number: f"{key}-{number}",
            )
        except MemoryWriteRefused as refusal:
            raise MemoryWriteRefused(source=refusal.source, n=len(encoded)) from refusal
        for source in written.refused:
            observe(ctx, "memory.write_refused", source=source, count=len(encoded))
        written.raise_for_failures()
        if not written.accepted and self.accepts_writes:
            # Returning means "stored" unless `accepts_writes` is False.
            raise MemoryWriteRefused(source=self.name, n=len(encoded))

    async def close(self) -> None:
        """Disconnects; calls in flight end in SourceUnavailable. A given channel is left open."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _learn_name(self, name: str) -> None:
        if not self._named and name:
            self.name = name
            self._named = True

    async def _read(
        self, call: grpc.aio.UnaryStreamCall[memory_service_pb2.QueryRequest, memory_service_pb2.QueryResponse]
    ) -> tuple[list[MemoryItem], memory_service_pb2.QuerySummary]:
        items: list[MemoryItem] = []
        summary: memory_service_pb2.QuerySummary | None = None
        violations: Violations = {}
        async for frame in call:
            if frame.WhichOneof("frame") == "summary":
                summary = frame.summary
                continue
            for hit in frame.hits.hits:
                item = decode_item(hit.item, f"hits[{len(items)}]", violations)
                if item is None:
                    raise InternalFailure(f"{self.name}: sent an item that does not read: {violations}")
                items.append(stamped(item, self.name))
        if summary is None:
            message = f"{self.name}: the answer is incomplete; the stream ended without a summary"
            raise SourceUnavailable(message, details={"source": self.name})
        return items, summary


def stamped(item: MemoryItem, name: str) -> MemoryItem:
    """The item as `name` returns it: the source that the server named becomes `attributes.origin`."""
    attributes = item.attributes or MemoryAttributes()
    if not attributes.origin:
        attributes = replace(attributes, origin=item.source)
    return replace(item, source=name, attributes=attributes)


def _required_scope(ctx: CtxLike) -> Scope:
    scope = scope_of(ctx)
    if not scope.complete:
        missing = {f"scope.{part}": "is required" for part in ("org_id", "domain_id") if not getattr(scope, part)}
        raise ScopeRequired("the scope needs an org_id and a domain_id", violations=missing)
    return scope
