"""Answers kept for a while, each for the tenant and user that asked."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

from recalld.decorators.scoped import require_scope
from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.item import MemoryItem
from recalld.scope import CtxLike, Scope, listening, scope_of, user_of
from recalld.source import check_query
from recalld.store import ItemPage, SearchQuery, SearchResult, Where, WriteBatch, WriteOutcome
from recalld.where import copy_where

Answer = TypeVar("Answer")


class _Key(NamedTuple):
    scope: Scope
    user_id: str | None
    asked: Hashable


class _Entry(NamedTuple):
    asked_at: float
    answer: Any


@dataclass(eq=False)
class _Reading:
    """A call that is under way; `spoiled` once a change of its scope ended meanwhile, or a part of the answer is
    missing."""

    scope: Scope
    spoiled: bool = False

    def hear(self, event: str, fields: Mapping[str, Any]) -> None:
        self.spoiled = self.spoiled or event in ("memory.source_degraded", "memory.source_failed")


@dataclass(eq=False)
class CachedMemory(WrapperMemory):
    """Answer a repeated query or search from memory, for at most `ttl_seconds` after the wrapped source was asked.

    An answer belongs to the scope, the user and all that its call asked for, so no tenant sees another's. A `where` is
    the same when its values are, of the same types; the order of keys does not matter. An answer that lacks a part (a
    source failed, a leg was late) is given and not kept. A change through the cache drops the entries of its scope,
    also when it fails, and so does not keep what a call under way is about to bring back. Records asked for by id or
    listed are never kept. max_entries: when full, the oldest entry goes. strict_scope: raise ScopeRequired for a call
    whose scope is incomplete, instead of keeping its answers under that incomplete scope.

    A hit does not reach the wrapped source, nor a guard inside it: put `ScopedMemory` around the cache. Not for use by
    several threads.
    """

    ttl_seconds: float = 60.0
    max_entries: int = 256
    name: str = MIRRORED
    strict_scope: bool = False
    _entries: dict[_Key, _Entry] = field(default_factory=dict[_Key, _Entry], init=False, repr=False)
    _readings: set[_Reading] = field(default_factory=set[_Reading], init=False, repr=False)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        ask, conditions = super().query, copy_where(where)

        async def find() -> tuple[MemoryItem, ...]:
            return tuple(await ask(query, k=k, ctx=ctx, where=where))

        return list(await self._recall(("query", query, k, conditions), find, k=k, ctx=ctx))

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        check_query(query.text, k=query.k)
        ask, conditions = super().search, copy_where(query.where)

        async def find() -> SearchResult:
            result = await ask(query, ctx=ctx)
            return replace(result, hits=tuple(result.hits), degradations=tuple(result.degradations))

        return await self._recall(replace(query, where=conditions), find, k=query.k, ctx=ctx)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        with self._changing(ctx):
            await super().write(items, ctx=ctx, idempotency_key=idempotency_key)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        with self._changing(ctx):
            return await super().commit(batch, ctx=ctx)

    async def update(self, id: str, *, ctx: CtxLike, **changes: Any) -> MemoryItem:
        with self._changing(ctx):
            return await super().update(id, ctx=ctx, **changes)

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        with self._changing(ctx):
            return await super().delete(ids, ctx=ctx, where=where, dry_run=dry_run)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        self._check_scope(ctx)
        return await super().get(ids, ctx=ctx)

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        self._check_scope(ctx)
        return await super().list_page(ctx=ctx, where=where, page_size=page_size, page_token=page_token)

    async def close(self) -> None:
        self._entries.clear()
        await super().close()

    async def _recall(self, asked: Any, find: Callable[[], Awaitable[Answer]], *, k: int, ctx: CtxLike) -> Answer:
        self._check_scope(ctx)
        if k <= 0:  # nothing to keep, but a guard within must still have its say
            return await find()
        scope = scope_of(ctx)
        now = time.monotonic()
        try:
            key = _Key(scope, user_of(ctx), _make_key(asked))
            entry = self._entries.get(key)
        except TypeError:  # a value of `where` that cannot be a key: ask each time
            return await find()
        if entry is not None and now - entry.asked_at < self.ttl_seconds:
            return entry.answer
        reading = _Reading(scope)
        self._readings.add(reading)
        try:
            with listening(reading.hear):
                answer = await find()
        finally:
            self._readings.discard(reading)
        degraded = isinstance(answer, SearchResult) and answer.degradations
        if not reading.spoiled and not degraded:
            self._keep(key, _Entry(now, answer))
        return answer

    def _check_scope(self, ctx: CtxLike) -> None:
        if self.strict_scope:
            require_scope(ctx)

    @contextmanager
    def _changing(self, ctx: CtxLike) -> Generator[None]:
        self._check_scope(ctx)
        try:
            yield
        finally:  # a failed change may have stored something
            self._drop(scope_of(ctx))

    def _keep(self, key: _Key, entry: _Entry) -> None:
        self._entries.pop(key, None)  # an entry that is renewed is the youngest, and makes room for itself
        while self._entries and len(self._entries) >= self.max_entries:
            del self._entries[next(iter(self._entries))]
        if self.max_entries > 0 and self.ttl_seconds > 0:
            self._entries[key] = entry

    def _drop(self, scope: Scope) -> None:
        for key in [key for key in self._entries if key.scope == scope]:
            del self._entries[key]
        for reading in self._readings:
            reading.spoiled = reading.spoiled or reading.scope == scope


def _make_key(value: Any) -> Hashable:
    """A key that is equal for equal values of equal types: `1`, `1.0` and `True` stay apart, at every depth."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return dict, frozenset((_make_key(key), _make_key(member)) for key, member in pairs)
    if isinstance(value, (list, tuple)):
        return list, tuple(_make_key(member) for member in cast("Iterable[Any]", value))
    if isinstance(value, AbstractSet):
        return set, frozenset(_make_key(member) for member in cast("Iterable[Any]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(_make_key(getattr(value, each.name)) for each in fields(value))
    hash(value)  # TypeError for what cannot be a key
    return type(cast("object", value)), value
