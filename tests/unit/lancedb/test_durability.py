"""What is answered is on the disk first, and what a snapshot or a receipt tells too, whoever wrote it."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from recalld.errors import SourceUnavailable
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb.layout import table_name

Opened = Callable[..., Any]
Note = Callable[..., MemoryItem]
Tell = Callable[[Any, Scope, MemoryItem], Awaitable[bool]]

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells open files by /proc")


class Disk:
    """Stands before fsync: notes what reached it, and can be broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: set[str] = set()
        self.broken = False
        real = os.fsync

        def fsync(handle: int) -> None:
            if self.broken:
                raise OSError(errno.EIO, "broken")
            self.synced.add(os.readlink(f"/proc/self/fd/{handle}"))
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def _repeat(store: Any, scope: Scope, item: MemoryItem) -> bool:
    return (await store.put(scope, item, key="key")).replayed


async def _receipt(store: Any, scope: Scope, item: MemoryItem) -> bool:
    return await store.records.receipt(scope, "key") is not None


async def _turn(store: Any, scope: Scope, item: MemoryItem) -> bool:
    async with store.records.turn(scope) as turn:
        return "key" in (await turn.snapshot(["a"], receipts=["key"])).receipts


@pytest.fixture(params=[_repeat, _receipt, _turn], ids=["repeat", "receipt", "turn"])
def tell(request: pytest.FixtureRequest) -> Tell:
    """A call that tells of a write under the key, and says whether it did."""
    return request.param


def tree(root: Path, scope: Scope) -> set[str]:
    """Every file and folder of a scope's table, the table itself and the folder that names it."""
    table = root / "tables" / f"{table_name(scope)}.lance"
    return {str(path) for path in table.rglob("*")} | {str(table), str(table.parent)}


def files(paths: set[str]) -> set[str]:
    return {path for path in paths if Path(path).is_file()}


async def test_everything_new_is_on_the_disk_before_the_answer(
    opened: Opened, root: Path, scope: Scope, note: Note, disk: Disk
) -> None:
    store = await opened(durability="fsync")
    disk.synced.clear()
    await store.put(scope, note("a"))
    known = tree(root, scope)
    assert known <= disk.synced
    for change in (
        lambda: store.put(scope, note("a"), note("b"), key="k"),
        lambda: store.delete(scope, "a"),
    ):
        disk.synced.clear()
        await change()
        new = tree(root, scope) - known
        assert new
        assert new | {str(Path(path).parent) for path in new} <= disk.synced
        assert not disk.synced & files(known), "a file is synced once"
        known |= new


async def test_commit_durability_leaves_the_disk_alone(opened: Opened, scope: Scope, note: Note, disk: Disk) -> None:
    store = await opened(durability="commit")
    disk.synced.clear()
    await store.put(scope, note("a"))
    assert disk.synced == set()


async def test_after_a_failed_sync(
    opened: Opened, root: Path, scope: Scope, note: Note, disk: Disk, tell: Tell
) -> None:
    store = await opened(durability="fsync")
    disk.broken = True
    with pytest.raises(SourceUnavailable):
        await store.put(scope, note("a"), key="key")
    with pytest.raises(SourceUnavailable):
        await tell(store, scope, note("a"))
    disk.broken = False
    assert await tell(store, scope, note("a"))
    assert tree(root, scope) <= disk.synced


async def test_after_a_process_that_died_before_its_sync(
    opened: Opened, root: Path, scope: Scope, note: Note, disk: Disk, tell: Tell
) -> None:
    dead = await opened(durability="commit")
    await dead.put(scope, note("a"), key="key")
    assert not tree(root, scope) & disk.synced
    store = await opened(durability="fsync")
    assert await tell(store, scope, note("a"))
    assert tree(root, scope) <= disk.synced


async def test_after_another_process_died_while_this_one_runs(
    opened: Opened, root: Path, scope: Scope, note: Note, disk: Disk, tell: Tell
) -> None:
    store, dead = await opened(durability="fsync"), await opened(durability="commit")
    await store.put(scope, note("first"))
    await dead.put(scope, note("a"), key="key")
    assert not tree(root, scope) <= disk.synced
    assert await tell(store, scope, note("a"))
    assert tree(root, scope) <= disk.synced


async def test_once_it_is_there_nothing_is_synced_again(
    opened: Opened, scope: Scope, note: Note, disk: Disk, tell: Tell
) -> None:
    store = await opened(durability="fsync")
    await store.put(scope, note("a"), key="key")
    disk.broken = True
    assert await tell(store, scope, note("a"))
