"""Memories as evidence in a prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from recalld.frozen import FrozenDict
from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import MemorySource
from recalld.where import check_operators, copy_where


def render_grounding(items: Sequence[MemoryItem]) -> str:
    """One line an item, `[source] content`. It leaves out nothing: decide first which items to admit."""
    return "\n".join(f"[{item.source}] {item.content}" for item in items)


def as_grounding_source(
    memory: MemorySource, *, k: int = 5, where: Mapping[str, Any] | None = None
) -> Callable[[CtxLike, str], Awaitable[Sequence[MemoryItem]]]:
    """A function of context and task that finds the `k` memories for the task, as items.

    Nothing is rendered yet, so a step in between can still drop an item for where it came from. `k` and `where` are
    fixed here, and an unknown operator raises InvalidFilter here. The query is the task, word for word: to rewrite
    queries, wrap the memory.
    """
    given = copy_where(where)
    check_operators(given)
    fixed = None if where is None else FrozenDict(given)

    async def ground(ctx: CtxLike, task: str) -> Sequence[MemoryItem]:
        return await memory.query(task, k=k, ctx=ctx, where=fixed)

    return ground


def as_grounder(
    memory: MemorySource,
    *,
    k: int = 5,
    where: Mapping[str, Any] | None = None,
    format: Callable[[list[MemoryItem]], str] | None = None,
) -> Callable[[CtxLike, str], Awaitable[str]]:
    """As `as_grounding_source`, as one text. format: makes it of the items; `render_grounding` by default."""
    find = as_grounding_source(memory, k=k, where=where)

    async def ground(ctx: CtxLike, task: str) -> str:
        return (format or render_grounding)(list(await find(ctx, task)))

    return ground
