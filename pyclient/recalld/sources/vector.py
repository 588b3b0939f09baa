"""A vector store as a source."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from recalld.item import MemoryItem
from recalld.scope import CtxLike, Scope, scope_of
from recalld.source import check_query
from recalld.store import RetrievalMode
from recalld.where import copy_where, parse_where


@dataclass(frozen=True)
class Chunk:
    """One record of a vector store: its key, the text that was embedded, and the caller's fields."""

    id: str
    text: str
    metadata: dict[str, Any]


class VectorPort(Protocol):
    """What `VectorMemory` needs of a vector store. Scopes are apart: no call sees another scope's chunks."""

    async def upsert(self, chunks: Sequence[Chunk], *, scope: Scope) -> None:
        """Store the chunks, replacing those with the same id."""
        ...

    async def search(
        self, query: str, *, k: int, scope: Scope, where: dict[str, Any] | None
    ) -> list[tuple[float, Chunk]]:
        """At most `k` chunks whose metadata matches `where`, best first, with their similarity."""
        ...


@dataclass(eq=False)
class VectorMemory:
    """Find memories by meaning in a `VectorPort`, within `ctx.scope`.

    where: a filter for every query. The `where` of a call is laid over it key by key and wins, so a default can be
    widened or narrowed for one call. It does not touch writes. Items carry the chunk's id and score; what a chunk has
    no place for (`attributes`) is not stored. Raises InvalidFilter for a wrong filter, at construction or call.
    """

    vector: VectorPort
    where: dict[str, Any] | None = None
    name: str = "vector"

    retrieval_modes: ClassVar[frozenset[RetrievalMode]] = frozenset({RetrievalMode.SEMANTIC})

    def __post_init__(self) -> None:
        parse_where(self.where)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        merged = {**copy_where(self.where), **copy_where(where)}
        parse_where(merged)
        if k <= 0:
            return []
        found = await self.vector.search(query, k=k, scope=scope_of(ctx), where=merged or None)
        return [MemoryItem(chunk.text, self.name, score, chunk.metadata, id=chunk.id) for score, chunk in found[:k]]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Store each item as a chunk.

        The key is the item's id if the item came from this source, so writing back what was recalled updates the
        record; else `metadata["id"]`, by which a caller says which record to write; else a new one. The id of an item
        from elsewhere is a key of that other store: to follow it here could overwrite an unrelated record, because a
        composite hands every item to every source. `metadata["id"]` is not stored as metadata.
        """
        chunks = [self._chunk(item) for item in items]
        if chunks:
            await self.vector.upsert(chunks, scope=scope_of(ctx))

    def _chunk(self, item: MemoryItem) -> Chunk:
        metadata = dict(item.metadata)
        told = metadata.pop("id", None)
        own = item.id if item.source == self.name else None
        key = own or ("" if told is None else str(told)) or str(uuid.uuid4())
        return Chunk(key, item.content, metadata)
