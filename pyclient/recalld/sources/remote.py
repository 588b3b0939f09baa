"""A recalld server as a memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import grpc.aio

from recalld.client.memory_client import MemoryClient
from recalld.client.tls import TLSConfig
from recalld.errors import DeadlineExceeded, MemoryWriteRefused
from recalld.item import MemoryAttributes, MemoryItem, assign_owner
from recalld.lanes import LanePlace, Lanes
from recalld.limits import LIMITS
from recalld.scope import CtxLike, observe, remaining_of
from recalld.source import check_query
from recalld.store import (
    UNSET,
    AttributeChanges,
    Degradation,
    ItemPage,
    SearchQuery,
    SearchResult,
    Unset,
    Where,
    WriteBatch,
    WriteOutcome,
)
from recalld.store_base import StoreBase
from recalld.where import parse_where

__all__ = ["RemoteMemory", "TLSConfig"]


class RemoteMemory(StoreBase):
    """A `MemoryStore` over the wire; its backend is a recalld server.

    target: where the server listens, `host:port` or a gRPC target (`dns:///...`, `unix:...`, `ipv4:...`). name: what
    items are stamped with. sources: the server-side sources to use, empty for all; records are read and changed in the
    first, and deleted in each. timeout: seconds that a call may take, and a write without progress.
    token: sent as `authorization: Bearer ...`, also without TLS, where everybody on the way can read it: keep that to
    loopback and trusted networks. tls: None for plain text. channel: a channel to use in place of an own one; it stays
    the caller's to close, and `target`, `token` aside, is only a label. search_attempts: how often a search is tried at
    most, so that a server that is down does not hold up the answers of others; None for as often as fits into the time.
    Raises InvalidField (a ValueError) for a target, timeout or token that cannot be.

    Without a name it has the one that the server gives itself, once the server has answered a call; where the name is
    asked for before that, as a composite does, it is the target. Once settled it never changes.

    It connects on first use, also from another event loop. After `close` (or `async with`) every call raises
    SourceUnavailable, and so does every call of a process that was forked while its parent had a connection open: close
    it before the fork, or start workers with spawn. A parent whose event loop has ended may fork.

    `ctx.user_id` is the user on whose behalf the server works; request id, trace and hops go along; the deadline bounds
    each call with all its attempts. Everything that can go wrong is a RecalldError. What shows without asking the
    server (InvalidFilter, InvalidField, ScopeRequired) is raised before anything is sent. A lost connection is retried
    until the time is over; then SourceUnavailable, or DeadlineExceeded when the server did not answer. `source` of
    items is this memory's name, and `attributes.origin` the server-side source.
    """

    keeps_records = True

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
        search_attempts: int | None = None,
    ) -> None:
        self._client = MemoryClient(
            target, sources=sources, timeout=timeout, token=token, tls=tls, channel=channel, label=name
        )
        self._target = target
        self._name = name or None
        self._search_attempts = search_attempts
        self._lanes = Lanes()

    def __repr__(self) -> str:
        return f"RemoteMemory({self._target!r}, name={self._name!r})"

    @property
    def name(self) -> str:
        """What items are stamped with."""
        if self._name is None:
            known = self._client.known
            self._name = (known and known.name) or self._target
        return self._name

    @property
    def accepts_writes(self) -> bool:
        """Whether any of the server's (selected) sources accepts writes, as it last said; True before it said so."""
        return self._client.accepts_writes

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The items of a hybrid `search`, `k` or as many as the server gives at once."""
        check_query(query, k=k)
        return (await self.search(SearchQuery(query, min(k, LIMITS.max_k), parse_where(where)), ctx=ctx)).items

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        """What the server finds. A part that it left out is a degradation `NAME/component`, of which the context's
        observer hears too: `memory.source_degraded` with `source`, `component`, `reason` and `message`."""
        found = await self._client.search(query, ctx=ctx, attempts=self._search_attempts)
        degradations = [replace(each, component=f"{self.name}/{each.component}") for each in found.degradations]
        for each in degradations:
            self._observe_degradation(each, ctx)
        hits = [replace(hit, item=with_source(hit.item, self.name)) for hit in found.hits]
        return replace(found, hits=hits[: query.k], degradations=degradations)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Stores any number of items on the server; returns when they are durable there.

        An item that names no user is `ctx.user_id`'s, so that by default it stays private to that user. An item's `id`
        is kept and writes that record, whatever source the item came from; one without gets a fresh id.

        All items are checked before anything is sent: InvalidField names every violation, and WrongType (a TypeError)
        says that `items` is a text or a single item. They go in batches over one stream, and a lost connection stores
        none twice. idempotency_key: the same items under the same key are applied once, so that a caller can repeat a
        write whose outcome is unknown. `timeout` bounds the wait for progress: each acknowledged batch starts it anew.

        Raises CompositeWriteError with the server's own split when some of its sources failed, and MemoryWriteRefused
        when the server turned the write away as read-only; an error after the first batch has a note of what is stored.
        A server whose sources all ignore writes stores nothing: then the call returns, `accepts_writes` is False, and
        the context's observer is told: `memory.write_refused` with `source` (the server-side one) and `count`.
        """
        whole = list(assign_owner(items, ctx))
        outcome = await self._client.write(whole, ctx=ctx, idempotency_key=idempotency_key)
        self._observe_refusals(outcome, len(whole), ctx)
        outcome.raise_for_failures()
        if whole and not outcome.accepted and self.accepts_writes:
            # Returning means "stored" unless `accepts_writes` is False.
            raise MemoryWriteRefused(source=self.name, n=len(whole))

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        """Stores one batch, whole or not at all, and tells the server's own split. When the server asked one source and
        that failed, its error is raised.

        A batch of more items than the server takes at once, or of more bytes than a message holds, is InvalidField that
        names `items`; nothing is sent then. Batches of one lane are sent one after another.
        """
        with self._lanes.enter(batch.lane) as place:
            await self._wait(place, ctx)
            outcome = await self._client.batch_write(batch.items, ctx=ctx, idempotency_key=batch.idempotency_key)
        self._observe_refusals(outcome, len(batch.items), ctx)
        return outcome

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        found = await self._client.get(ids, ctx=ctx)
        return [with_source(item, self.name) for item in found.items]

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = LIMITS.default_page_size, page_token: str = ""
    ) -> ItemPage:
        """As the server lists; a page may be shorter than `page_size` and not be the last."""
        page = await self._client.list_page(ctx=ctx, where=where, page_size=page_size, page_token=page_token)
        return replace(page, items=[with_source(item, self.name) for item in page.items])

    async def update(
        self,
        id: str,
        *,
        ctx: CtxLike,
        content: str | Literal[Unset.UNSET] = UNSET,
        metadata: Mapping[str, Any] | Literal[Unset.UNSET] = UNSET,
        metadata_changes: Mapping[str, Any] | None = None,
        attributes: AttributeChanges | Literal[Unset.UNSET] = UNSET,
        if_revision: int | None = None,
    ) -> MemoryItem:
        """As `MemoryStore.update`. With `if_revision` a lost connection is not retried: the change may have been made,
        and a second attempt would find another revision."""
        updated = await self._client.update(
            id,
            ctx=ctx,
            content=content,
            metadata=metadata,
            metadata_changes=metadata_changes,
            attributes=attributes,
            if_revision=if_revision,
        )
        return with_source(updated.item, self.name)

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        """As `MemoryStore.delete`, in each source used. After a lost connection the count may leave out what the first
        attempt had deleted."""
        return (await self._client.delete(ids, ctx=ctx, where=where, dry_run=dry_run)).count

    async def commit_token(self, *, ctx: CtxLike) -> str:
        """The state that the server reads now, in the sources used."""
        return (await self.search(SearchQuery("", 1), ctx=ctx)).commit_token

    async def close(self) -> None:
        """Waits for the changes under way, then disconnects; other calls in flight end in SourceUnavailable, and so
        does every later one. A given channel is left open."""
        await self._client.close()

    # Inside.

    async def _wait(self, place: LanePlace, ctx: CtxLike) -> None:
        """Waits for the turn in a lane, no longer than the context has time."""
        try:
            async with asyncio.timeout(remaining_of(ctx)):
                await place.comes()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self.name}: the time was over before the earlier batches of the lane", details={"stage": "lane"}
            ) from None

    def _observe_degradation(self, degradation: Degradation, ctx: CtxLike) -> None:
        observe(
            ctx,
            "memory.source_degraded",
            source=self.name,
            component=degradation.component,
            reason=degradation.reason,
            message=degradation.message,
        )

    def _observe_refusals(self, outcome: WriteOutcome, count: int, ctx: CtxLike) -> None:
        for source in outcome.refused:
            observe(ctx, "memory.write_refused", source=source, count=count)


def with_source(item: MemoryItem, name: str) -> MemoryItem:
    """The item as `name` returns it: the source that the server named becomes `attributes.origin`."""
    attributes = item.attributes or MemoryAttributes()
    if not attributes.origin:
        attributes = replace(attributes, origin=item.source)
    return replace(item, source=name, attributes=attributes)
