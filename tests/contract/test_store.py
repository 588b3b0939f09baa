"""What every `Store` owes its callers, whatever it keeps its rows in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from recalld.errors import IdempotencyKeyReused, InvalidField, ItemNotFound, RecalldError, RevisionMismatch
from recalld.filters import All, AnyOf, Compare, Contains, Exists, Field, Not, Op
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.limits import Limits
from recalld.scope import Scope
from recalld.wire import metadata_bytes
from recalld_server.adapters.lancedb import LanceConfig, open_store
from recalld_server.ports import Embedding, ModelIdentity, Patch, Receipt, Row, Store

MODEL = ModelIdentity("tiny", 8, "0" * 64, 16)
SCOPE = Scope("acme", "support")
NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
ANY = Exists(Field("id"))


def unit(*numbers: float) -> np.ndarray:
    vector = np.zeros(8, np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.linalg.norm(vector)


def row(id: str, content: str = "a note", *, vector: np.ndarray | None = None, truncated: bool = False, **given) -> Row:
    """A row; `metadata` goes to the item, everything else is an attribute."""
    metadata = given.pop("metadata", {})
    attributes = MemoryAttributes(**given) if given else None
    item = MemoryItem(content, "caller", metadata=metadata, id=id, attributes=attributes)
    return Row(item, unit(1.0) if vector is None else vector, truncated)


def patch(
    id: str, *mask: tuple[str, ...], content: str = "", metadata=None, revision=None, vector=None, **given
) -> Patch:
    item = MemoryItem(content, "caller", metadata=metadata or {}, id=id, attributes=MemoryAttributes(**given))
    embedding = Embedding(unit(0, 1) if vector is None else vector) if ("content",) in mask else None
    return Patch(item, mask, embedding, revision)


def is_(name: str, value) -> Compare:
    return Compare(Field(name), Op.EQ, value)


@pytest.fixture(params=["lancedb"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(LanceConfig(name="memory", root=tmp_path / "data", model=MODEL, durability="commit"))
    yield opened
    await opened.close()


async def ids(store: Store, where=None, limit: int = 100) -> list[str | None]:
    return [item.id for item in (await store.newest(SCOPE, where, limit=limit, before=None)).items]


async def one(store: Store, id: str) -> MemoryItem:
    (found,) = await store.read(SCOPE, [id], None)
    return found


class TestNeverWritten:
    async def test_every_read_is_empty(self, store: Store) -> None:
        assert not (await store.lexical(SCOPE, "anything", None, limit=5)).candidates
        assert await store.semantic(SCOPE, unit(1), None, limit=5) == []
        assert await store.read(SCOPE, ["a"], None) == []
        assert (await store.newest(SCOPE, None, limit=5, before=None)).items == []
        assert await store.revision(SCOPE) == 0
        assert await store.receipt(SCOPE, Receipt("k", "f")) is None

    async def test_there_is_nothing_to_change(self, store: Store) -> None:
        with pytest.raises(ItemNotFound):
            await store.update(SCOPE, patch("a", ("metadata",)), ANY, now=NOW)
        assert await store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW) == (0, 0)
        assert await store.delete(SCOPE, is_("user_id", "u"), ANY, dry_run=False, now=NOW) == (0, 0)
        assert await store.revision(SCOPE) == 0


class TestPut:
    async def test_an_item_comes_back_as_it_was_given(self, store: Store) -> None:
        given = MemoryAttributes(
            memory_type="episodic",
            namespace="trips",
            user_id="ü\n'; drop table",
            session_id="s",
            agent_id="a",
            run_id="r",
            visibility=Visibility.ORG,
            importance=0.25,
            confidence=0.0,
            event_time=datetime(1969, 7, 20, 20, 17, 40, 123456, UTC),
            expire_time=datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            supersedes_id="old",
        )
        metadata = {
            "int": 1,
            "whole double": 1.0,
            "minus zero": -0.0,
            "big": 2**63 - 1,
            "small": -(2**63),
            "tiny": 5e-324,
            "yes": True,
            "null": None,
            "text": "line\nnul \x00 emoji 🎉 $time",
            "when": datetime(2024, 2, 29, 1, 2, 3, 4, timezone(timedelta(hours=5))),
            "list": [1, 1.5, "x", None, [True], {"$time": 5}],
            "map": {"$map": {"a": 1}, "": {"deep.key": {}}},
            "marked": {"$time": 5},
        }
        content = "Straße  \t ‮ 東京\x00 end"
        commit = await store.put(
            SCOPE,
            [Row(MemoryItem(content, "x", metadata=metadata, id="k/\n'", attributes=given), unit(1), True)],
            None,
            now=NOW,
        )
        found = await one(store, "k/\n'")
        assert (found.content, found.source, found.score, found.id) == (content, "memory", None, "k/\n'")
        assert found.metadata == metadata
        assert [type(value) for value in found.metadata.values()] == [
            type(v) for v in MemoryItem("", "", metadata=metadata).metadata.values()
        ]
        assert str(found.metadata["minus zero"]) == "-0.0"
        assert found.attributes == replace(
            given,
            status=MemoryStatus.ACTIVE,
            create_time=NOW,
            update_time=NOW,
            revision=commit.revision,
            origin="memory",
            embedding_truncated=True,
        )

    async def test_what_is_unset_stays_unset_but_a_memory_is_private(self, store: Store) -> None:
        await store.put(SCOPE, [row("a")], None, now=NOW)
        attributes = (await one(store, "a")).attributes
        assert attributes is not None
        assert (attributes.memory_type, attributes.importance, attributes.event_time) == ("", None, None)
        assert (attributes.access_count, attributes.observation_count) == (0, 0)
        assert attributes.visibility is Visibility.PRIVATE

    async def test_output_only_fields_are_ignored(self, store: Store) -> None:
        mine = row(
            "a", status=MemoryStatus.ARCHIVED, create_time=NOW - timedelta(9), access_count=7, observation_count=3,
            last_access_time=NOW, superseded_by_id="b", revision=99, origin="elsewhere", embedding_truncated=True,
        )  # fmt: skip
        await store.put(SCOPE, [mine], None, now=NOW)
        await store.put(SCOPE, [row("b")], None, now=NOW)
        first, second = await one(store, "a"), await one(store, "b")
        assert first.attributes is not None
        assert second.attributes is not None
        assert replace(first.attributes, revision=0) == replace(second.attributes, revision=0)

    async def test_replacing_keeps_place_and_birth(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", "old", user_id="u", metadata={"x": 1}), row("b")], None, now=NOW)
        later = NOW + timedelta(hours=1)
        await store.put(SCOPE, [row("a", "new", vector=unit(0, 0, 1))], None, now=later)
        found = await one(store, "a")
        assert found.attributes is not None
        assert (found.content, found.metadata, found.attributes.user_id) == ("new", {}, "")
        assert (found.attributes.create_time, found.attributes.update_time) == (NOW, later)
        assert await ids(store) == ["b", "a"]
        assert (await store.semantic(SCOPE, unit(0, 0, 1), None, limit=1))[0].id == "a"
        assert not (await store.lexical(SCOPE, "old", None, limit=5)).candidates

    async def test_a_deleted_id_starts_anew(self, store: Store) -> None:
        await store.put(SCOPE, [row("a"), row("b")], None, now=NOW)
        await store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW)
        later = NOW + timedelta(hours=1)
        await store.put(SCOPE, [row("a")], None, now=later)
        found = await one(store, "a")
        assert found.attributes is not None
        assert found.attributes.create_time == later
        assert found.attributes.status is MemoryStatus.ACTIVE
        assert await ids(store) == ["a", "b"]

    async def test_an_expired_id_starts_anew(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", expire_time=NOW + timedelta(minutes=1)), row("b")], None, now=NOW)
        later = NOW + timedelta(hours=1)
        await store.put(SCOPE, [row("a")], None, now=later)
        found = await one(store, "a")
        assert found.attributes is not None
        assert (found.attributes.create_time, found.attributes.expire_time) == (later, None)
        assert await ids(store) == ["a", "b"]

    async def test_revisions_grow_with_every_record(self, store: Store) -> None:
        first = await store.put(SCOPE, [row("a"), row("b")], None, now=NOW)
        second = await store.put(SCOPE, [row("a")], None, now=NOW)
        revisions = [(await one(store, id)).attributes.revision for id in ("b", "a")]  # type: ignore[union-attr]
        assert first.revision < second.revision == await store.revision(SCOPE)
        assert revisions == [first.revision, second.revision]
        await store.delete(SCOPE, ["a", "b"], ANY, dry_run=False, now=NOW)
        third = await store.put(SCOPE, [row("c")], None, now=NOW)
        assert third.revision > second.revision + 2

    async def test_what_cannot_be_stored_is_refused_whole(self, store: Store) -> None:
        for bad in (
            row("b", metadata={"x": 2**63}),
            row("b", metadata={"x": {1, 2}}),
            row("b", "half a pair \ud800"),
            row("b", vector=np.full(8, np.nan, np.float32)),
            row("b", vector=np.ones(9, np.float32)),
        ):
            with pytest.raises(InvalidField):
                await store.put(SCOPE, [row("a"), bad], Receipt("k", "f"), now=NOW)
        assert await ids(store) == []
        assert not (await store.put(SCOPE, [row("a")], Receipt("k", "f"), now=NOW)).replayed

    async def test_writers_of_one_key_leave_one_row_and_all_are_answered(self, store: Store) -> None:
        commits = await asyncio.gather(
            *(store.put(SCOPE, [row("k", f"version {n}"), row(f"own-{n}")], None, now=NOW) for n in range(20))
        )
        assert len({commit.revision for commit in commits}) == 20
        assert sorted(await ids(store)) == sorted(["k", *(f"own-{n}" for n in range(20))])
        last = max(range(20), key=lambda n: commits[n].revision)
        assert (await one(store, "k")).content == f"version {last}"


class TestReceipts:
    async def test_a_repeat_answers_as_the_first_did_and_changes_nothing(self, store: Store) -> None:
        first = await store.put(SCOPE, [row("a", "one"), row("b")], Receipt("key", "print"), now=NOW)
        await store.put(SCOPE, [row("a", "two")], None, now=NOW)
        await store.delete(SCOPE, ["b"], ANY, dry_run=False, now=NOW)
        again = await store.put(SCOPE, [row("a", "one"), row("b")], Receipt("key", "print"), now=NOW)
        assert again == replace(first, replayed=True)
        assert await store.receipt(SCOPE, Receipt("key", "print")) == again
        assert (await one(store, "a")).content == "two"
        assert await ids(store) == ["a"]

    async def test_a_repeat_beside_the_first_is_answered_alike(self, store: Store) -> None:
        commits = await asyncio.gather(
            *(store.put(SCOPE, [row(f"a{n}")], Receipt("key", "print"), now=NOW) for n in range(6))
        )
        assert [commit.replayed for commit in commits].count(False) == 1
        assert len({(tuple(commit.ids), commit.revision) for commit in commits}) == 1
        assert await ids(store) == list(commits[0].ids)

    async def test_another_content_under_the_key_is_refused_alone(self, store: Store) -> None:
        await store.put(SCOPE, [row("a")], Receipt("key", "print"), now=NOW)
        refused, taken = await asyncio.gather(
            store.put(SCOPE, [row("b")], Receipt("key", "other"), now=NOW),
            store.put(SCOPE, [row("c")], Receipt("key2", "other"), now=NOW),
            return_exceptions=True,
        )
        assert isinstance(refused, IdempotencyKeyReused)
        assert not isinstance(taken, BaseException)
        with pytest.raises(IdempotencyKeyReused):
            await store.receipt(SCOPE, Receipt("key", "other"))
        assert await ids(store) == ["c", "a"]

    async def test_keys_are_of_a_scope_and_are_no_memories(self, store: Store) -> None:
        await store.put(SCOPE, [row("a")], Receipt("a", "print"), now=NOW)
        assert await store.receipt(Scope("acme", "sales"), Receipt("a", "other")) is None
        assert await ids(store) == ["a"]
        assert await store.delete(SCOPE, Not(is_("id", "zzz")), ANY, dry_run=False, now=NOW) == (1, 2)
        assert (await store.put(SCOPE, [row("a")], Receipt("a", "print"), now=NOW)).replayed


class TestUpdate:
    async def test_it_changes_what_the_mask_names(self, store: Store) -> None:
        await store.put(
            SCOPE,
            [row("a", "old words", user_id="u", metadata={"x": 1, "y": 2}, importance=0.1), row("b")],
            None,
            now=NOW,
        )
        later = NOW + timedelta(hours=1)
        change = patch(
            "a",
            ("content",),
            ("metadata", "x"),
            ("metadata", "y"),
            ("attributes", "importance"),
            content="fresh text",
            metadata={"x": 9, "z": 3},
            user_id="ignored",
        )
        item, revision = await store.update(SCOPE, change, ANY, now=later)
        assert item == await one(store, "a")
        assert item.attributes is not None
        assert (item.content, item.metadata) == ("fresh text", {"x": 9})
        assert (item.attributes.user_id, item.attributes.importance) == ("u", None)
        assert (item.attributes.create_time, item.attributes.update_time) == (NOW, later)
        assert item.attributes.revision == revision == await store.revision(SCOPE)
        assert await ids(store) == ["b", "a"]
        assert [hit.id for hit in (await store.lexical(SCOPE, "fresh", None, limit=5)).candidates] == ["a"]
        assert (await store.semantic(SCOPE, unit(0, 1), None, limit=1))[0].id == "a"

    async def test_updates_of_different_fields_never_undo_each_other(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", metadata={"kept": True})], None, now=NOW)
        names = [f"k{n}" for n in range(12)]
        await asyncio.gather(
            *(store.update(SCOPE, patch("a", ("metadata", name), metadata={name: 1}), ANY, now=NOW) for name in names)
        )
        assert (await one(store, "a")).metadata == {"kept": True, **dict.fromkeys(names, 1)}

    async def test_it_is_made_only_at_the_expected_revision(self, store: Store) -> None:
        revision = (await store.put(SCOPE, [row("a")], None, now=NOW)).revision
        await store.update(SCOPE, patch("a", ("metadata",), metadata={"n": 1}, revision=revision), ANY, now=NOW)
        with pytest.raises(RevisionMismatch) as caught:
            await store.update(SCOPE, patch("a", ("metadata",), metadata={"n": 2}, revision=revision), ANY, now=NOW)
        assert caught.value.details == {
            "id": "a",
            "expectedRevision": str(revision),
            "actualRevision": str(revision + 1),
        }
        assert (await one(store, "a")).metadata == {"n": 1}

    async def test_what_does_not_match_is_not_found(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", user_id="u")], None, now=NOW)
        with pytest.raises(ItemNotFound) as caught:
            await store.update(SCOPE, patch("a", ("metadata",)), is_("user_id", "other"), now=NOW)
        assert caught.value.details == {"id": "a"}
        await store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW)
        with pytest.raises(ItemNotFound):
            await store.update(SCOPE, patch("a", ("metadata",)), ANY, now=NOW)

    async def test_metadata_that_comes_key_by_key_has_the_limit_of_what_comes_whole(self, store: Store) -> None:
        most = Limits().max_metadata_bytes
        whole = {"a": "x" * 40_000, "b": "y" * 20_000}
        whole["b"] += "y" * (most - metadata_bytes(whole))
        assert metadata_bytes(whole) == most
        await store.put(SCOPE, [row("a", metadata={"a": whole["a"]})], None, now=NOW)
        over = patch("a", ("metadata", "b"), metadata={"b": whole["b"] + "y"})
        with pytest.raises(InvalidField) as caught:
            await store.update(SCOPE, over, ANY, now=NOW)
        assert list(caught.value.violations) == ["item.metadata"]
        assert set((await one(store, "a")).metadata) == {"a"}
        item, _ = await store.update(SCOPE, patch("a", ("metadata", "b"), metadata={"b": whole["b"]}), ANY, now=NOW)
        assert item.metadata == whole

    async def test_what_is_not_the_writers_cannot_be_named(self, store: Store) -> None:
        await store.put(SCOPE, [row("a")], None, now=NOW)
        with pytest.raises(InvalidField):
            await store.update(SCOPE, patch("a", ("attributes", "access_count"), access_count=3), ANY, now=NOW)


class TestDelete:
    async def test_by_id_counts_what_was_there(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", "alpha word"), row("b", "beta word", user_id="u")], None, now=NOW)
        assert (await store.delete(SCOPE, ["a", "a", "nope"], ANY, dry_run=True, now=NOW)) == (1, 2)
        assert await ids(store) == ["b", "a"]
        count, revision = await store.delete(SCOPE, ["a", "a", "nope"], ANY, dry_run=False, now=NOW)
        assert (count, revision) == (1, await store.revision(SCOPE))
        assert await store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW) == (0, revision)
        assert await store.delete(SCOPE, ["b"], is_("user_id", "other"), dry_run=False, now=NOW) == (0, revision)

    async def test_no_read_finds_what_was_deleted(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", "alpha word"), row("b", "beta word")], None, now=NOW)
        await store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW)
        everything = AnyOf((is_("status", "deleted"), Not(is_("status", "deleted"))))
        assert await store.read(SCOPE, ["a"], None) == []
        assert await ids(store, everything) == ["b"]
        assert [hit.id for hit in (await store.lexical(SCOPE, "alpha word", everything, limit=9)).candidates] == ["b"]
        assert [hit.id for hit in await store.semantic(SCOPE, unit(1), everything, limit=9)] == ["b"]

    async def test_by_filter(self, store: Store) -> None:
        await store.put(
            SCOPE, [row(f"i{n}", metadata={"n": n}, user_id="u" if n % 2 else "v") for n in range(10)], None, now=NOW
        )
        low = Compare(Field("metadata", ("n",)), Op.LT, 6)
        assert (await store.delete(SCOPE, low, is_("user_id", "u"), dry_run=True, now=NOW))[0] == 3
        assert (await store.delete(SCOPE, low, is_("user_id", "u"), dry_run=False, now=NOW))[0] == 3
        assert await ids(store) == ["i9", "i8", "i7", "i6", "i4", "i2", "i0"]

    async def test_a_delete_sees_the_writes_that_wait_before_it(self, store: Store) -> None:
        await store.put(SCOPE, [row("first")], None, now=NOW)
        _, deleted, _ = await asyncio.gather(
            store.put(SCOPE, [row("a", user_id="u")], None, now=NOW),
            store.delete(SCOPE, is_("user_id", "u"), ANY, dry_run=False, now=NOW),
            store.put(SCOPE, [row("b", user_id="u")], None, now=NOW),
        )
        assert deleted[0] == 1
        assert await ids(store) == ["b", "first"]


class TestList:
    async def test_a_walk_gives_what_stays_exactly_once(self, store: Store) -> None:
        await store.put(SCOPE, [row(f"i{n:02}") for n in range(20)], None, now=NOW)
        seen: list[str | None] = []
        before: int | None = None
        for step in range(20):
            page = await store.newest(SCOPE, None, limit=3, before=before)
            seen.extend(item.id for item in page.items)
            before = page.before
            if before is None:
                break
            await store.put(SCOPE, [row(f"new{step}"), row("i05", "changed")], None, now=NOW)
            await store.delete(SCOPE, [f"i{step:02}", f"i{19 - 3 * step:02}"], ANY, dry_run=False, now=NOW)
        gone = {f"i{step:02}" for step in range(20)} - set(await ids(store))
        stayed = [f"i{n:02}" for n in range(19, -1, -1) if f"i{n:02}" not in gone]
        assert [id for id in seen if id in stayed] == stayed
        assert len(seen) == len(set(seen))

    async def test_a_full_last_page_ends_the_walk(self, store: Store) -> None:
        await store.put(SCOPE, [row("a"), row("b")], None, now=NOW)
        assert (await store.newest(SCOPE, None, limit=2, before=None)).before is None
        assert (await store.newest(SCOPE, None, limit=1, before=None)).before is not None
        assert (await store.newest(SCOPE, None, limit=0, before=None)).items == []


class TestSearch:
    async def test_words_rank_and_the_filter_comes_first(self, store: Store) -> None:
        rows = [row(f"n{n:03}", f"common text number{n}", user_id="u") for n in range(60)]
        await store.put(
            SCOPE, [*rows, row("x", "common rare", user_id="v"), row("y", "common", user_id="v")], None, now=NOW
        )
        hits = (await store.lexical(SCOPE, "common rare", None, limit=5)).candidates
        assert hits[0].id == "x"
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert {hit.id for hit in (await store.lexical(SCOPE, "common", is_("user_id", "v"), limit=50)).candidates} == {
            "x",
            "y",
        }
        assert not (await store.lexical(SCOPE, "common", is_("user_id", "nobody"), limit=5)).candidates
        assert not (await store.lexical(SCOPE, "absent", None, limit=5)).candidates
        assert not (await store.lexical(SCOPE, "common", None, limit=0)).candidates

    async def test_ties_are_ordered_by_id(self, store: Store) -> None:
        await store.put(SCOPE, [row(id, "same words") for id in "dbeac"], None, now=NOW)
        assert [hit.id for hit in (await store.lexical(SCOPE, "same", None, limit=3)).candidates] == ["a", "b", "c"]
        assert [hit.id for hit in await store.semantic(SCOPE, unit(1), None, limit=3)] == ["a", "b", "c"]

    async def test_meaning_ranks_by_cosine(self, store: Store) -> None:
        rng = np.random.default_rng(7)
        vectors = {f"i{n}": unit(*rng.standard_normal(8)) for n in range(50)}
        await store.put(
            SCOPE,
            [row(id, vector=vector, user_id="u" if id < "i3" else "") for id, vector in vectors.items()],
            None,
            now=NOW,
        )
        query = unit(*rng.standard_normal(8))
        best = sorted(vectors, key=lambda id: -float(vectors[id] @ query))
        hits = await store.semantic(SCOPE, query, None, limit=10)
        assert [hit.id for hit in hits] == best[:10]
        assert [hit.score for hit in hits] == pytest.approx([float(vectors[id] @ query) for id in best[:10]], abs=1e-5)
        some = [id for id in best if id < "i3"]
        assert [hit.id for hit in await store.semantic(SCOPE, query, is_("user_id", "u"), limit=50)] == some
        assert await store.semantic(SCOPE, query, None, limit=0) == []

    async def test_private_and_expired_are_a_matter_of_the_filter(self, store: Store) -> None:
        rows = [
            row("mine", "word", user_id="me"),
            row("theirs", "word", user_id="you"),
            row("shared", "word", user_id="you", visibility=Visibility.ORG),
            row("past", "word", user_id="me", expire_time=NOW),
        ]
        await store.put(SCOPE, rows, None, now=NOW - timedelta(days=1))
        visible = All((
            Not(Compare(Field("expire_time"), Op.LE, NOW)),
            AnyOf((is_("visibility", "org"), Not(Exists(Field("user_id"))), is_("user_id", "me"))),
        ))  # fmt: skip
        assert sorted(await ids(store, visible)) == ["mine", "shared"]
        assert sorted(hit.id for hit in (await store.lexical(SCOPE, "word", visible, limit=9)).candidates) == [
            "mine",
            "shared",
        ]
        assert sorted(hit.id for hit in await store.semantic(SCOPE, unit(1), visible, limit=9)) == ["mine", "shared"]
        assert [item.id for item in await store.read(SCOPE, ["mine", "theirs", "past"], visible)] == ["mine"]

    async def test_content_can_be_filtered_literally(self, store: Store) -> None:
        await store.put(SCOPE, [row("a", "100% of it's_ {x}"), row("b", "100 of it")], None, now=NOW)
        assert await ids(store, Contains(Field("content"), "0% of it's_")) == ["a"]


class TestScopes:
    async def test_tenants_that_look_alike_are_apart(self, store: Store) -> None:
        scopes = [
            Scope("acme", "x"), Scope("Acme", "x"), Scope("ACME", "X"), Scope("a", "cmex"), Scope("acmex", "x"),
            Scope("..", "../.."), Scope("a/b", "c"), Scope("a", "b/c"), Scope("é", "x"), Scope("e\u0301", "x"),
            Scope("😀" * 128, "y" * 128), Scope("😀" * 127, "y" * 128), Scope("' or 1=1 --", "x"), Scope("acme ", "x"),
        ]  # fmt: skip
        for at, scope in enumerate(scopes):
            await store.put(scope, [row("k", f"word {at}")], Receipt("r", str(at)), now=NOW)
        for at, scope in enumerate(scopes):
            (found,) = (await store.newest(scope, None, limit=9, before=None)).items
            assert found.content == f"word {at}"
            assert len((await store.lexical(scope, "word", None, limit=9)).candidates) == 1
            assert await store.revision(scope) == 1


async def test_nothing_is_taken_after_closing(store: Store) -> None:
    await store.put(SCOPE, [row("a")], None, now=NOW)
    await store.close()
    for call in (
        store.put(SCOPE, [row("b")], None, now=NOW),
        store.newest(SCOPE, None, limit=1, before=None),
        store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW),
    ):
        with pytest.raises(RecalldError):
            await call


async def test_closing_finishes_what_waits(store: Store) -> None:
    writes = [asyncio.create_task(store.put(SCOPE, [row(f"i{n}")], None, now=NOW)) for n in range(5)]
    await asyncio.sleep(0)
    await store.close()
    assert [commit.revision for commit in await asyncio.gather(*writes)] == [1, 2, 3, 4, 5]


async def test_what_is_hidden_by_its_life_stays_hidden_whenever_it_comes(store: Store):
    """The legs may leave a filter out while nothing needs it; the first item that does brings it back, and a tombstone
    or a receipt never shows."""
    visible = All((Not(Compare(Field("expire_time"), Op.LE, NOW)), is_("status", "active")))

    async def found() -> set[str]:
        words = await store.lexical(SCOPE, "word", visible, limit=9)
        meaning = await store.semantic(SCOPE, unit(1.0), visible, limit=9)
        assert {hit.id for hit in words.candidates} == {hit.id for hit in meaning}
        return {hit.id for hit in meaning}

    await store.put(SCOPE, [row("a", "word"), row("b", "word")], Receipt("k", "f"), now=NOW)
    assert await found() == {"a", "b"}
    await store.put(SCOPE, [row("c", "word", expire_time=NOW - timedelta(seconds=1))], None, now=NOW)
    assert await found() == {"a", "b"}
    await store.delete(SCOPE, ["a"], ANY, dry_run=False, now=NOW)
    assert await found() == {"b"}
    await store.delete(SCOPE, ["c"], ANY, dry_run=False, now=NOW)
    await store.put(SCOPE, [row("d", "word")], None, now=NOW)
    assert await found() == {"b", "d"}
