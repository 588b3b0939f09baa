"""Compiles filters, each once for all parts of a search, and large ones off the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from recalld.filters import Filter, In, walk
from recalld_server.adapters.lancedb.filters import LIVE, compile_filter

#: From how many nodes and values on compiling takes milliseconds.
_LARGE = 200
#: How many filters are remembered: the two legs and the read of some searches at once.
_REMEMBERED = 32


class Conditions:
    """The SQL conditions of filters. The same large filter object is compiled once while it is remembered."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._large: OrderedDict[int, tuple[Filter, asyncio.Task[str]]] = OrderedDict()

    async def compile(self, where: Filter | None) -> str:
        """The condition of live memories that match. Raises InvalidFilter."""
        if where is None:
            return LIVE
        size = sum(len(node.values) if isinstance(node, In) else 1 for node in walk(where))
        if size < _LARGE:
            return compile_filter(where, self._source)
        # The filter is kept beside its condition, so its id is no other object's.
        known = self._large.get(id(where))
        if known is None:
            task = asyncio.create_task(asyncio.to_thread(compile_filter, where, self._source))
            known = self._large[id(where)] = where, task
            while len(self._large) > _REMEMBERED:
                self._large.popitem(last=False)
        return await asyncio.shield(known[1])
