"""Decides what is worked out off the event loop: what may hold it for more than a millisecond or so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from recalld.filters import Filter, In, walk

Found = TypeVar("Found")

#: From how many rows, or bytes in them, on their conversion leaves the event loop.
_MANY_ROWS, _MANY_BYTES = 64, 65_536
#: From how many conditions and values on a filter is worked out elsewhere: to compile it, or to ask it of rows.
LARGE_FILTER = 200


async def convert(rows: Any, function: Callable[[Any], Found], *, where: Filter | None = None) -> Found:
    """What the function makes of an Arrow table, under a filter that it asks of every row."""
    if rows.num_rows > _MANY_ROWS or rows.nbytes > _MANY_BYTES or weigh(where) > LARGE_FILTER:
        return await asyncio.to_thread(function, rows)
    return function(rows)


def weigh(where: Filter | None) -> int:
    """How many conditions and values a filter has."""
    if where is None:
        return 0
    return sum(len(node.values) if isinstance(node, In) else 1 for node in walk(where))
