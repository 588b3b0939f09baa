"""Tidying up changes no answer, takes what is old off the disk, and never fails a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recalld.engine.ports import HeadMoved
from recalld.filters import Compare, Field, Op
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld.store import WriteBatch
from recalld_server.adapters.lancedb import MaintenancePolicy, expiry, upkeep
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.adapters.lancedb.maintenance import Backlog, Maintenance

Opened = Callable[..., Any]
Note = Callable[..., MemoryItem]


def often(**overrides: Any) -> MaintenancePolicy:
    return MaintenancePolicy(**{"commits": 5, "quiet": 0.0, "settled": 60.0, **overrides})


def table(root: Path, scope: Scope) -> Path:
    return root / "tables" / f"{table_name(scope)}.lance"


def files(root: Path, scope: Scope) -> int:
    return len(list((table(root, scope) / "data").iterdir()))


def versions(root: Path, scope: Scope) -> int:
    return len(list((table(root, scope) / "_versions").glob("*.manifest")))


def on_disk(root: Path, scope: Scope, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in table(root, scope).rglob("*") if path.is_file())


async def until(condition: Callable[[], Any], tidied: asyncio.Event) -> None:
    """Waits until maintenance has made it true."""
    async with asyncio.timeout(30):
        while not condition():
            tidied.clear()
            await tidied.wait()


async def answers(store: Any, scope: Scope, vector: Any) -> tuple[Any, ...]:
    found = await store.by_words(scope, "word7 common", limit=100)
    return (
        await store.items(scope),
        # Statistics are of what was indexed last, so near ties may change places.
        (found[0], set(found)),
        await store.records.semantic(scope, vector, None, limit=20),
        await store.revision(scope),
        await store.records.receipt(scope, "k1"),
    )


async def test_answers_stay_the_same(opened: Opened, scope: Scope, note: Note, tidied: asyncio.Event) -> None:
    store, watcher = await opened(maintenance=often()), await opened(maintenance=often(commits=10_000))
    vector = store.vector("query")
    before: tuple[Any, ...] = ()
    for step in range(5):
        items = [note(f"i{n}", f"common word{n} of step {step}") for n in range(step * 8, step * 8 + 12)]
        await store.put(scope, *items, key=f"k{step}")
        before = await answers(watcher, scope, vector)
    await asyncio.wait_for(tidied.wait(), 20)
    assert await answers(store, scope, vector) == before
    assert await answers(watcher, scope, vector) == before
    again = await opened()
    assert await answers(again, scope, vector) == before
    await store.put(scope, note("later"))
    assert await store.revision(scope) == before[3] + 1


def backlog(*commits: int, rows: int = 0, **overrides: Any) -> Backlog:
    """What piled up by commits of so many rows on a table that had so many when it was tidied."""
    counted = Backlog(MaintenancePolicy(**{"quiet": 1, "settled": 2, **overrides}))
    counted.tidied(rows)
    for size in commits:
        counted.committed(rows=size, erased=False, now=None)
    return counted


def test_commits_and_rows_are_counted_and_large_tables_have_patience() -> None:
    assert backlog(*[1] * 19, commits=20).patience is None
    assert backlog(*[1] * 20, commits=20).patience == 1
    assert backlog(*[1] * 20, commits=20, rows=5_000).patience is None
    assert backlog(*[1] * 199, forced=200).patience == 1
    assert backlog(*[1] * 200, forced=200).patience == 0
    assert backlog(199, rows=1000).patience is None
    assert backlog(200, rows=1000).patience == 2
    assert backlog(1000, rows=1000).patience == 1
    assert backlog(5000, rows=1000).patience == 0
    assert backlog(1000, rows=80_000).patience is None
    assert backlog(10_000, rows=80_000).patience == 2
    assert backlog(20_000, rows=80_000).patience == 1


def test_a_failure_is_tried_again_later_and_later() -> None:
    counted = backlog()
    for tries in (20, 40, 80):
        for _ in range(tries - 1):
            counted.committed(rows=1, erased=False, now=None)
        assert counted.patience is None
        counted.committed(rows=1, erased=False, now=None)
        assert counted.patience is not None
        counted.failed()
    counted.tidied(0)
    assert backlog(*[1] * 20).patience is not None


async def waiting_rows(store: Any, scope: Scope) -> int:
    lance = (await store.records._tables.find(scope)).lance
    return (await lance.index_stats("words_idx")).num_unindexed_rows


async def test_after_a_bulk_load_every_row_is_in_the_index(
    opened: Opened, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=MaintenancePolicy(rows=500, settled=0.01))
    for batch in range(4):
        await store.put(scope, *(note(f"{batch}.{n}", f"word{n} of {batch}") for n in range(100)))
    await asyncio.wait_for(tidied.wait(), 20)
    # Four commits, and fewer rows than the bound: that writes have stopped is enough.
    assert await waiting_rows(store, scope) == 0


async def test_waiting_writes_force_it_in_the_end(
    opened: Opened, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=3, forced=6, quiet=60.0))
    for n in range(200):
        await store.put(scope, note(f"i{n}"))
        if tidied.is_set():
            break
    assert tidied.is_set()
    assert await store.revision(scope) == n + 1 < 200


async def test_old_receipts_go(opened: Opened, scope: Scope, note: Note, clock: Any, tidied: asyncio.Event) -> None:
    store = await opened(maintenance=often(commits=2), receipt_retention=timedelta(days=7))
    began = clock.now
    await store.put(scope, note("a"), key="old")
    clock.now = began + timedelta(days=6)
    await store.put(scope, note("b"), key="new")
    await asyncio.wait_for(tidied.wait(), 20)
    assert await store.records.receipt(scope, "old") is not None
    tidied.clear()
    clock.now = began + timedelta(days=8)
    await store.put(scope, note("c"))
    await store.put(scope, note("d"))
    await asyncio.wait_for(tidied.wait(), 20)
    assert await store.records.receipt(scope, "old") is None
    assert await store.records.receipt(scope, "new") is not None
    assert len(await store.items(scope)) == 4


async def test_what_was_deleted_leaves_the_disk(
    opened: Opened, root: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=10_000, horizon=timedelta(milliseconds=1)))
    await store.put(scope, note("a", "confidential-matter"), note("b"))
    assert on_disk(root, scope, "confidential-matter")
    await store.delete(scope, "a")
    # The first look compacts; what it left to older versions goes with the sweep one horizon later.
    await until(lambda: not on_disk(root, scope, "confidential-matter"), tidied)
    assert await store.ids(scope) == ["b"]


async def test_one_item_deleted_of_many_leaves_the_disk_too(
    opened: Opened, root: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    # Few blanked rows of a file are not worth a compaction to LanceDB by themselves.
    store = await opened(maintenance=often(commits=10_000, horizon=timedelta(milliseconds=1)))
    await store.put(scope, note("a", "confidential-matter"), *(note(f"i{n}", f"other {n}") for n in range(300)))
    await until(lambda: versions(root, scope) == 1, tidied)
    await store.delete(scope, "a")
    await until(lambda: not on_disk(root, scope, "confidential-matter"), tidied)
    assert len(await store.items(scope)) == 300


async def test_a_delete_is_followed_up_without_waiting_for_more(
    opened: Opened, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    # Neither the count of commits nor the sweep comes up within the test.
    store = await opened(maintenance=often(commits=10_000, horizon=timedelta(hours=1)))
    await store.put(scope, note("a"), note("b"))
    await store.delete(scope, "a")
    await asyncio.wait_for(tidied.wait(), 20)


async def test_sweeps_end_when_nothing_old_is_left(
    opened: Opened, root: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=10_000, horizon=timedelta(milliseconds=1)))
    for n in range(3):
        await store.put(scope, note(f"i{n}"))
    await until(lambda: versions(root, scope) == 1, tidied)
    assert store.records._upkeep._agenda.earliest is None


class Kept:
    """A process that leaves its tables as they are."""

    policy = MaintenancePolicy(commits=10_000, rows=10**6, horizon=timedelta(hours=1), quiet=60.0)


async def test_what_a_process_before_left_is_tidied_without_a_write(
    opened: Opened, root: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    first = await opened(maintenance=Kept.policy)
    other = Scope("acme", "never-opened-again")
    for each in (scope, other):
        await first.put(each, note("a", "confidential-matter"), note("b"))
        for n in range(40):
            await first.put(each, note("b", f"rewrite {n}"))
        await first.delete(each, "a")
    await first.memory.close()
    assert not tidied.is_set()
    before = {each: (files(root, each), versions(root, each)) for each in (scope, other)}
    await opened(maintenance=MaintenancePolicy(horizon=timedelta(milliseconds=1), settled=0.0))
    for each in (scope, other):
        assert before[each] > (40, 40)
        await until(lambda each=each: versions(root, each) == 1, tidied)
        assert files(root, each) == 1
        assert not on_disk(root, each, "confidential-matter")


async def test_a_table_on_an_object_store_is_looked_at_when_it_is_first_opened(
    opened: Opened, tmp_path: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    uri = f"file-object-store://{tmp_path}"
    first = await opened(root=uri, maintenance=Kept.policy)
    await first.put(scope, note("a", "confidential-matter"))
    await first.put(scope, note("b"))
    await first.delete(scope, "a")
    await first.memory.close()
    again = await opened(root=uri, maintenance=MaintenancePolicy(horizon=timedelta(milliseconds=1), settled=0.0))
    assert await again.ids(scope) == ["b"]
    await until(lambda: not on_disk(tmp_path, scope, "confidential-matter"), tidied)


async def test_a_table_that_does_not_read_back_keeps_no_other_from_being_tidied(
    opened: Opened, root: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    first = await opened(maintenance=Kept.policy)
    scopes = [Scope("acme", f"d{n}") for n in range(4)]
    for each in scopes:
        await first.put(each, note("a"))
        await first.put(each, note("b"))
    await first.memory.close()
    min((table(root, scopes[0]) / "_versions").glob("*.manifest")).write_bytes(b"")
    await opened(maintenance=MaintenancePolicy(horizon=timedelta(milliseconds=1), settled=0.0))
    await until(lambda: all(versions(root, each) == 1 for each in scopes[1:]), tidied)
    assert versions(root, scopes[0]) > 1


async def test_its_failure_fails_no_write_and_is_not_tried_in_a_loop(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    store = await opened(maintenance=often(commits=2, forced=2))

    async def broken(self: Maintenance, table: Any, **given: Any) -> Any:
        tries.append(1)
        with table.translated("tidy up"):
            raise RuntimeError("no luck at /some/path")

    monkeypatch.setattr(Maintenance, "run", broken)
    for n in range(12):
        await store.put(scope, note(f"i{n}"))
    await store.memory.close()
    assert 1 <= len(tries) <= 3


async def test_reads_do_not_wait_for_it(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    run = Maintenance.run

    async def slow(self: Maintenance, table: Any, **given: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await run(self, table, **given)

    monkeypatch.setattr(Maintenance, "run", slow)
    store = await opened(maintenance=often(commits=1))
    await store.put(scope, note("a", "some words"))
    await asyncio.wait_for(begun.wait(), 20)
    assert await store.by_words(scope, "words") == ["a"]
    assert await store.ids(scope) == ["a"]
    assert await store.records.receipt(scope, "none") is None
    waiting = asyncio.create_task(store.put(scope, note("b")))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done(), "a write that comes meanwhile waits: there is one at the table"
    go_on.set()
    await waiting


async def test_vectors_are_indexed_past_the_threshold(
    opened: Opened, root: Path, scope: Scope, note: Note, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=2), vector_index_threshold=300)
    items = [note(f"i{n}", f"text {n}", user_id="u" if n % 50 == 0 else "v") for n in range(600)]
    wanted = store.vector("text 0")
    await store.put(scope, *items[:300])
    exact = {item.id or "": float(store.vector(item.content) @ wanted) for item in items}
    best = sorted(exact, key=lambda id: -exact[id])
    await store.put(scope, *items[300:])
    semantic = store.records.semantic
    assert [hit.id for hit in await semantic(scope, wanted, None, limit=10)] == best[:10]
    await until(lambda: len(list((table(root, scope) / "_indices").iterdir())) >= 2, tidied)
    hits = await semantic(scope, wanted, None, limit=10)
    assert len({hit.id for hit in hits} & set(best[:10])) >= 9
    assert [hit.score for hit in hits] == pytest.approx([exact[hit.id] for hit in hits], abs=1e-5)
    # New rows are found before the index takes them in, and a narrow filter still fills the list.
    await store.put(scope, note("new", "text 0"))
    assert {"new", "i0"} == {hit.id for hit in await semantic(scope, wanted, None, limit=2)}
    narrow = Compare(Field("user_id"), Op.EQ, "u")
    assert len(await semantic(scope, wanted, narrow, limit=12)) == 12


@pytest.mark.parametrize(
    ("failure", "rebuilt"),
    [
        ("Commit conflict for version 7", False),
        ("IO error: No space left on device", False),
        ("file is corrupt", True),
        ("position is not covered by the posting list", True),
    ],
)
async def test_only_what_may_be_damage_makes_the_full_text_index_anew(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch, failure: str, rebuilt: bool
) -> None:
    indexed: list[str] = []
    real = lancedb.AsyncTable.create_index

    async def create_index(self: Any, column: str, **given: Any) -> None:
        indexed.append(column)
        await real(self, column, **given)

    tried = asyncio.Event()

    async def optimize(self: Any, **given: Any) -> None:
        tried.set()
        raise RuntimeError(failure)

    store = await opened(maintenance=often(commits=2))
    await store.put(scope, note("a", "some words"))
    monkeypatch.setattr(lancedb.AsyncTable, "create_index", create_index)
    monkeypatch.setattr(lancedb.AsyncTable, "optimize", optimize)
    await store.put(scope, note("b", "more words"))
    await asyncio.wait_for(tried.wait(), 20)
    await store.memory.close()
    assert indexed == (["words"] if rebuilt else [])


# Memories that expired


async def test_what_expired_long_ago_is_erased(
    opened: Opened, root: Path, scope: Scope, note: Note, clock: Any, tidied: asyncio.Event
) -> None:
    policy = often(commits=2, horizon=timedelta(milliseconds=1))
    store, other = await opened(maintenance=policy, expired_retention=timedelta(days=7)), await opened()
    soon = clock.now + timedelta(hours=1)
    await store.put(scope, note("gone", "confidential-matter", expire_time=soon), note("stays"))
    await store.put(scope, note("later", expire_time=clock.now + timedelta(days=30)))
    revision = await store.revision(scope)
    clock.now = soon + timedelta(days=6)
    await store.put(scope, note("x"))
    await store.put(scope, note("y"))
    await until(lambda: versions(root, scope) == 1, tidied)
    assert on_disk(root, scope, "confidential-matter"), "kept for as long as the setting says"
    clock.now = soon + timedelta(days=7, seconds=1)
    await store.put(scope, note("x", "again"))
    await store.put(scope, note("y", "again"))
    await until(lambda: not on_disk(root, scope, "confidential-matter"), tidied)
    for each in (store, other):
        assert set(await each.ids(scope)) == {"stays", "later", "x", "y"}
        assert await each.by_words(scope, "confidential-matter") == []
        assert await each.revision(scope) == revision + 5, "four writes, and the tombstone has a revision of its own"
    async with other.records.turn(scope) as turn:
        tombstone = (await turn.snapshot(["gone"])).records["gone"]
    assert (tombstone.live, tombstone.body, tombstone.revision) == (False, None, revision + 5)
    await other.put(scope, note("gone", "anew"))
    assert (await other.ids(scope))[0] == "gone"


async def test_it_needs_no_write(
    opened: Opened, scope: Scope, note: Note, clock: Any, tidied: asyncio.Event, root: Path
) -> None:
    policy = often(commits=1_000, horizon=timedelta(milliseconds=1))
    store = await opened(maintenance=policy, expired_retention=timedelta(0))
    await store.put(scope, note("a", "confidential-matter", expire_time=clock.now + timedelta(seconds=0.2)), note("b"))
    clock.now += timedelta(seconds=0.3)
    await until(lambda: not on_disk(root, scope, "confidential-matter"), tidied)
    assert await store.ids(scope) == ["b"]


async def test_a_process_before_may_have_left_what_expires(
    opened: Opened,
    root: Path,
    scope: Scope,
    note: Note,
    clock: Any,
    tidied: asyncio.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = await opened(maintenance=often(horizon=timedelta(milliseconds=1)))
    await first.put(scope, note("a", "confidential-matter", expire_time=clock.now + timedelta(days=1)), note("b"))
    await until(lambda: versions(root, scope) == 1, tidied)
    await first.memory.close()
    clock.now += timedelta(days=9)
    monkeypatch.setattr(upkeep, "_FIRST_ROUND", 0.0)
    await opened(maintenance=MaintenancePolicy(horizon=timedelta(milliseconds=1)))
    await until(lambda: not on_disk(root, scope, "confidential-matter"), tidied)


async def test_nobody_commits_between_the_look_and_the_tombstones(
    opened: Opened, tmp_path: Path, scope: Scope, note: Note, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be locked, a memory that gets a longer life meanwhile keeps it."""
    uri = f"file-object-store://{tmp_path}"
    store, other = await opened(root=uri), await opened(root=uri)
    await store.put(scope, note("a", expire_time=clock.now + timedelta(days=1)))
    clock.now += timedelta(days=9)
    real = expiry.to_records
    done: list[Any] = []

    def read(rows: Any) -> Any:
        if not done:
            done.append(rows)
            asyncio.run_coroutine_threadsafe(
                other.memory.commit(WriteBatch([note("a", "longer")]), ctx=Ctx(scope)), loop
            ).result()
        return real(rows)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(expiry, "to_records", read)
    table = await store.records._tables.find(scope)
    with pytest.raises(HeadMoved):
        await expiry.erase_expired(table, clock.now - timedelta(days=7), now=clock.now)
    assert [item.content for item in await store.items(scope)] == ["longer"]
