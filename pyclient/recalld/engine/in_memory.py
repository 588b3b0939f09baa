"""A `RecordStore` that lives in this object: the reference for others, and enough for tests and small tools."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from operator import mul

from recalld.engine.coverage import LexicalQuery, coverage
from recalld.engine.ports import HeadMoved, Lexical, NewestItems, Scored
from recalld.engine.records import Commit, Head, Receipt, Record, Snapshot, Vector
from recalld.engine.word_index import WordIndex
from recalld.filters import Filter, matches
from recalld.item import MemoryItem
from recalld.scope import Scope

#: From how many receipts of a scope on the old ones are looked for.
_MANY_RECEIPTS = 1024


@dataclass(slots=True)
class _ScopeRecords:
    head: Head = field(default_factory=Head)
    records: dict[str, Record] = field(default_factory=dict[str, Record])
    receipts: dict[str, Receipt] = field(default_factory=dict[str, Receipt])
    words: WordIndex = field(default_factory=WordIndex)


class InMemoryRecords:
    """Keeps records in dicts. A turn locks nobody out: who comes second sees a moved head.

    receipt_retention: how long the repeat of an idempotency key is recognised, at least.
    """

    def __init__(self, name: str = "memory", *, receipt_retention: timedelta = timedelta(days=7)) -> None:
        self._name = name
        self._receipt_retention = receipt_retention
        self._scopes: dict[Scope, _ScopeRecords] = {}
        self._committing = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def turn(self, scope: Scope) -> AsyncGenerator[InMemoryTurn]:
        yield InMemoryTurn(self, scope)

    async def head(self, scope: Scope) -> Head:
        return self._of(scope).head

    async def receipt(self, scope: Scope, key: str) -> Receipt | None:
        return self._of(scope).receipts.get(key)

    async def lexical(self, scope: Scope, text: str, where: Filter | None, *, limit: int) -> Lexical:
        query = LexicalQuery.of(text)
        held = self._of(scope)
        if not query.words or limit <= 0:
            return Lexical()
        scores = {id: score for id, score in held.words.score(query.words).items() if self._meets(held, id, where)}
        best = _best(scores, limit)
        if not best:
            return Lexical()
        anchored = held.words.score(query.anchors) if query.anchors else {}
        covered = coverage(
            query,
            rows=len(held.words),
            top_score=best[0].score,
            found=len(scores),
            anchored=sum(self._meets(held, id, where) for id in anchored),
        )
        return Lexical(best, covered)

    async def semantic(self, scope: Scope, vector: Vector, where: Filter | None, *, limit: int) -> Sequence[Scored]:
        held = self._of(scope)
        scores = {
            record.id: float(sum(map(mul, vector, record.body.vector)))
            for record in held.records.values()
            if record.body is not None and record.body.vector is not None and self._meets(held, record.id, where)
        }
        return _best(scores, limit)

    async def read(self, scope: Scope, ids: Sequence[str], where: Filter | None) -> Sequence[MemoryItem]:
        held = self._of(scope)
        return [held.records[id].item(self._name) for id in dict.fromkeys(ids) if self._meets(held, id, where)]

    async def newest(self, scope: Scope, where: Filter | None, *, limit: int, before: int | None = None) -> NewestItems:
        held = self._of(scope)
        below = math.inf if before is None else before
        found = [
            record
            for record in held.records.values()
            if record.sequence < below and self._meets(held, record.id, where)
        ]
        found.sort(key=lambda record: -record.sequence)
        # One record beyond the limit says whether the list goes on.
        more = 0 < limit < len(found)
        page = found[: max(limit, 0)]
        return NewestItems([record.item(self._name) for record in page], page[-1].sequence if more else None)

    async def count(self, scope: Scope, where: Filter | None) -> int:
        held = self._of(scope)
        return sum(self._meets(held, id, where) for id in held.records)

    async def close(self) -> None:
        return None

    def snapshot(self, scope: Scope, ids: Collection[str], receipts: Collection[str]) -> Snapshot:
        """What a turn reads; always whole."""
        held = self._of(scope)
        return Snapshot(
            held.head,
            {id: held.records[id] for id in ids if id in held.records},
            {key: held.receipts[key] for key in receipts if key in held.receipts},
        )

    def matching(self, scope: Scope, where: Filter, limit: int) -> Sequence[Record]:
        """Live records that match."""
        held = self._of(scope)
        return [record for id, record in held.records.items() if self._meets(held, id, where)][:limit]

    def commit(self, scope: Scope, commit: Commit) -> None:
        """All of the commit at once. Raises HeadMoved."""
        with self._committing:
            held = self._scopes.setdefault(scope, _ScopeRecords())
            if held.head != commit.base:
                raise HeadMoved("another commit was first")
            for record in commit.records.values():
                held.records[record.id] = record
                held.words.put(record.id, "" if record.body is None else record.body.content)
            held.receipts.update(commit.receipts)
            if len(held.receipts) > _MANY_RECEIPTS:
                self._prune(held)
            held.head = commit.head

    def _prune(self, held: _ScopeRecords) -> None:
        newest = max(receipt.time for receipt in held.receipts.values())
        oldest = newest - self._receipt_retention
        held.receipts = {key: receipt for key, receipt in held.receipts.items() if receipt.time >= oldest}

    def _of(self, scope: Scope) -> _ScopeRecords:
        return self._scopes.get(scope) or _ScopeRecords()

    def _meets(self, held: _ScopeRecords, id: str, where: Filter | None) -> bool:
        record = held.records.get(id)
        if record is None or not record.live:
            return False
        return where is None or matches(where, record.item(self._name))


class InMemoryTurn:
    """A `Turn` over `InMemoryRecords`."""

    def __init__(self, records: InMemoryRecords, scope: Scope) -> None:
        self._records = records
        self._scope = scope

    async def snapshot(
        self, ids: Collection[str] = (), *, whole: Collection[str] = (), receipts: Collection[str] = ()
    ) -> Snapshot:
        return self._records.snapshot(self._scope, [*ids, *whole], receipts)

    async def matching(self, where: Filter, *, limit: int) -> Sequence[Record]:
        return self._records.matching(self._scope, where, limit)

    async def commit(self, commit: Commit) -> None:
        self._records.commit(self._scope, commit)


def _best(scores: dict[str, float], limit: int) -> Sequence[Scored]:
    ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Scored(id, score) for id, score in ranked[: max(limit, 0)]]
