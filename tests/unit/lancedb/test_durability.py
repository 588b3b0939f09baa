"""A repeat of a write is answered only once what it repeats is on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recalld.errors import SourceUnavailable
from recalld.scope import Scope
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.ports import Commit, Receipt, Row

Opened = Callable[..., Any]
MakeRow = Callable[..., Row]
Repeat = Callable[[Any, Scope, Row, datetime], Awaitable[Commit | None]]
RECEIPT = Receipt("key", "print")

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


async def _put(store: Any, scope: Scope, row: Row, now: datetime) -> Commit | None:
    return await store.put(scope, [row], RECEIPT, now=now)


async def _receipt(store: Any, scope: Scope, row: Row, now: datetime) -> Commit | None:
    return await store.receipt(scope, RECEIPT)


@pytest.fixture(params=[_put, _receipt], ids=["put", "receipt"])
def repeat(request: pytest.FixtureRequest) -> Repeat:
    return request.param


def tree(root: Path, scope: Scope) -> set[str]:
    table = root / "tables" / f"{table_name(scope)}.lance"
    return {str(path) for path in table.rglob("*")} | {str(table), str(table.parent)}


async def test_after_a_failed_sync(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, disk: Disk, repeat: Repeat
) -> None:
    store = await opened(durability="fsync")
    disk.broken = True
    with pytest.raises(SourceUnavailable):
        await store.put(scope, [row("a")], RECEIPT, now=now)
    with pytest.raises(SourceUnavailable):
        await repeat(store, scope, row("a"), now)
    disk.broken = False
    commit = await repeat(store, scope, row("a"), now)
    assert commit is not None
    assert commit.replayed
    assert tree(root, scope) <= disk.synced


async def test_after_a_process_that_died_before_its_sync(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, disk: Disk, repeat: Repeat
) -> None:
    dead = await opened(durability="commit")
    await dead.put(scope, [row("a")], RECEIPT, now=now)
    assert not tree(root, scope) & disk.synced
    store = await opened(durability="fsync")
    assert await repeat(store, scope, row("a"), now) is not None
    assert tree(root, scope) <= disk.synced


async def test_after_another_process_died_while_this_one_runs(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, disk: Disk, repeat: Repeat
) -> None:
    store, dead = await opened(durability="fsync"), await opened(durability="commit")
    await store.put(scope, [row("first")], None, now=now)
    await dead.put(scope, [row("a")], RECEIPT, now=now)
    assert not tree(root, scope) <= disk.synced
    assert await repeat(store, scope, row("a"), now) is not None
    assert tree(root, scope) <= disk.synced


async def test_once_it_is_there_nothing_is_synced_again(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, disk: Disk, repeat: Repeat
) -> None:
    store = await opened(durability="fsync")
    await store.put(scope, [row("a")], RECEIPT, now=now)
    disk.broken = True
    assert await repeat(store, scope, row("a"), now) is not None
