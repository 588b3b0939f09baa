"""The one wrapper that delegates everything; every decorator is this plus one opinion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Protocol

from recalld.item import MemoryItem
from recalld.lanes import Lanes
from recalld.lift import Lifts, commit_by_write, fit_k, keeps_records, read_modes, search_by_query
from recalld.scope import CtxLike
from recalld.source import MemorySource, accepts_writes, check_query
from recalld.store import (
    UNSET,
    AttributeChanges,
    ItemPage,
    MemoryStore,
    RetrievalMode,
    SearchQuery,
    SearchResult,
    Unset,
    Where,
    WriteBatch,
    WriteOutcome,
)
from recalld.store_base import StoreBase


class _Wrapping(Protocol):
    inner: MemorySource


class MirroredName:
    """The field `name` of a decorator: the explicit name, or else what the wrapped source is called now.

    Not copied at construction, because a remote source may learn its name later. It is the label of the decorator
    only; items keep the stamp of the wrapped source.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_{name}"

    def __get__(self, wrapper: _Wrapping | None, owner: type) -> str:
        if wrapper is None:
            return ""  # the default of the dataclass field
        own: str = vars(wrapper).get(self._key, "")
        return own or wrapper.inner.name

    def __set__(self, wrapper: _Wrapping, name: str) -> None:
        vars(wrapper)[self._key] = name


#: The default of a decorator's `name: str`. `Any`, because type checkers see no `str` in a descriptor.
MIRRORED: Any = MirroredName()


@dataclass(eq=False)
class WrapperMemory(StoreBase):
    """A source that hands everything to another one, and is a `MemoryStore` as far as that one is. Subclass it and
    change what you have an opinion about.

    Where a subclass overrides only one of `query` and `search`, that one answers the other too, and so it is with
    `write` and `commit`. So what stands in the way of a short form stands in the way of every search and every write.
    A `search` that `query` answers has no ranks of its own, a `commit` by `write` no ids and no idempotency key. `get`,
    `list_page`, `update` and `delete` go through unless they are overridden.

    A dataclass among the subclasses takes an explicit name with `name: str = MIRRORED`.
    """

    inner: MemorySource

    # Not a field here: it would come before the fields of every subclass.
    name = MIRRORED

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        for short, whole, answer in (
            ("query", "search", _search_by),
            ("search", "query", _query_by),
            ("write", "commit", _commit_by),
            ("commit", "write", _write_by),
        ):
            if short in own and whole not in own:
                setattr(cls, whole, answer(own[short]))

    @property
    def accepts_writes(self) -> bool:
        """Whether the wrapped source accepts writes."""
        return accepts_writes(self.inner)

    @property
    def keeps_records(self) -> bool:
        """Whether the wrapped source keeps records."""
        return keeps_records(self.inner)

    @property
    def retrieval_modes(self) -> frozenset[RetrievalMode]:
        """The modes that the wrapped source declares; none for a store, which says at each search."""
        return read_modes(self.inner)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        return await self.inner.query(query, k=k, ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        given = {"idempotency_key": idempotency_key} if idempotency_key else {}
        await self._store.write(items, ctx=ctx, **given)

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        return await self._store.search(query, ctx=ctx)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        return await self._store.commit(batch, ctx=ctx)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        return await self._store.get(ids, ctx=ctx)

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        return await self._store.list_page(ctx=ctx, where=where, page_size=page_size, page_token=page_token)

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
        return await self._store.update(
            id,
            ctx=ctx,
            content=content,
            metadata=metadata,
            metadata_changes=metadata_changes,
            attributes=attributes,
            if_revision=if_revision,
        )

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        return await self._store.delete(ids, ctx=ctx, where=where, dry_run=dry_run)

    async def commit_token(self, *, ctx: CtxLike) -> str:
        return await self._store.commit_token(ctx=ctx)

    async def close(self) -> None:
        await self._store.close()

    @property
    def _store(self) -> MemoryStore:
        """The wrapped source as a store, the same one from call to call."""
        return self._lifts.of([self.inner])[0]

    @cached_property
    def _lifts(self) -> Lifts:
        return Lifts()

    @cached_property
    def _lanes(self) -> Lanes:
        return Lanes()


# What a subclass overrides is called by the class's own function and not by the method's name: a subclass of it that
# overrides the other half would otherwise call itself.


def _search_by(query: Callable[..., Awaitable[list[MemoryItem]]]) -> Any:
    async def search(self: WrapperMemory, asked: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        if asked.min_commit_token:
            # `query` cannot ask for a state; the wrapped store raises while it has not reached it.
            await self._store.search(SearchQuery("", 1, min_commit_token=asked.min_commit_token), ctx=ctx)  # pyright: ignore[reportPrivateUsage]
        return await search_by_query(partial(query, self), asked, ctx=ctx, name=self.name, modes=self.retrieval_modes)

    return search


def _query_by(search: Callable[..., Awaitable[SearchResult]]) -> Any:
    async def query(
        self: WrapperMemory, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None
    ) -> list[MemoryItem]:
        check_query(query, k=k)
        return (await search(self, SearchQuery(query, fit_k(self, k), where), ctx=ctx)).items

    return query


def _commit_by(write: Callable[..., Awaitable[None]]) -> Any:
    async def commit(self: WrapperMemory, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        return await commit_by_write(partial(write, self), batch, ctx=ctx, source=self, lanes=self._lanes)  # pyright: ignore[reportPrivateUsage]

    return commit


def _write_by(commit: Callable[..., Awaitable[WriteOutcome]]) -> Any:
    async def write(
        self: WrapperMemory, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = ""
    ) -> None:
        batch = list(items)
        if batch:
            (await commit(self, WriteBatch(batch, idempotency_key), ctx=ctx)).raise_for_failures()

    return write
