"""Compiles filters, each once for all parts of a search, and large ones off the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from recalld.filters import Filter
from recalld_server.adapters.lancedb.filters import LIVE, compile_filter
from recalld_server.adapters.lancedb.offload import LARGE_FILTER, weigh

#: How many conditions and values of filters are remembered together, beyond the last filter: those of the two legs and
#: the read of some searches at once. Each takes some hundred bytes.
_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class _Compiled:
    # The filter is kept beside its condition, so that its id is no other object's.
    where: Filter
    weight: int
    condition: asyncio.Task[str]


class Conditions:
    """The SQL conditions of filters. The same large filter object is compiled once while it is remembered."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._large: OrderedDict[int, _Compiled] = OrderedDict()

    async def compile(self, where: Filter | None) -> str:
        """The condition of live memories that match. Raises InvalidFilter."""
        if where is None:
            return LIVE
        known = self._large.get(id(where))
        if known is None:
            weight = weigh(where)
            if weight < LARGE_FILTER:
                return compile_filter(where, self._source)
            known = self._remember(where, weight)
        return await asyncio.shield(known.condition)

    def _remember(self, where: Filter, weight: int) -> _Compiled:
        task = asyncio.create_task(asyncio.to_thread(compile_filter, where, self._source))
        known = self._large[id(where)] = _Compiled(where, weight, task)
        while len(self._large) > 1 and sum(each.weight for each in self._large.values()) > _REMEMBERED:
            self._large.popitem(last=False)
        return known
