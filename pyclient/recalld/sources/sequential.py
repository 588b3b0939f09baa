"""Sources in order of preference, each asked only for what is still missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import MemorySource, accepts_writes
from recalld.sources.members import all_failed, ask, report
from recalld.where import parse_where


@dataclass(eq=False)
class SequentialMemory:
    """Ask the sources in order and stop as soon as `k` items are there: a fast cache first, a costly search second.

    Items come in the order of the sources, whatever their scores. Nothing is deduplicated: a later source is asked for
    `k` minus what is there, so an item merged away afterwards would leave a gap that nobody is left to fill. Put the
    chain into a `CompositeMemory(sources=[chain])` to merge copies and live with the gap.
    """

    sources: list[MemorySource]
    name: str = "sequential"

    def __post_init__(self) -> None:
        self.sources = list(self.sources)

    @property
    def accepts_writes(self) -> bool:
        """Whether the first source does, which is the only one that writes go to; False without sources."""
        return bool(self.sources) and accepts_writes(self.sources[0])

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """Up to `k` items, the first source's first.

        A source that fails is passed over and the context's observer is told (`memory.source_failed`). Raises
        AllSourcesFailed when every source failed and InvalidFilter before any is asked.
        """
        parse_where(where)
        collected: list[MemoryItem] = []
        failures: dict[int, Exception] = {}
        for place, source in enumerate(self.sources):
            missing = k - len(collected)
            if missing <= 0:
                break
            answer = await ask(source, query, k=missing, ctx=ctx, where=where)
            if isinstance(answer, Exception):
                failures[place] = answer
                report(source, answer, ctx)
            else:
                collected.extend(answer[:missing])
        if failures and len(failures) == len(self.sources):
            raise all_failed(self.sources, failures)
        return collected

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Write to the first source only; an empty write reaches none."""
        batch = list(items)
        if batch and self.sources:
            await self.sources[0].write(batch, ctx=ctx)
