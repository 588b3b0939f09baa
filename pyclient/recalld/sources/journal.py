"""A journal of what happened, read as memories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from recalld.filters import matches
from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import check_query
from recalld.store import RetrievalMode
from recalld.where import copy_where, parse_where

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Journal(Protocol[T_co]):
    """What `JournalMemory` reads: the entries, oldest first."""

    def entries(self) -> Sequence[T_co]: ...


class MutationJournal(Generic[T]):
    """A list of entries that only grows."""

    def __init__(self, entries: Iterable[T] = ()) -> None:
        self._entries = list(entries)

    def record(self, entry: T) -> None:
        """Add an entry, the newest."""
        self._entries.append(entry)

    def entries(self) -> Sequence[T]:
        """What is recorded so far, oldest first; later entries do not appear in it."""
        return tuple(self._entries)


@dataclass(eq=False)
class JournalMemory(Generic[T]):
    """The newest entries of a journal whose text holds the query, newest first and without a score.

    journal: a `MutationJournal` or anything with its `entries()`. render: gives an entry's text. The query is one piece
    of text, found whatever the case; an empty one finds every entry. An entry's `id` and `role`, if it has such
    attributes, become the item's id and `{"role": ...}`.

    `where={"role": "user"}` keeps the entries with that role and skips those without one; every other key is a
    condition on the item. A write is a no-op, because a journal's history is its author's: `accepts_writes` is False.
    """

    journal: Journal[T]
    render: Callable[[T], str]
    name: str = "journal"

    accepts_writes: ClassVar[bool] = False
    retrieval_modes: ClassVar[frozenset[RetrievalMode]] = frozenset({RetrievalMode.LEXICAL})

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        conditions = copy_where(where)
        # A role may be an object that only the caller can compare, an Enum for instance; operators go to the filter.
        by_role = "role" in conditions and not isinstance(conditions["role"], Mapping)
        role: Any = conditions.pop("role") if by_role else None
        condition = parse_where(conditions)
        if k <= 0:
            return []
        wanted = query.casefold()
        found: list[MemoryItem] = []
        for entry in reversed(self.journal.entries()):
            if by_role and not (hasattr(entry, "role") and getattr(entry, "role") == role):  # noqa: B009 - T has none
                continue
            item = self._item(entry)
            if wanted in item.content.casefold() and (condition is None or matches(condition, item)):
                found.append(item)
                if len(found) == k:
                    break
        return found

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Nothing: `journal.record()` is the only way in."""

    def _item(self, entry: T) -> MemoryItem:
        role: Any = getattr(entry, "role", None)
        key: Any = getattr(entry, "id", None)
        return MemoryItem(
            self.render(entry),
            self.name,
            metadata={} if role is None else {"role": role},
            id=None if key is None else str(key),
        )
