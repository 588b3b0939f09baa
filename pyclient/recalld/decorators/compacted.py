"""Items made shorter before they reach a prompt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, Protocol

from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.errors import InvalidField
from recalld.item import MemoryItem
from recalld.scope import CtxLike


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
    """Shrink the content of each item; everything else of it stays.

    compactor: gets each item as one message of role `user`. Several messages in return are joined by a blank line; none
    drops the item. Items are compacted at the same time. max_items: the most items to return, None for all; no more
    are compacted than it takes to fill it. Raises InvalidField for a negative one. A compactor's error is the query's.
    """

    compactor: Compactor
    max_items: int | None = None
    name: str = MIRRORED

    def __post_init__(self) -> None:
        if self.max_items is not None and self.max_items < 0:
            raise InvalidField(f"max_items is 0 or more, or None, not {self.max_items}")

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        waiting = await self.inner.query(query, k=k, ctx=ctx, where=where)
        wanted = len(waiting) if self.max_items is None else self.max_items
        kept: list[MemoryItem] = []
        while waiting and len(kept) < wanted:
            missing = wanted - len(kept)
            wave, waiting = waiting[:missing], waiting[missing:]
            kept.extend(await self._compact_all(wave))
        return kept

    async def _compact_all(self, items: list[MemoryItem]) -> list[MemoryItem]:
        outcomes = await asyncio.gather(*(self._compact(item) for item in items), return_exceptions=True)
        compacted: list[MemoryItem] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is not None:
                compacted.append(outcome)
        return compacted

    async def _compact(self, item: MemoryItem) -> MemoryItem | None:
        messages = await self.compactor.compact([Message("user", item.content)])
        if not messages:
            return None
        return replace(item, content="\n\n".join(message.content for message in messages))
