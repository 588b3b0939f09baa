"""Tidying up changes no answer, takes what is old off the disk, and never fails a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalld.filters import Compare, Exists, Field, Op
from recalld.scope import Scope
from recalld_server.adapters.lancedb import LanceStore, MaintenancePolicy
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.adapters.lancedb.maintenance import Maintenance
from recalld_server.ports import Receipt, Row

Opened = Callable[..., Any]
MakeRow = Callable[..., Row]
ANY = Exists(Field("id"))


@pytest.fixture
def tidied(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set each time that a table was tidied."""
    event = asyncio.Event()
    run = Maintenance.run

    async def watched(self: Maintenance, table: Any) -> None:
        await run(self, table)
        event.set()

    monkeypatch.setattr(Maintenance, "run", watched)
    return event


def often(**overrides: Any) -> MaintenancePolicy:
    return MaintenancePolicy(**{"commits": 5, "quiet": 0.0, **overrides})


def table(root: Path, scope: Scope) -> Path:
    return root / "tables" / f"{table_name(scope)}.lance"


def files(root: Path, scope: Scope) -> int:
    return len(list((table(root, scope) / "data").iterdir()))


def on_disk(root: Path, scope: Scope, text: str) -> bool:
    return any(text.encode() in path.read_bytes() for path in table(root, scope).rglob("*") if path.is_file())


async def answers(store: LanceStore, scope: Scope, vector: Any) -> tuple[Any, ...]:
    return (
        (await store.newest(scope, None, limit=500, before=None)).items,
        [hit.id for hit in (await store.lexical(scope, "word7 common", None, limit=20)).candidates],
        await store.semantic(scope, vector, None, limit=20),
        await store.revision(scope),
        await store.receipt(scope, Receipt("k1", "f")),
    )


async def test_answers_stay_the_same(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    store, watcher = await opened(maintenance=often()), await opened(maintenance=often(commits=10_000))
    vector = row("query").vector
    before: tuple[Any, ...] = ()
    for step in range(5):
        rows = [row(f"i{n}", f"common word{n} of step {step}") for n in range(step * 8, step * 8 + 12)]
        await store.put(scope, rows, Receipt(f"k{step}", "f"), now=now)
        before = await answers(watcher, scope, vector)
    await asyncio.wait_for(tidied.wait(), 20)
    assert await answers(store, scope, vector) == before
    assert await answers(watcher, scope, vector) == before
    again = await opened()
    assert await answers(again, scope, vector) == before
    assert (await store.put(scope, [row("later")], None, now=now)).revision == before[3] + 1


async def test_waiting_writes_force_it_in_the_end(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=3, forced=6, quiet=60.0), group_rows=1)
    commits = await asyncio.gather(*(store.put(scope, [row(f"i{n}")], None, now=now) for n in range(12)))
    assert tidied.is_set()
    assert sorted(commit.revision for commit in commits) == list(range(1, 13))


async def test_old_receipts_go(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=2), receipt_retention=timedelta(days=7))
    await store.put(scope, [row("a")], Receipt("old", "f"), now=now)
    await store.put(scope, [row("b")], Receipt("new", "f"), now=now + timedelta(days=6))
    await asyncio.wait_for(tidied.wait(), 20)
    assert await store.receipt(scope, Receipt("old", "f")) is not None
    tidied.clear()
    await store.put(scope, [row("c")], None, now=now + timedelta(days=8))
    await store.put(scope, [row("d")], None, now=now + timedelta(days=8))
    await asyncio.wait_for(tidied.wait(), 20)
    assert await store.receipt(scope, Receipt("old", "f")) is None
    assert await store.receipt(scope, Receipt("new", "f")) is not None
    assert len((await store.newest(scope, None, limit=9, before=None)).items) == 4


