"""What every record store keeps to, as tests that a record store of your own can run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from recalld.engine.changes import bury
from recalld.engine.ports import HeadMoved, RecordStore
from recalld.engine.records import Body, Commit, Head, Receipt, Record, Vector
from recalld.filters import All, Compare, Contains, Exists, Field, Filter, Not, Op
from recalld.item import MemoryAttributes, MemoryStatus, Visibility
from recalld.scope import Scope
from recalld.testing.suite import check, check_equal, fail, on_a_loop, skip_unless, typed

SCOPE = Scope("acme", "support")
NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


class RecordStoreContract:
    """Subclass it, name the subclass `Test...`, override `make_records`, and pytest runs the suite on your store.

    Every test makes its own store, empty, on its own event loop. Vectors have `dimensions` numbers.
    """

    dimensions: ClassVar[int] = 8

    async def make_records(self) -> RecordStore:
        """A fresh, empty store named `memory`."""
        raise NotImplementedError("override make_records")

    async def make_second(self, records: RecordStore) -> RecordStore | None:
        """Another store over the same storage, as another server would open it; None where there can be none."""
        return None

    def vector(self, *numbers: float) -> Vector:
        """A unit vector in this direction, of the type that the store takes."""
        whole = [*numbers, *[0.0] * (self.dimensions - len(numbers))]
        length = math.sqrt(math.fsum(number * number for number in whole))
        return [number / length for number in whole]

    async def make_subject(self) -> RecordStore:
        return await self.make_records()

    async def close_subject(self, subject: RecordStore) -> None:
        await subject.close()

    # What is there before anything is written

    @on_a_loop
    async def test_a_scope_that_was_never_written_is_empty(self, records: RecordStore) -> None:
        """Every read is empty, and the head is at the start."""
        check_equal((await records.lexical(SCOPE, "anything", None, limit=5)).candidates, (), "by words")
        check_equal(list(await records.semantic(SCOPE, self.vector(1), None, limit=5)), [], "by meaning")
        check_equal(list(await records.read(SCOPE, ["a"], None)), [], "by id")
        page = await records.newest(SCOPE, None, limit=5)
        check_equal((list(page.items), page.before), ([], None), "the newest")
        check_equal((await records.head(SCOPE), await records.count(SCOPE, None)), (Head(), 0), "head and count")
        check_equal(await records.receipt(SCOPE, "k"), None, "a receipt")
        async with records.turn(SCOPE) as turn:
            snapshot = await turn.snapshot(["a"], whole=["b"], receipts=["k"])
            check_equal((snapshot.head, dict(snapshot.records), dict(snapshot.receipts)), (Head(), {}, {}), "a turn")
            check_equal(list(await turn.matching(Exists(Field("id")), limit=5)), [], "what matches")

    # What a commit stores

    @on_a_loop
    async def test_a_record_reads_back_as_it_was(self, records: RecordStore) -> None:
        """Text, typed metadata, every attribute and the vector; unset attributes stay unset."""
        given = MemoryAttributes(
            memory_type="episodic", namespace="trips", user_id="ü\n'; drop table", session_id="s", agent_id="a",
            run_id="r", visibility=Visibility.ORG, status=MemoryStatus.ARCHIVED, importance=0.25, confidence=0.0,
            create_time=NOW, update_time=NOW + timedelta(seconds=1),
            event_time=datetime(1969, 7, 20, 20, 17, 40, 123456, UTC),
            last_observed_time=NOW, last_access_time=NOW, expire_time=datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            access_count=3, observation_count=2, supersedes_id="old", superseded_by_id="new", embedding_truncated=True,
        )  # fmt: skip
        metadata: dict[str, Any] = {
            "int": 1, "whole double": 1.0, "minus zero": -0.0, "big": 2**63 - 1, "small": -(2**63), "tiny": 5e-324,
            "yes": True, "null": None, "text": "line\nnul \x00 emoji 🎉 $time", "when": NOW,
            "list": [1, 1.5, "x", None, [True], {"$time": 5}], "map": {"$map": {"a": 1}, "x": {"deep.key": {}}},
            "marked": {"$time": 5},
        }  # fmt: skip
        content = "Straße  \t 東京\x00 end"
        whole = Record("k/\n'", 1, 1, given, Body(content, metadata, self.vector(1, 2)))
        bare = Record(
            "bare",
            2,
            2,
            MemoryAttributes(status=MemoryStatus.ACTIVE, create_time=NOW, update_time=NOW),
            Body("x", {}, self.vector(1)),
        )
        await self._store(records, whole, bare)
        async with records.turn(SCOPE) as turn:
            found = (await turn.snapshot(whole=["k/\n'", "bare"])).records
        back = found["k/\n'"]
        check_equal(replace(back, body=None), replace(whole, body=None), "the record")
        body = back.body
        if body is None or body.vector is None:
            fail("a record that is read whole has its body and vector")
        check_equal((body.content, typed(dict(body.metadata))), (content, typed(metadata)), "content and metadata")
        check(str(body.metadata["minus zero"]) == "-0.0", "the sign of a zero is kept")
        gaps = [abs(float(a) - float(b)) for a, b in zip(body.vector, self.vector(1, 2), strict=True)]
        check(max(gaps) < 1e-6, f"the vector is off by {max(gaps)}")
        check_equal(replace(found["bare"], body=None), replace(bare, body=None), "a record with little set")
        (item,) = await records.read(SCOPE, ["bare"], None)
        check_equal((item.source, item.score), ("memory", None), "source and score of an item")
        check_equal(item.attributes, bare.item("memory").attributes, "the attributes of an item, with defaults")

    @on_a_loop
    async def test_state_can_be_read_without_bodies(self, records: RecordStore) -> None:
        """A snapshot of ids has revision, place and attributes, of tombstones too."""
        await self._store(records, self._record("a", 1), self._record("b", 2))
        await self._store(records, bury(self._record("b", 2), 3, NOW), at=Head(2, 2))
        async with records.turn(SCOPE) as turn:
            snapshot = await turn.snapshot(["a", "b", "c"])
        check_equal(set(snapshot.records), {"a", "b"}, "the ids")
        check_equal((snapshot.records["a"].revision, snapshot.records["a"].live), (1, True), "a memory")
        check_equal((snapshot.records["b"].revision, snapshot.records["b"].live), (3, False), "a tombstone")
        check_equal((snapshot.records["b"].sequence, snapshot.records["b"].body), (2, None), "what a tombstone keeps")
        check_equal(snapshot.head, Head(3, 2), "the head")

    @on_a_loop
    async def test_receipts_are_kept_beside_the_records(self, records: RecordStore) -> None:
        """One commit stores both; a receipt is no memory, and its key no id."""
        receipt = Receipt("a", "1:f", 1, ("a", "x/\n'"), NOW)
        await self._store(records, self._record("a", 1), receipts=[receipt])
        check_equal(await records.receipt(SCOPE, "a"), receipt, "the receipt")
        async with records.turn(SCOPE) as turn:
            snapshot = await turn.snapshot(["a"], receipts=["a", "b"])
        check_equal(dict(snapshot.receipts), {"a": receipt}, "the receipts of a turn")
        check_equal(snapshot.records["a"].revision, 1, "the record of the same name")
        check_equal(await records.count(SCOPE, None), 1, "how many memories there are")
        check_equal(len((await records.newest(SCOPE, None, limit=9)).items), 1, "how many are listed")

    @on_a_loop
    async def test_a_moved_head_stores_nothing(self, records: RecordStore) -> None:
        """A commit worked out at another head is refused whole, in the same store and in another over its storage."""
        await self._store(records, self._record("a", 1))
        stale = self._commit([self._record("a", 2, content="stale"), self._record("b", 3)], at=Head(), to=Head(3, 2))
        async with records.turn(SCOPE) as turn:
            with suppress(HeadMoved):
                await turn.commit(replace(stale, receipts={"k": Receipt("k", "1:f", 3, ("a", "b"), NOW)}))
                fail("a commit at an old head is taken")
        check_equal([item.id for item in await records.read(SCOPE, ["a", "b"], None)], ["a"], "what is stored")
        check_equal((await records.head(SCOPE), await records.receipt(SCOPE, "k")), (Head(1, 1), None), "the head")
        (item,) = await records.read(SCOPE, ["a"], None)
        check_equal(item.content, "coffee a", "what it was")

    @on_a_loop
    async def test_another_server_sees_every_commit(self, records: RecordStore) -> None:
        """And its own commits count against the first one's head."""
        second = await self.make_second(records)
        skip_unless(second is not None, "there is one store for a storage")
        assert second is not None  # noqa: S101 - for the type checker
        try:
            await self._store(records, self._record("a", 1))
            check_equal(await second.head(SCOPE), Head(1, 1), "the head that another server sees")
            await self._store(second, self._record("b", 2), at=Head(1, 1))
            check_equal(await records.head(SCOPE), Head(2, 2), "the head that the first one sees")
            check_equal({i.id for i in await records.read(SCOPE, ["a", "b"], None)}, {"a", "b"}, "what it reads")
            check_equal(await records.count(SCOPE, None), 2, "how many there are")
        finally:
            await second.close()

    @on_a_loop
    async def test_a_commit_replaces_whole(self, records: RecordStore) -> None:
        """What a record was is found no more, by words or by meaning, and its place stays."""
        await self._store(
            records, self._record("a", 1, content="old words", vector=self.vector(1)), self._record("b", 2)
        )
        new = replace(self._record("a", 3, content="new text", vector=self.vector(0, 1)), sequence=1)
        await self._store(records, new, at=Head(2, 2), to=Head(3, 2))
        check_equal(await self._by_words(records, "old"), [], "the old words")
        check_equal(await self._by_words(records, "text"), ["a"], "the new words")
        best = await records.semantic(SCOPE, self.vector(0, 1), None, limit=1)
        check_equal([each.id for each in best], ["a"], "the new meaning")
        check_equal(await self._newest(records), ["b", "a"], "the order")

    @on_a_loop
    async def test_a_tombstone_is_seen_by_no_read(self, records: RecordStore) -> None:
        """Neither by words nor by meaning, id, list, count or condition."""
        await self._store(records, self._record("a", 1), self._record("b", 2))
        await self._store(records, bury(self._record("a", 1), 3, NOW), at=Head(2, 2), to=Head(3, 2))
        check_equal(await self._by_words(records, "coffee"), ["b"], "by words")
        found = await records.semantic(SCOPE, self.vector(1), None, limit=9)
        check_equal([each.id for each in found], ["b"], "by meaning")
        check_equal([item.id for item in await records.read(SCOPE, ["a", "b"], None)], ["b"], "by id")
        check_equal((await self._newest(records), await records.count(SCOPE, None)), (["b"], 1), "list and count")
        anything = Not(Compare(Field("metadata", ("x",)), Op.EQ, 1))
        check_equal(await self._newest(records, anything), ["b"], "by a condition that it would meet")

    @on_a_loop
    async def test_large_commits_are_whole(self, records: RecordStore) -> None:
        """Some thousand records at once, read back by id and in order."""
        many = [self._record(f"r{n}", n + 1, vector=self.vector(1, n)) for n in range(1500)]
        await self._store(records, *many)
        check_equal(await records.count(SCOPE, None), 1500, "how many there are")
        found = await records.read(SCOPE, [f"r{n}" for n in range(0, 1500, 7)], None)
        check_equal(len(found), 215, "how many are read by id")
        check_equal((await self._newest(records))[:2], ["r1499", "r1498"], "the newest")

    # What a search finds

    @on_a_loop
    async def test_words_are_ranked(self, records: RecordStore) -> None:
        """By BM25: more of the query and rarer words first, ties by id, and never more than asked for."""
        texts = {"a": "tea", "b": "tea and milk", "c": "milk", "d": "saffron tea", "e": "saffron"}
        await self._store(
            records, *(self._record(id, n + 1, content=text) for n, (id, text) in enumerate(texts.items()))
        )
        found = await records.lexical(SCOPE, "saffron tea", None, limit=9)
        check_equal([each.id for each in found.candidates][:2], ["d", "e"], "the best")
        scores = [each.score for each in found.candidates]
        check_equal(scores, sorted(scores, reverse=True), "the scores")
        check(0 < found.coverage <= 1, f"the coverage is {found.coverage}")
        check_equal(len((await records.lexical(SCOPE, "tea", None, limit=2)).candidates), 2, "how many at limit 2")
        await self._store(
            records, self._record("z", 6, content="twins"), self._record("y", 7, content="twins"), at=Head(5, 5)
        )
        check_equal(await self._by_words(records, "twins"), ["y", "z"], "ties")
        for nothing in ("", "   ", "absent", "\x00"):
            check_equal(await self._by_words(records, nothing), [], f"what {nothing!r} finds")
        check_equal(len((await records.lexical(SCOPE, "tea", None, limit=0)).candidates), 0, "how many at limit 0")

    @on_a_loop
    async def test_meaning_is_ranked(self, records: RecordStore) -> None:
        """By cosine, ties by id, and never more than asked for."""
        directions = {"far": (0, 1), "near": (1, 0.1), "same": (1, 0), "also": (1, 0)}
        await self._store(
            records,
            *(self._record(id, n + 1, vector=self.vector(*to)) for n, (id, to) in enumerate(directions.items())),
        )
        found = await records.semantic(SCOPE, self.vector(1), None, limit=9)
        check_equal([each.id for each in found], ["also", "same", "near", "far"], "the ranking")
        check(abs(found[0].score - 1) < 1e-5 and abs(found[-1].score) < 1e-5, f"the cosines: {found}")
        check_equal(len(await records.semantic(SCOPE, self.vector(1), None, limit=2)), 2, "how many at limit 2")
        check_equal(len(await records.semantic(SCOPE, self.vector(1), None, limit=0)), 0, "how many at limit 0")

    @on_a_loop
    async def test_filters_come_before_ranking(self, records: RecordStore) -> None:
        """In every read: the best of what matches, however many better ones do not."""
        many = [self._record(f"n{n}", n + 1, metadata={"n": n}, vector=self.vector(1, n)) for n in range(60)]
        await self._store(records, *many)
        for where, expected in _CONDITIONS.items():
            ids = {f"n{n}" for n in range(60) if expected(n)}
            check_equal(set(await self._by_words(records, "coffee", where)), ids, f"by words where {where}")
            found = await records.semantic(SCOPE, self.vector(1), where, limit=100)
            check_equal({each.id for each in found}, ids, f"by meaning where {where}")
            check_equal(set(await self._newest(records, where)), ids, f"the newest where {where}")
            check_equal(await records.count(SCOPE, where), len(ids), f"how many where {where}")
            read = await records.read(SCOPE, [f"n{n}" for n in range(60)], where)
            check_equal({item.id for item in read}, ids, f"by id where {where}")
            async with records.turn(SCOPE) as turn:
                matching = await turn.matching(where, limit=100)
                check_equal({record.id for record in matching}, ids, f"in a turn where {where}")
        last = Compare(Field("metadata", ("n",)), Op.EQ, 59)
        check_equal(
            [each.id for each in await records.semantic(SCOPE, self.vector(1), last, limit=1)], ["n59"], "the worst"
        )

    @on_a_loop
    async def test_pages_go_on_where_they_ended(self, records: RecordStore) -> None:
        """Newest first; `before` continues, and is None at the end."""
        await self._store(records, *(self._record(f"p{n}", n + 1) for n in range(5)))
        seen: list[str | None] = []
        before: int | None = None
        while True:
            page = await records.newest(SCOPE, None, limit=2, before=before)
            seen.extend(item.id for item in page.items)
            before = page.before
            if before is None:
                break
            check(len(page.items) == 2, "a page that goes on is full")
        check_equal(seen, ["p4", "p3", "p2", "p1", "p0"], "the pages together")
        async with records.turn(SCOPE) as turn:
            check_equal(len(await turn.matching(Exists(Field("id")), limit=3)), 3, "how many match at limit 3")

    @on_a_loop
    async def test_scopes_are_apart(self, records: RecordStore) -> None:
        """One id in two scopes is two records; statistics, heads and receipts are each scope's own."""
        others = [
            Scope("another", "support"),
            Scope("acme", "another"),
            Scope("ACME", "support"),
            Scope("a", "cmesupport"),
        ]
        await self._store(records, self._record("a", 1), receipts=[Receipt("k", "1:f", 1, ("a",), NOW)])
        for scope in others:
            check_equal(
                (await records.head(scope), await records.receipt(scope, "k")), (Head(), None), f"head of {scope}"
            )
            check_equal(list(await records.read(scope, ["a"], None)), [], f"the id in {scope}")
            check_equal((await records.lexical(scope, "coffee", None, limit=5)).candidates, (), f"words of {scope}")
        other = self._record("a", 1, content="tea")
        async with records.turn(others[0]) as turn:
            await turn.commit(self._commit([other], at=Head(), to=Head(1, 1)))
        (item,) = await records.read(SCOPE, ["a"], None)
        check_equal(item.content, "coffee a", "ours")

    # Inside.

    def _record(
        self,
        id: str,
        number: int,
        *,
        content: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        vector: Vector | None = None,
    ) -> Record:
        attributes = MemoryAttributes(
            status=MemoryStatus.ACTIVE, visibility=Visibility.PRIVATE, create_time=NOW, update_time=NOW
        )
        body = Body(
            f"coffee {id}" if content is None else content, metadata or {}, self.vector(1) if vector is None else vector
        )
        return Record(id, number, number, attributes, body)

    def _commit(self, stored: Sequence[Record], *, at: Head, to: Head) -> Commit:
        return Commit(at, to, {record.id: record for record in stored}, {})

    async def _store(
        self,
        records: RecordStore,
        *stored: Record,
        at: Head | None = None,
        to: Head | None = None,
        receipts: Sequence[Receipt] = (),
    ) -> None:
        at = at or Head()
        to = to or Head(
            max(record.revision for record in stored), max(at.sequence, *(record.sequence for record in stored))
        )
        commit = replace(self._commit(stored, at=at, to=to), receipts={receipt.key: receipt for receipt in receipts})
        async with records.turn(SCOPE) as turn:
            await turn.snapshot([record.id for record in stored])
            await turn.commit(commit)

    async def _by_words(self, records: RecordStore, text: str, where: Filter | None = None) -> list[str]:
        return [each.id for each in (await records.lexical(SCOPE, text, where, limit=100)).candidates]

    async def _newest(self, records: RecordStore, where: Filter | None = None) -> list[str | None]:
        return [item.id for item in (await records.newest(SCOPE, where, limit=2000)).items]


_N = Field("metadata", ("n",))
_CONDITIONS: Mapping[Filter, Callable[[int], bool]] = {
    Compare(_N, Op.GE, 50): lambda n: n >= 50,
    Not(Compare(_N, Op.EQ, 3)): lambda n: n != 3,
    All((Compare(_N, Op.GT, 10), Compare(_N, Op.LT, 12.5))): lambda n: 10 < n < 12.5,
    Contains(Field("content"), "n5"): lambda n: str(n).startswith("5"),
    Exists(Field("event_time")): lambda n: False,
    Compare(Field("visibility"), Op.EQ, "private"): lambda n: True,
    Compare(Field("id"), Op.EQ, "n7"): lambda n: n == 7,
}
