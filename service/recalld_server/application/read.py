"""The read use cases: items by id, and the pages of a list."""

from __future__ import annotations

from collections.abc import Sequence

from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application.composition import Composition
from recalld_server.ports import Page


class ReadMemories:
    """Reads records of one source."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition

    async def get(self, scope: Scope, ids: Sequence[str], source: str) -> tuple[Sequence[MemoryItem], Sequence[str]]:
        """The items found and the ids that were not, both in request order; a repeated id counts once."""
        wanted = list(dict.fromkeys(ids))
        found = {item.id: item for item in await self._composition.readable(source).get(scope, wanted)}
        return [found[each] for each in wanted if each in found], [each for each in wanted if each not in found]

    async def list(self, scope: Scope, where: Filter | None, *, limit: int, cursor: str | None, source: str) -> Page:
        """One page, newest first."""
        return await self._composition.readable(source).list(scope, where, limit=limit, cursor=cursor)