async def test_what_was_deleted_leaves_the_disk(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=10_000, horizon=timedelta(milliseconds=1)))
    await store.put(scope, [row("a", "confidential-matter"), row("b")], None, now=now)
    assert on_disk(root, scope, "confidential-matter")
    await store.delete(scope, ["a"], ANY, dry_run=False, now=now)
    await asyncio.wait_for(tidied.wait(), 20)
    # The first pass compacts; what it left to older versions goes with the sweep one horizon later.
    tidied.clear()
    if on_disk(root, scope, "confidential-matter"):
        await asyncio.wait_for(tidied.wait(), 20)
    assert not on_disk(root, scope, "confidential-matter")
    assert [item.id for item in (await store.newest(scope, None, limit=9, before=None)).items] == ["b"]


async def test_a_delete_is_followed_up_without_waiting_for_more(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    # Neither the count of commits nor the sweep comes up within the test.
    store = await opened(maintenance=often(commits=10_000, horizon=timedelta(hours=1)))
    await store.put(scope, [row("a"), row("b")], None, now=now)
    await store.delete(scope, ["a"], ANY, dry_run=False, now=now)
    await asyncio.wait_for(tidied.wait(), 20)


async def test_what_a_process_before_left_is_tidied(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    first = await opened(maintenance=often(commits=10_000))
    for n in range(8):
        await first.put(scope, [row(f"i{n}")], None, now=now)
    await first.close()
    assert not tidied.is_set()
    store = await opened(maintenance=often(commits=8, horizon=timedelta(milliseconds=1)))
    await store.put(scope, [row("one more")], None, now=now)
    await asyncio.wait_for(tidied.wait(), 20)
    assert files(root, scope) < 9


async def test_its_failure_fails_no_write_and_is_not_tried_in_a_loop(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    store = await opened(maintenance=often(commits=2, forced=2))

    async def broken(self: Maintenance, table: Any) -> None:
        tries.append(1)
        with table.translated("tidy up"):
            raise RuntimeError("no luck at /some/path")

    monkeypatch.setattr(Maintenance, "run", broken)
    for n in range(12):
        await store.put(scope, [row(f"i{n}")], None, now=now)
    await store.close()
    assert 1 <= len(tries) <= 3


async def test_vectors_are_indexed_past_the_threshold(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, tidied: asyncio.Event
) -> None:
    store = await opened(maintenance=often(commits=2), vector_index_threshold=300)
    rows = [row(f"i{n}", user_id="u" if n % 50 == 0 else "v") for n in range(600)]
    await store.put(scope, rows[:300], None, now=now)
    await store.put(scope, rows[300:], None, now=now)
    exact = {each.item.id: float(each.vector @ rows[0].vector) for each in rows}
    best = sorted(exact, key=lambda id: -exact[id])
    assert [hit.id for hit in await store.semantic(scope, rows[0].vector, None, limit=10)] == best[:10]
    await asyncio.wait_for(tidied.wait(), 60)
    assert len(list((table(root, scope) / "_indices").iterdir())) >= 2
    hits = await store.semantic(scope, rows[0].vector, None, limit=10)
    assert len({hit.id for hit in hits} & set(best[:10])) >= 9
    assert [hit.score for hit in hits] == pytest.approx([exact[hit.id] for hit in hits], abs=1e-5)
    # New rows are found before the index takes them in, and a narrow filter still fills the list.
    await store.put(scope, [Row(row("new").item, np.asarray(rows[0].vector))], None, now=now)
    assert {"new", "i0"} == {hit.id for hit in await store.semantic(scope, rows[0].vector, None, limit=2)}
    narrow = Compare(Field("user_id"), Op.EQ, "u")
    assert len(await store.semantic(scope, rows[0].vector, narrow, limit=12)) == 12


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
    opened: Opened,
    scope: Scope,
    row: MakeRow,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
    rebuilt: bool,
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
    await store.put(scope, [row("a", "some words")], None, now=now)
    monkeypatch.setattr(lancedb.AsyncTable, "create_index", create_index)
    monkeypatch.setattr(lancedb.AsyncTable, "optimize", optimize)
    await store.put(scope, [row("b", "more words")], None, now=now)
    await asyncio.wait_for(tried.wait(), 20)
    await store.close()
    assert indexed == (["words"] if rebuilt else [])
