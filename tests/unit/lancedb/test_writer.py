"""Many callers, several stores on one directory, durability, and death in mid-write."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recalld.filters import Exists, Field
from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb import writer
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.tables import OpenTable
from recalld_server.ports import Patch, Receipt, Row

Opened = Callable[..., Any]
MakeRow = Callable[..., Row]
ANY = Exists(Field("id"))


def versions(root: Path, scope: Scope) -> int:
    return len(list((root / "tables" / f"{table_name(scope)}.lance" / "_versions").glob("*.manifest")))


def setting(name: str, value: int) -> Patch:
    return Patch(MemoryItem("", "", metadata={name: value}, id="a"), [("metadata", name)])


async def all_items(store: Any, scope: Scope) -> list[MemoryItem]:
    return list((await store.newest(scope, None, limit=5000, before=None)).items)


def revisions(items: list[MemoryItem]) -> list[int]:
    return [(item.attributes or MemoryAttributes()).revision for item in items]


async def test_what_waits_together_is_committed_together(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    await store.put(scope, [row("first")], None, now=now)
    before = versions(root, scope)
    await asyncio.gather(*(store.put(scope, [row(f"i{n}")], Receipt(f"k{n}", "f"), now=now) for n in range(50)))
    assert versions(root, scope) - before <= 2
    assert len(await all_items(store, scope)) == 51


async def test_callers_are_held_back_and_all_answered(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened(waiting=3, group_rows=2)
    commits = await asyncio.gather(*(store.put(scope, [row(f"i{n}")], None, now=now) for n in range(20)))
    assert sorted(commit.revision for commit in commits) == list(range(1, 21))


async def test_a_caller_that_goes_away_takes_nobody_with_it(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    calls = [asyncio.create_task(store.put(scope, [row(f"i{n}")], None, now=now)) for n in range(4)]
    await asyncio.sleep(0)
    calls[1].cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in done] == [False, True, False, False]
    assert {"i0", "i2", "i3"} <= {item.id for item in await all_items(store, scope)}


async def test_an_engine_failure_reaches_every_waiting_caller(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    await store.put(scope, [row("a")], None, now=now)
    (root / "locks" / f"{table_name(scope)}.lock").unlink()
    (root / "locks").rmdir()
    results = await asyncio.gather(
        *(store.put(scope, [row(f"i{n}")], None, now=now) for n in range(3)), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["SourceUnavailable"] * 3
    (root / "locks").mkdir()
    assert (await store.put(scope, [row("b")], None, now=now)).revision == 2


async def test_two_stores_on_one_directory_leave_one_row_a_key(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime
) -> None:
    one, two = await opened(), await opened()
    seen: list[int] = []

    async def write(store: Any, who: int) -> None:
        for step in range(12):
            commit = await store.put(scope, [row(f"k{step}", f"by {who}"), row(f"{who}-{step}")], None, now=now)
            seen.append(commit.revision)

    await asyncio.gather(write(one, 1), write(two, 2), write(one, 3), write(two, 4))
    items = await all_items(one, scope)
    assert sorted(item.id or "" for item in items) == sorted(
        [f"k{step}" for step in range(12)] + [f"{who}-{step}" for who in (1, 2, 3, 4) for step in range(12)]
    )
    assert len(set(seen)) == 48
    assert len(set(revisions(items))) == len(items)
    assert await one.revision(scope) == await two.revision(scope) == max(seen)
    assert await all_items(two, scope) == items


async def test_one_store_sees_at_once_what_the_other_did(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime
) -> None:
    one, two = await opened(), await opened()
    for step in range(4):
        writer, reader = (one, two) if step % 2 else (two, one)
        commit = await writer.put(scope, [row(f"i{step}", f"word{step}")], Receipt(f"k{step}", "f"), now=now)
        assert await reader.revision(scope) == commit.revision
        assert [hit.id for hit in (await reader.lexical(scope, f"word{step}", None, limit=1)).candidates] == [
            f"i{step}"
        ]
        assert (await reader.put(scope, [row("other")], Receipt(f"k{step}", "f"), now=now)).replayed
        await reader.delete(scope, [f"i{step}"], ANY, dry_run=False, now=now)
        assert await writer.read(scope, [f"i{step}"], None) == []


async def test_updates_through_two_stores_do_not_undo_each_other(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime
) -> None:
    one, two = await opened(), await opened()
    await one.put(scope, [row("a")], None, now=now)
    await asyncio.gather(
        *(store.update(scope, setting(f"k{n}", n), ANY, now=now) for n, store in enumerate([one, two] * 5))
    )
    (item,) = await two.read(scope, ["a"], None)
    assert item.metadata == {f"k{n}": n for n in range(10)}


async def test_first_writes_of_a_scope_through_two_stores(opened: Opened, row: MakeRow, now: datetime) -> None:
    one, two = await opened(), await opened()
    for n in range(4):
        scope = Scope("acme", f"fresh{n}")
        await asyncio.gather(*(store.put(scope, [row("k")], None, now=now) for store in (one, two)))
        assert len(await all_items(one, scope)) == 1
        assert await two.revision(scope) == 2


async def test_a_table_left_without_its_index_by_a_crash_is_completed(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened()
    with monkeypatch.context() as crash:
        crash.setattr(OpenTable, "ensure_indexed", lambda self: asyncio.sleep(0))
        await store.put(scope, [row("a", "some words")], None, now=now)
    reader = await opened()
    assert [hit.id for hit in (await reader.lexical(scope, "words", None, limit=5)).candidates] == ["a"]
    assert (await reader.put(scope, [row("b", "more words")], None, now=now)).revision == 2
    assert [hit.id for hit in (await store.lexical(scope, "more", None, limit=5)).candidates] == ["b"]


async def test_files_of_a_table_that_was_never_made_are_no_table(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    (root / "tables" / f"{table_name(scope)}.lance" / "data").mkdir(parents=True)
    (root / "tables" / f"{table_name(scope)}.lance" / "data" / "half.lance").write_bytes(b"half")
    assert await store.revision(scope) == 0
    assert (await store.put(scope, [row("a")], None, now=now)).revision == 1
    assert len(await all_items(store, scope)) == 1


async def test_conflicts_with_a_writer_that_holds_no_lock_are_worked_out(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on an object store, where nothing can be locked.
    monkeypatch.setattr(TableLocks, "hold", lambda self, path: nullcontext())
    one, two = await opened(), await opened()
    await asyncio.gather(
        *(store.put(scope, [row(f"k{n // 2}")], None, now=now) for n, store in enumerate([one, two] * 10))
    )
    assert sorted(item.id or "" for item in await all_items(one, scope)) == sorted(f"k{n}" for n in range(10))


class Synced:
    """Paths that were given to fsync, by way of the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: set[str] = set()
        real = os.fsync

        def fsync(handle: int) -> None:
            self.paths.add(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)


