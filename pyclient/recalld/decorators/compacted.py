"""Items made shorter before they reach a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.errors import InvalidField
from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.store import SearchQuery, SearchResult


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str
    content: str


class Compactor(Protocol):
    """Makes a conversation shorter."""

    async def compact(self, messages: list[Message]) -> list[Message]: ...


@dataclass(eq=False)
class CompactedMemory(WrapperMemory):
    """Shrink the content of each item that a search finds; everything else of it stays.

    compactor: gets each item as one message of role `user`. Several messages in return are joined by a blank line; none
    drops the item. Items are compacted at the same time. max_items: the most items to return, None for all; no more
    are compacted than it takes to fill it. Raises InvalidField for a negative one. A compactor's error is the query's.

    Records that are asked for by id or listed come whole: they are read to be changed, moved or looked at, and what is
    written back shortened would be lost.
    """

    compactor: Compactor
    max_items: int | None = None
    name: str = MIRRORED

    def __post_init__(self) -> None:
        if self.max_items is not None and self.max_items < 0:
            raise InvalidField(f"max_items is 0 or more, or None, not {self.max_items}")

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        found = await super().query(query, k=k, ctx=ctx, where=where)
        return [item for _, item in await self._shrink(found)]

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        result = await super().search(query, ctx=ctx)
        kept = await self._shrink(result.items)
        return replace(result, hits=[replace(result.hits[place], item=item) for place, item in kept])

    async def _shrink(self, items: Sequence[MemoryItem]) -> list[tuple[int, MemoryItem]]:
        """What is left of the items, each with its place among them."""
        waiting = list(enumerate(items))
        wanted = len(waiting) if self.max_items is None else self.max_items
        kept: list[tuple[int, MemoryItem]] = []
        while waiting and len(kept) < wanted:
            missing = wanted - len(kept)
            wave, waiting = waiting[:missing], waiting[missing:]
            shrunk = await self._compact_all([item for _, item in wave])
            kept.extend((place, item) for (place, _), item in zip(wave, shrunk, strict=True) if item is not None)
        return kept

    async def _compact_all(self, items: list[MemoryItem]) -> list[MemoryItem | None]:
        outcomes = await asyncio.gather(*(self._compact(item) for item in items), return_exceptions=True)
        compacted: list[MemoryItem | None] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            compacted.append(outcome)
        return compacted

    async def _compact(self, item: MemoryItem) -> MemoryItem | None:
        messages = await self.compactor.compact([Message("user", item.content)])
        if not messages:
            return None
        return replace(item, content="\n\n".join(message.content for message in messages))
