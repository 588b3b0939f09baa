"""Many sources as one, all asked at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recalld.errors import CompositeWriteError
from recalld.fusion import DedupeMode, check_dedupe, merge_duplicates, score_sort_rerank
from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import MemorySource, Reranker, accepts_writes
from recalld.sources.members import all_failed, ask, check_distinct, report
from recalld.where import parse_where


@dataclass(eq=False)
class CompositeMemory:
    """Fan out over sources: ask all at once, merge what is one fact, rerank, keep the best `k`.

    sources: any sources, composites too; each name once. reranker: puts the merged items on a common axis; by default
    `score_sort_rerank`. dedupe: see `DedupeMode`; None keeps every copy. Merging comes before reranking, so a model
    that reads the items reads each fact once, and no fact takes two of the `k` places.

    Raises InvalidField (a ValueError) for two sources of one name and for an unknown dedupe word.
    """

    sources: list[MemorySource]
    reranker: Reranker | None = None
    name: str = "composite"
    dedupe: DedupeMode | None = "id"

    def __post_init__(self) -> None:
        self.sources = list(self.sources)
        check_distinct(source.name for source in self.sources)
        check_dedupe(self.dedupe)

    @property
    def accepts_writes(self) -> bool:
        """Whether a write lands anywhere: one member that can commit is enough, none (or no members) is not."""
        return any(accepts_writes(source) for source in self.sources)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The best `k` of what the members find; each member is asked for `k`.

        A member that fails does not hide the others' answers: the context's observer is told
        (`memory.source_failed` with `source` and `error`). Raises AllSourcesFailed when every member failed and
        InvalidFilter before any is asked. Cancelling the call cancels every member.
        """
        parse_where(where)
        sources = self.sources
        if k <= 0 or not sources:
            return []
        # return_exceptions: gather then waits for every member, also when it is cancelled itself.
        answers = await asyncio.gather(
            *(ask(source, query, k=k, ctx=ctx, where=where) for source in sources), return_exceptions=True
        )
        found: list[MemoryItem] = []
        failures: dict[int, Exception] = {}
        for place, answer in enumerate(answers):
            if isinstance(answer, Exception):
                failures[place] = answer
                report(sources[place], answer, ctx)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.extend(answer)
        if len(failures) == len(sources):
            raise all_failed(sources, failures)
        merged = merge_duplicates(found, self.dedupe)
        if not merged:
            return []
        rerank = self.reranker or score_sort_rerank
        return (await rerank(query, merged, k=k))[:k]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Write the items to every member at once; an empty write reaches none.

        Raises CompositeWriteError when a member failed. It files every member as accepted, refused (it returned, but
        has `accepts_writes` False: nothing was stored there) or failed. Cancelling the call cancels every member.
        """
        batch = list(items)
        if not batch:
            return
        # Names are read before the write: a remote source may learn another one on the way.
        sources = {source.name: source for source in self.sources}
        check_distinct(source.name for source in self.sources)
        outcomes = await asyncio.gather(
            *(_store(source, list(batch), ctx) for source in sources.values()), return_exceptions=True
        )
        accepted: list[str] = []
        refused: list[str] = []
        failed: dict[str, BaseException] = {}
        for (name, source), outcome in zip(sources.items(), outcomes, strict=True):
            if outcome is not None:
                failed[name] = outcome
            elif accepts_writes(source):
                accepted.append(name)
            else:
                refused.append(name)
        if failed:
            raise CompositeWriteError(accepted=accepted, failed=failed, refused=refused)


async def _store(source: MemorySource, batch: list[MemoryItem], ctx: CtxLike) -> None:
    """As a coroutine of its own, so that a member that raises before it awaits is a failed member too."""
    await source.write(batch, ctx=ctx)
