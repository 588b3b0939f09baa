"""Answers kept for a while, each for the tenant and user that asked."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from recalld.decorators.scoped import require_scope
from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.item import MemoryItem
from recalld.scope import CtxLike, Scope, scope_of, user_of


class _Key(NamedTuple):
    scope: Scope
    user_id: str | None
    query: str
    k: int
    where: Hashable


class _Entry(NamedTuple):
    asked_at: float
    items: tuple[MemoryItem, ...]


@dataclass(eq=False)
class _Reading:
    """A query that is under way; `overtaken` once a write of its scope ended meanwhile."""

    scope: Scope
    overtaken: bool = False


@dataclass(eq=False)
class CachedMemory(WrapperMemory):
    """Answer a repeated query from memory, for at most `ttl_seconds` after the wrapped source was asked.

    An answer belongs to the scope, the user, the query, `k` and `where` of its call, so no tenant sees another's.
    A `where` is the same when its values are, of the same types; the order of keys does not matter. A write through
    the cache drops the entries of its scope, also when it fails, and so does not keep what a query under way is about
    to bring back. max_entries: when full, the oldest entry goes. strict_scope: raise ScopeRequired for a call whose
    scope is incomplete, instead of keeping its answers under that incomplete scope.

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
        if self.strict_scope:
            require_scope(ctx)
        if k <= 0:  # nothing to keep, but a guard within must still have its say
            return await self.inner.query(query, k=k, ctx=ctx, where=where)
        scope = scope_of(ctx)
        now = time.monotonic()
        try:
            key = _Key(scope, user_of(ctx), query, k, _canonical(where or {}))
            entry = self._entries.get(key)
        except TypeError:  # a value of `where` that cannot be a key: ask each time
            return await self.inner.query(query, k=k, ctx=ctx, where=where)
        if entry is not None and now - entry.asked_at < self.ttl_seconds:
            return list(entry.items)
        reading = _Reading(scope)
        self._readings.add(reading)
        try:
            items = tuple(await self.inner.query(query, k=k, ctx=ctx, where=where))
        finally:
            self._readings.discard(reading)
        if not reading.overtaken:
            self._keep(key, _Entry(now, items))
        return list(items)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        if self.strict_scope:
            require_scope(ctx)
        try:
            await self.inner.write(items, ctx=ctx)
        finally:  # a failed write may have stored something
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
            reading.overtaken = reading.overtaken or reading.scope == scope


def _canonical(value: Any) -> Hashable:
    """A key that is equal for equal values of equal types: `1`, `1.0` and `True` stay apart, at every depth."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return dict, frozenset((_canonical(key), _canonical(member)) for key, member in pairs)
    if isinstance(value, (list, tuple)):
        return list, tuple(_canonical(member) for member in cast("Iterable[Any]", value))
    if isinstance(value, AbstractSet):
        return set, frozenset(_canonical(member) for member in cast("Iterable[Any]", value))
    hash(value)  # TypeError for what cannot be a key
    return type(cast("object", value)), value