def tree(root: Path, scope: Scope) -> set[str]:
    """Every file and folder of a scope's table, the table itself and the folder that names it."""
    table = root / "tables" / f"{table_name(scope)}.lance"
    return {str(path) for path in table.rglob("*")} | {str(table), str(table.parent)}


def files(paths: set[str]) -> set[str]:
    return {path for path in paths if Path(path).is_file()}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells open files by /proc")
async def test_everything_new_is_on_the_disk_before_the_answer(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(durability="fsync")
    synced = Synced(monkeypatch)
    await store.put(scope, [row("a")], None, now=now)
    known = tree(root, scope)
    assert known <= synced.paths
    for change in (
        lambda: store.put(scope, [row("a"), row("b")], Receipt("k", "f"), now=now),
        lambda: store.delete(scope, ["a"], ANY, dry_run=False, now=now),
    ):
        synced.paths.clear()
        await change()
        new = tree(root, scope) - known
        assert new
        assert new | {str(Path(path).parent) for path in new} <= synced.paths
        assert not synced.paths & files(known), "a file is synced once"
        known |= new


async def test_commit_durability_leaves_the_disk_alone(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(durability="commit")
    synced = Synced(monkeypatch)
    await store.put(scope, [row("a")], None, now=now)
    assert synced.paths == set()


_CHILD = """
import asyncio, sys
from datetime import UTC, datetime
import numpy as np
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb import LanceConfig, open_store
from recalld_server.ports import ModelIdentity, Receipt, Row

async def main(root, who):
    model = ModelIdentity("tiny", 8, "0" * 64, 16)
    store = await open_store(LanceConfig(name="memory", root=root, model=model))
    vector = np.ones(8, np.float32)

    async def write(lane):
        for step in range(100000):
            rows = [Row(MemoryItem("text", "x", id=id), vector) for id in (f"{who}-{lane}-{step}", "shared")]
            commit = await store.put(
                Scope("acme", "support"), rows, Receipt(f"{who}-{lane}-{step}", "f"), now=datetime.now(UTC)
            )
            print(f"{who}-{lane}-{step} {commit.revision}", flush=True)

    await asyncio.gather(write(0), write(1))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_process_loses_nothing_that_it_acknowledged(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    def killed_after(who: str, lines: int) -> list[str]:
        command = [sys.executable, "-c", _CHILD, str(root), who]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        read = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        # What was printed before the kill counts as well; a last line may be cut.
        read += [line for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        child.stdout.close()
        child.wait()
        return [line.strip() for line in read]

    acknowledged = await asyncio.gather(
        asyncio.to_thread(killed_after, "p", 4), asyncio.to_thread(killed_after, "q", 7)
    )
    lines = [line.split() for each in acknowledged for line in each]
    assert len(lines) >= 11
    store = await opened()
    items = {item.id: item for item in await all_items(store, scope)}
    assert {key for key, _ in lines} <= set(items)
    assert len({revision for _, revision in lines}) == len(lines)
    for key, revision in lines:
        commit = await store.receipt(scope, Receipt(key, "f"))
        assert commit is not None
        assert str(commit.revision) == revision
    # And the survivors' lock is free, and the state sound.
    commit = await store.put(scope, [row("after")], None, now=now)
    assert commit.revision > max(int(revision) for _, revision in lines)
    assert len(set(revisions(list(items.values())))) == len(items)


async def test_a_large_delete_goes_in_steps_and_counts_them_all(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ERASED_AT_ONCE", 4)
    store = await opened()
    await store.put(scope, [row(f"i{n}") for n in range(10)], None, now=now)
    assert (await store.delete(scope, ANY, ANY, dry_run=False, now=now))[0] == 10
    assert await all_items(store, scope) == []
    assert await store.revision(scope) == 20
