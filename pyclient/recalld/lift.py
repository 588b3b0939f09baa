"""A plain source as a store: of a store it does what a source can do, and says what it cannot."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, cast

from recalld.degradations import Event, read_degradations, tell_left_out, tell_missing_mode
from recalld.errors import DeadlineExceeded, InvalidField, RecalldError, UnknownSource
from recalld.item import MemoryItem
from recalld.lanes import Lanes
from recalld.limits import LIMITS
from recalld.scope import CtxLike, listening, remaining_of
from recalld.source import MemorySource, accepts_writes
from recalld.store import (
    UNSET,
    AttributeChanges,
    ItemPage,
    MemoryStore,
    RetrievalMode,
    SearchHit,
    SearchQuery,
    SearchResult,
    Unset,
    Where,
    WriteBatch,
    WriteOutcome,
)
from recalld.store_base import StoreBase
from recalld.where import copy_where

_METHODS = ("search", "commit", "get", "list", "list_page", "update", "delete", "commit_token", "close")


def as_store(source: MemorySource) -> MemoryStore:
    """The source as a store. A `MemoryStore` comes back as it is; anything else is wrapped.

    A wrapped source answers `search` from its `query`: a hybrid one always, another only where the source declares it
    in `retrieval_modes`, a set of `RetrievalMode`; else the answer is empty and degraded. With exactly one declared the
    hits carry ranks of that leg. It stores a `commit` by its `write`; whether that is whole or not at all is the
    source's own affair. It has no records, no ids, no commit tokens, and forgets idempotency keys: a repeat is written
    again. Its lanes keep their order as long as one wrapping is used. `close` closes a source that can be closed.
    """
    if all(callable(getattr(source, name, None)) for name in _METHODS):
        return cast("MemoryStore", source)
    return LiftedSource(source)


def keeps_records(source: MemorySource) -> bool:
    """Whether memories of the source can be read and changed by id. A source that does not say keeps none."""
    return bool(getattr(source, "keeps_records", False))


def fit_k(store: MemoryStore, k: int) -> int:
    """The `k` of a short form as a search of the store takes it: one that keeps records has a limit."""
    return min(k, LIMITS.max_k) if keeps_records(store) else k


def read_modes(source: MemorySource) -> frozenset[RetrievalMode]:
    """The modes that the source says it can search by; none for one that does not say."""
    return frozenset(getattr(source, "retrieval_modes", None) or ())


class LiftedSource(StoreBase):
    """What `as_store` makes of a plain source."""

    keeps_records = False

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self._lanes = Lanes()

    def __repr__(self) -> str:
        return f"LiftedSource({self._source!r})"

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def accepts_writes(self) -> bool:
        return accepts_writes(self._source)

    @property
    def retrieval_modes(self) -> frozenset[RetrievalMode]:
        return read_modes(self._source)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        return await self._source.query(query, k=k, ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        await self._source.write(items, ctx=ctx)

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        """Raises InvalidField for a `min_commit_token`: nobody has one of this source."""
        if query.min_commit_token:
            raise InvalidField(violations={"min_commit_token": f"source {self.name!r} has no commit tokens"})
        return await search_by_query(self._source.query, query, ctx=ctx, name=self.name, modes=read_modes(self._source))

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        return await commit_by_write(self._source.write, batch, ctx=ctx, source=self._source, lanes=self._lanes)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        self._refuse_records()

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        self._refuse_records()

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
        self._refuse_records()

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        self._refuse_records()

    async def commit_token(self, *, ctx: CtxLike) -> str:
        return ""

    async def close(self) -> None:
        close = getattr(self._source, "close", None)
        closing = close() if callable(close) else None
        if inspect.isawaitable(closing):
            await closing

    def _refuse_records(self) -> NoReturn:
        raise UnknownSource(f"source {self.name!r} keeps no records", details={"source": self.name})


class Lifts:
    """Sources as stores, each lifted once, so that its lanes last from call to call."""

    def __init__(self) -> None:
        self._made: list[tuple[MemorySource, MemoryStore]] = []

    def of(self, sources: Sequence[MemorySource]) -> list[MemoryStore]:
        """The stores of these sources, in order; what an earlier call made is used again."""
        known = {id(source): store for source, store in self._made}
        self._made = [(source, known.get(id(source)) or as_store(source)) for source in sources]
        return [store for _, store in self._made]


async def search_by_query(
    find: Callable[..., Awaitable[list[MemoryItem]]],
    query: SearchQuery,
    *,
    ctx: CtxLike,
    name: str,
    modes: frozenset[RetrievalMode],
) -> SearchResult:
    """A search that the `query` of a source, `find`, answers; see `as_store`. Its `min_commit_token` is not looked at.

    What is observed meanwhile (a source that failed, files left out) becomes degradations. Raises DeadlineExceeded when
    the time of the context is over.
    """
    if query.text and query.mode != RetrievalMode.HYBRID and query.mode not in modes:
        return SearchResult(degradations=[tell_missing_mode(name, query.mode, ctx)])
    heard: list[Event] = []

    def hear(event: str, fields: Mapping[str, Any]) -> None:
        heard.append((event, fields))

    bound = asyncio.timeout(remaining_of(ctx))
    try:
        with listening(hear):
            async with bound:
                items = await find(query.text, k=query.k, ctx=ctx, where=_as_dict(query.where))
    except TimeoutError as error:
        if bound.expired() and not isinstance(error, RecalldError):
            raise DeadlineExceeded(f"source {name!r} did not answer in time", details={"stage": name}) from None
        raise
    degradations = read_degradations(heard)
    left_out = tell_left_out(name, heard, ctx)
    if left_out is not None:
        degradations.append(left_out)
    ranked_by = next(iter(modes)) if query.text and len(modes) == 1 else None
    hits = [_make_hit(item, rank, ranked_by) for rank, item in enumerate(items[: max(query.k, 0)], 1)]
    return SearchResult(hits, degradations)


def _as_dict(where: Where) -> dict[str, Any] | None:
    """The condition as a plain source takes it."""
    if where is None or isinstance(where, dict):
        return where
    return copy_where(where)


def _make_hit(item: MemoryItem, rank: int, ranked_by: RetrievalMode | None) -> SearchHit:
    if ranked_by is RetrievalMode.LEXICAL:
        return SearchHit(item, lexical_rank=rank, lexical_score=item.score)
    if ranked_by is RetrievalMode.SEMANTIC:
        return SearchHit(item, semantic_rank=rank, semantic_score=item.score)
    return SearchHit(item)


async def commit_by_write(
    write: Callable[..., Awaitable[None]], batch: WriteBatch, *, ctx: CtxLike, source: MemorySource, lanes: Lanes
) -> WriteOutcome:
    """A commit that the `write` of a source does; see `as_store`.

    The deadline of the context does not cut it: half of it may be stored by then.
    """
    with lanes.enter(batch.lane) as place:
        await place.comes()
        await write(list(batch.items), ctx=ctx)
    # A source that takes no writes returns as if nothing had happened; filing it under accepted would be a lie.
    return WriteOutcome([source.name]) if accepts_writes(source) else WriteOutcome(refused=[source.name])
