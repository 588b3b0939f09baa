"""Sources in order of preference, each asked only for what is still missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recalld import commit_tokens
from recalld.degradations import degradation_of
from recalld.errors import AllSourcesFailed
from recalld.item import MemoryItem
from recalld.lift import fit_k
from recalld.scope import CtxLike
from recalld.source import MemorySource, accepts_writes, check_query
from recalld.sources.member_records import MemberRecords
from recalld.sources.members import ask_member, find_wrong_request, label_members, name_failures, report
from recalld.store import MemoryStore, SearchHit, SearchQuery, SearchResult, WriteBatch, WriteOutcome
from recalld.where import parse_where


@dataclass(eq=False)
class SequentialMemory(MemberRecords):
    """Ask the sources in order and stop as soon as `k` items are there: a fast cache first, a costly search second. A
    `MemoryStore`.

    Items come in the order of the sources, whatever their scores. Nothing is deduplicated: a later source is asked for
    `k` minus what is there, so an item merged away afterwards would leave a gap that nobody is left to fill. Put the
    chain into a `CompositeMemory(sources=[chain])` to merge copies and live with the gap.

    Writes go to the first source only. Records are those of the first source that keeps any.
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
        """The items of a hybrid `search`. Raises AllSourcesFailed, with the sources' own exceptions."""
        collected = await self._collect(SearchQuery(query, k, where), ctx, short=True)
        if collected.failures and not collected.answers:
            raise AllSourcesFailed(collected.failures)
        return [hit.item for hit in collected.hits]

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        """Up to `k` hits, the first source's first, each explained as its source did. `fusion` is that of the only
        source that was asked, None of several.

        A source that fails, or takes more than its share of the time, is passed over: it is a degradation, and the
        context's observer is told (`memory.source_failed`). Raises AllSourcesFailed when every source failed, the error
        of a source that calls the request wrong, and InvalidFilter before any is asked.
        """
        collected = await self._collect(query, ctx)
        answers, failures = collected.answers, collected.failures
        if failures and not answers:
            raise name_failures(failures)
        degradations = [each for answer in answers.values() for each in answer.degradations]
        degradations += [degradation_of(label, error) for label, error in failures.items()]
        return SearchResult(
            collected.hits,
            degradations,
            commit_tokens.join({label: answer.commit_token for label, answer in answers.items()}),
            next(iter(answers.values())).fusion if len(answers) == 1 and not failures else None,
        )

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Write to the first source only; an empty write reaches none."""
        batch = list(items)
        if batch and self.sources:
            given = {"idempotency_key": idempotency_key} if idempotency_key else {}
            await self._stores()[0].write(batch, ctx=ctx, **given)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        """Commits to the first source only, and tells what that tells; an empty batch reaches none."""
        if not batch.items or not self.sources:
            return WriteOutcome()
        first = label_members(self._stores())[0]
        outcome = await first.store.commit(batch, ctx=ctx)
        return replace(outcome, commit_token=commit_tokens.join({first.label: outcome.commit_token}))

    async def _collect(self, query: SearchQuery, ctx: CtxLike, *, short: bool = False) -> _Collected:
        check_query(query.text, k=query.k)
        parse_where(query.where)
        collected = _Collected()
        seen = commit_tokens.split(query.min_commit_token)
        for member in label_members(self._stores()):
            missing = query.k - len(collected.hits)
            if missing <= 0:
                break
            asked = replace(query, k=missing, min_commit_token=seen.get(member.label, ""))

            async def search(store: MemoryStore, ctx: CtxLike, asked: SearchQuery = asked) -> SearchResult:
                return await store.search(replace(asked, k=fit_k(store, asked.k)) if short else asked, ctx=ctx)

            answer = await ask_member(member, search, ctx)
            if isinstance(answer, Exception):
                wrong = find_wrong_request([answer])
                if wrong is not None:
                    raise wrong
                collected.failures[member.label] = answer
                report(member.label, answer, ctx)
            else:
                collected.answers[member.label] = answer
                collected.hits = [*collected.hits, *answer.hits[:missing]]
        return collected


@dataclass
class _Collected:
    """What the sources that were asked gave, by label."""

    hits: Sequence[SearchHit] = ()
    answers: dict[str, SearchResult] = field(default_factory=dict[str, SearchResult])
    failures: dict[str, Exception] = field(default_factory=dict[str, Exception])
