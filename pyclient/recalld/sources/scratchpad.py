"""The scratchpad of a running agent, read as memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from recalld.filters import matches
from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import check_query
from recalld.store import RetrievalMode
from recalld.where import parse_where


class WorkingContext(Protocol):
    """What `ScratchpadMemory` reads."""

    @property
    def scratchpad(self) -> Mapping[str, Any]: ...


@dataclass(eq=False)
class ScratchpadMemory:
    """The entries whose key or value holds the query, in the order of the scratchpad and without a score.

    context: has the scratchpad as an attribute, read at each call. A value's text is `str(value)`, which is also the
    item's content; `{"key": ...}` names the entry. The query is one piece of text, found whatever the case; an empty
    one finds every entry. Read-only: who owns the scratchpad writes to it.
    """

    context: WorkingContext
    name: str = "scratchpad"

    accepts_writes: ClassVar[bool] = False
    retrieval_modes: ClassVar[frozenset[RetrievalMode]] = frozenset({RetrievalMode.LEXICAL})

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        condition = parse_where(where)
        if k <= 0:
            return []
        wanted = query.casefold()
        found: list[MemoryItem] = []
        for key, value in self.context.scratchpad.items():
            item = MemoryItem(str(value), self.name, metadata={"key": key})
            hit = wanted in str(key).casefold() or wanted in item.content.casefold()
            if hit and (condition is None or matches(condition, item)):
                found.append(item)
        return found[:k]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Nothing."""
