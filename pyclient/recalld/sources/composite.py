"""Many sources as one, all asked at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from recalld import commit_tokens
from recalld.degradations import as_recalld_error, degradation_of
from recalld.errors import AllSourcesFailed, CompositeWriteError, MemoryWriteRefused, UnknownSource
from recalld.fusion import DedupeMode, check_dedupe
from recalld.identity import assign_ids
from recalld.item import MemoryItem
from recalld.lift import fit_k, keeps_records
from recalld.scope import CtxLike, scope_of
from recalld.source import MemorySource, Reranker, accepts_writes, check_query
from recalld.sources.member_records import MemberRecords
from recalld.sources.members import (
    ask_members,
    check_distinct,
    find_wrong_request,
    give_share,
    label_members,
    name_failures,
)
from recalld.sources.merging import merge_answers
from recalld.store import MemoryStore, SearchQuery, SearchResult, WriteBatch, WriteOutcome
from recalld.where import parse_where


@dataclass(eq=False)
class CompositeMemory(MemberRecords):
    """Fan out over sources: ask all at once, merge what is one fact, rerank, keep the best `k`. A `MemoryStore`.

    sources: any sources, composites too; each name once. reranker: puts the merged items on a common axis; by default
    `score_sort_rerank`. dedupe: see `DedupeMode`; None keeps every copy. Two sources that number their records each on
    their own want `"origin"` or `"content"`: by the default, `7` of one and `7` of the other are one fact. Merging
    comes before reranking, so a model that reads the items reads each fact once, and no fact takes two of the `k`
    places.

    Records are read in the first member that keeps any, updated in the first that also accepts writes, and deleted in
    all of those. records: the name of the one member to use instead.

    Raises InvalidField (a ValueError) for two sources of one name and for an unknown dedupe word, UnknownSource for
    `records` that names no source.
    """

    sources: list[MemorySource]
    reranker: Reranker | None = None
    name: str = "composite"
    dedupe: DedupeMode | None = "id"
    _: KW_ONLY
    records: str | None = None

    def __post_init__(self) -> None:
        self.sources = list(self.sources)
        check_distinct(source.name for source in self.sources)
        check_dedupe(self.dedupe)
        if self.records is not None:
            self._find_named(self.records)

    @property
    def accepts_writes(self) -> bool:
        """Whether a write lands anywhere: one member that can commit is enough, none (or no members) is not."""
        return any(accepts_writes(source) for source in self.sources)

    @property
    def keeps_records(self) -> bool:
        """Whether the member that `records` names does, or else any member."""
        return super().keeps_records if self.records is None else keeps_records(self._find_named(self.records))

    def select(self, names: Sequence[str]) -> CompositeMemory:
        """The same composite over the named members only, in its order; for no names, itself. Lanes and commit tokens
        are the same in every selection. Raises UnknownSource with the details `source`."""
        if not names:
            return self
        for name in names:
            self._find_named(name)
        chosen: list[MemorySource] = [store for store in self._stores() if store.name in names]
        return replace(self, sources=chosen, records=self.records if self.records in names else None)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The items of a hybrid `search`. Raises AllSourcesFailed, with the members' own exceptions."""
        asked = SearchQuery(query, k, where)
        answers, failures = await self._ask(asked, ctx, short=True)
        if failures and not answers:
            raise AllSourcesFailed(failures)
        hits = await merge_answers(asked, answers.values(), dedupe=self.dedupe, reranker=self.reranker)
        return [hit.item for hit in hits]

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        """The best `k` of what the members find; each member is asked for `k`. For an empty text the newest by create
        time, those without one after them, not reranked.

        A hit has the explanation of its first copy. `fusion` is that of a single member, None of several. A member that
        fails, or takes more than its share of the time, does not hide the others' answers: it is a degradation, and the
        context's observer is told (`memory.source_failed` with `source` and `error`).

        Raises AllSourcesFailed when every member failed, the error of a member that calls the request wrong, and
        InvalidFilter before any is asked. Cancelling the call cancels every member.
        """
        answers, failures = await self._ask(query, ctx)
        if failures and not answers:
            raise name_failures(failures)
        degradations = [each for answer in answers.values() for each in answer.degradations]
        degradations += [degradation_of(label, error) for label, error in failures.items()]
        return SearchResult(
            await merge_answers(query, answers.values(), dedupe=self.dedupe, reranker=self.reranker),
            degradations,
            commit_tokens.join({label: answer.commit_token for label, answer in answers.items()}),
            next(iter(answers.values())).fusion if len(answers) == 1 and not failures else None,
        )

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Write the items to every member at once; an empty write reaches none.

        Raises CompositeWriteError when a member failed. It files every member as accepted, refused (it returned, but
        has `accepts_writes` False: nothing was stored there) or failed, with the member's own exception. Where no
        member took the items and one calls the request wrong, that one's error is raised. Cancelling the call cancels
        every member.
        """
        batch = list(items)
        if not batch:
            return
        stores = self._distinct_stores()
        batch = self._identify(batch, stores.values(), ctx, idempotency_key)
        given = {"idempotency_key": idempotency_key} if idempotency_key else {}
        share = give_share(ctx)

        # As a coroutine of its own, so that a member that raises before it awaits is a failed member too.
        async def store_in(store: MemoryStore) -> WriteOutcome:
            await store.write(list(batch), ctx=share, **given)
            return WriteOutcome([store.name] if accepts_writes(store) else ())

        results = await asyncio.gather(*map(store_in, stores.values()), return_exceptions=True)
        split = _Split.of(stores, results)
        if split.failed:
            raise CompositeWriteError(accepted=list(split.accepted), failed=split.failed, refused=split.refused)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        """Commits the batch to every member at once and tells what became of it in each. Where several members keep
        records, an item has one id in all of them.

        A member that is a composite itself ends in one bucket: failed, with its own split as the error, when any of its
        members failed. Raises a member's error only where no member took the batch and that one calls the request
        wrong.
        """
        # Nothing may wait before the members' commits begin: they keep the order of the batch's lane.
        stores = self._distinct_stores()
        if not batch.items:
            return WriteOutcome()
        items = self._identify(batch.items, stores.values(), ctx, batch.idempotency_key)
        batch = replace(batch, items=tuple(items))
        share = give_share(ctx)

        async def commit_to(store: MemoryStore) -> WriteOutcome:
            return await store.commit(batch, ctx=share)

        results = await asyncio.gather(*map(commit_to, stores.values()), return_exceptions=True)
        split = _Split.of(stores, results)
        accepted = split.accepted
        return WriteOutcome(
            list(accepted),
            split.refused,
            {name: as_recalld_error(name, error) for name, error in split.failed.items()},
            next((outcome.ids for outcome in accepted.values() if outcome.ids), ()),
            commit_tokens.join({name: outcome.commit_token for name, outcome in accepted.items()}),
            bool(accepted) and all(outcome.replayed for outcome in accepted.values()),
        )

    # Inside.

    async def _ask(
        self, query: SearchQuery, ctx: CtxLike, *, short: bool = False
    ) -> tuple[Mapping[str, SearchResult], Mapping[str, Exception]]:
        check_query(query.text, k=query.k)
        parse_where(query.where)
        if query.k <= 0 or not self.sources:
            return {}, {}
        seen = commit_tokens.split(query.min_commit_token)

        async def search(store: MemoryStore, ctx: CtxLike) -> SearchResult:
            k = fit_k(store, query.k) if short else query.k
            asked = replace(query, k=k, min_commit_token=seen.get(store.name, ""))
            return await store.search(asked, ctx=ctx)

        return await ask_members(label_members(self._stores()), search, ctx)

    def _identify(
        self, items: Sequence[MemoryItem], stores: Iterable[MemoryStore], ctx: CtxLike, idempotency_key: str
    ) -> Sequence[MemoryItem]:
        """The items with an id each, where more than one member would give them one. Non-items pass here; members
        report their index."""
        if sum(keeps_records(store) for store in stores) < 2:
            return items
        given: Sequence[Any] = items
        if not all(isinstance(item, MemoryItem) for item in given):
            return items
        return assign_ids(items, scope=scope_of(ctx), idempotency_key=idempotency_key)

    def _distinct_stores(self) -> dict[str, MemoryStore]:
        """The members by name, as they are called before the write: one may learn another name on the way."""
        stores = self._stores()
        check_distinct(store.name for store in stores)
        return {store.name: store for store in stores}

    def _find_named(self, name: str) -> MemoryStore:
        for store in self._stores():
            if store.name == name:
                return store
        raise UnknownSource(f"no source is named {name!r}", details={"source": name})

    def _find_reader(self) -> MemoryStore:
        if self.records is None:
            return super()._find_reader()
        store = self._find_named(self.records)
        if not keeps_records(store):
            raise UnknownSource(f"source {self.records!r} keeps no records", details={"source": self.records})
        return store

    def _find_writers(self, *, changes: int) -> Sequence[MemoryStore]:
        reader = self._find_reader()
        if self.records is not None:
            return [reader]
        writers = [store for store in self._stores() if keeps_records(store) and accepts_writes(store)]
        if not writers:
            raise MemoryWriteRefused(source=self.name, n=changes)
        return writers


@dataclass(frozen=True, slots=True)
class _Split:
    """What became of a write: each member in exactly one bucket."""

    accepted: Mapping[str, WriteOutcome]
    refused: Sequence[str]
    failed: Mapping[str, BaseException]

    @classmethod
    def of(cls, names: Iterable[str], results: Iterable[WriteOutcome | BaseException]) -> _Split:
        """Raises the error of a member that calls the request wrong, where nobody took the items."""
        accepted: dict[str, WriteOutcome] = {}
        refused: list[str] = []
        failed: dict[str, BaseException] = {}
        for name, result in zip(names, results, strict=True):
            if isinstance(result, BaseException):
                failed[name] = result
            elif result.failed:
                failed[name] = CompositeWriteError(
                    accepted=result.accepted, failed=result.failed, refused=result.refused
                )
            elif result.accepted:
                accepted[name] = result
            else:
                refused.append(name)
        wrong = find_wrong_request(failed.values())
        if wrong is not None and not accepted and not refused:
            raise wrong
        return cls(accepted, refused, failed)
