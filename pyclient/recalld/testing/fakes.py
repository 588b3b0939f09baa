"""Sources and stores that stand in for real ones in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recalld.filters import matches
from recalld.item import MemoryItem
from recalld.scope import Ctx, CtxLike, Scope
from recalld.source import check_query
from recalld.sources.vector import Chunk
from recalld.store import (
    Degradation,
    ItemPage,
    RankFusion,
    SearchHit,
    SearchQuery,
    SearchResult,
    Where,
    WriteBatch,
    WriteOutcome,
)
from recalld.store_base import StoreBase
from recalld.where import parse_where


@dataclass(frozen=True)
class Query:
    """One call of `query` that a fake saw."""

    query: str
    k: int
    ctx: CtxLike
    where: dict[str, Any] | None


@dataclass(eq=False)
class ListMemory:
    """Answers any query at once with its items, in their order and stamped with its name; remembers its calls.

    `where` is honoured. With `accepts_writes` False a write is recorded in `writes` and stored nowhere.
    """

    items: list[MemoryItem] = field(default_factory=list[MemoryItem])
    name: str = "list"
    accepts_writes: bool = True
    queries: list[Query] = field(default_factory=list[Query], init=False)
    writes: list[list[MemoryItem]] = field(default_factory=list[list[MemoryItem]], init=False)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        condition = parse_where(where)
        if k <= 0:
            return []
        self.queries.append(Query(query, k, ctx, where))
        stamped = [item if item.source == self.name else replace(item, source=self.name) for item in self.items]
        return [item for item in stamped if condition is None or matches(condition, item)][:k]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        batch = list(items)
        self.writes.append(batch)
        if self.accepts_writes:
            self.items = [*self.items, *batch]


@dataclass(eq=False)
class FailingMemory:
    """Raises `error` at every query and every write."""

    error: BaseException
    name: str = "failing"

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        raise self.error

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        raise self.error


@dataclass(eq=False)
class BlockedMemory(ListMemory):
    """A `ListMemory` that waits, at every query and write, until `release` is set; `started` says that a call waits.

    A query reads before it waits, so it does not see what is written meanwhile. cancelled: how many calls were
    cancelled while they waited.
    """

    name: str = "blocked"
    started: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    release: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    cancelled: int = field(default=0, init=False)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        found = await super().query(query, k=k, ctx=ctx, where=where)
        await self._wait()
        return found

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        batch = list(items)
        await self._wait()
        await super().write(batch, ctx=ctx)

    async def _wait(self) -> None:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass(frozen=True)
class Call:
    """One call of a method that a fake saw: its name, its context, and its other arguments by name."""

    method: str
    ctx: CtxLike
    given: Mapping[str, Any]


@dataclass(eq=False)
class ScriptedStore(StoreBase):
    """A `MemoryStore` that answers as it is told, and remembers its calls.

    hits: what `search` finds, whatever is asked. items: what `get`, `list_page` and `update` know. outcome: of a
    commit; None accepts it. token: the commit token of every answer. failures: by the name of a method, what it
    raises. until: by the name of a method, what it waits for before it answers.
    """

    name: str = "scripted"
    hits: Sequence[SearchHit] = ()
    items: Sequence[MemoryItem] = ()
    degradations: Sequence[Degradation] = ()
    fusion: RankFusion | None = None
    token: str = ""
    outcome: WriteOutcome | None = None
    accepts_writes: bool = True
    keeps_records: bool = True
    failures: Mapping[str, BaseException] = field(default_factory=dict[str, BaseException])
    until: Mapping[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    calls: list[Call] = field(default_factory=list[Call], init=False)

    def calls_of(self, method: str) -> list[Mapping[str, Any]]:
        """The arguments of the calls of one method, in order."""
        return [call.given for call in self.calls if call.method == method]

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        await self._see("search", ctx, query=query)
        return SearchResult(self.hits[: max(query.k, 0)], self.degradations, self.token, self.fusion)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        await self._see("commit", ctx, batch=batch)
        ids = [item.id or f"{self.name}-{place}" for place, item in enumerate(batch.items)]
        return self.outcome or WriteOutcome([self.name], ids=ids, commit_token=self.token)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        await self._see("get", ctx, ids=ids)
        return [item for item in self.items if item.id in ids]

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        await self._see("list_page", ctx, where=where, page_size=page_size, page_token=page_token)
        return ItemPage(self.items)

    async def update(self, id: str, *, ctx: CtxLike, **changes: Any) -> MemoryItem:
        await self._see("update", ctx, id=id, **changes)
        return next(item for item in self.items if item.id == id)

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        await self._see("delete", ctx, ids=ids, where=where, dry_run=dry_run)
        return len(self.items)

    async def commit_token(self, *, ctx: CtxLike) -> str:
        await self._see("commit_token", ctx)
        return self.token

    async def close(self) -> None:
        await self._see("close", Ctx())

    async def _see(self, method: str, ctx: CtxLike, **given: Any) -> None:
        self.calls.append(Call(method, ctx, given))
        if method in self.until:
            await self.until[method].wait()
        if method in self.failures:
            raise self.failures[method]


class InMemoryVectors:
    """A `VectorPort` without vectors: similarity is the share of words that two texts have in common, in 0..1.

    Chunks without a common word are not found. Ties are broken by id.
    """

    def __init__(self) -> None:
        self._chunks: dict[tuple[Scope, str], Chunk] = {}

    async def upsert(self, chunks: Sequence[Chunk], *, scope: Scope) -> None:
        for chunk in chunks:
            self._chunks[scope, chunk.id] = chunk

    async def search(
        self, query: str, *, k: int, scope: Scope, where: dict[str, Any] | None
    ) -> list[tuple[float, Chunk]]:
        condition = parse_where(where)
        found: list[tuple[float, Chunk]] = []
        for (owner, _), chunk in self._chunks.items():
            score = _similarity(query, chunk.text)
            record = MemoryItem(chunk.text, "", metadata=chunk.metadata, id=chunk.id)
            if owner == scope and score > 0 and (condition is None or matches(condition, record)):
                found.append((score, chunk))
        found.sort(key=lambda pair: (-pair[0], pair[1].id))
        return found[:k]

    def chunks(self, scope: Scope) -> list[Chunk]:
        """What the scope holds, in the order in which the ids were first stored."""
        return [chunk for (owner, _), chunk in self._chunks.items() if owner == scope]


def _similarity(one: str, other: str) -> float:
    words, others = set(one.casefold().split()), set(other.casefold().split())
    return len(words & others) / len(words | others) if words | others else 0.0
