"""A full disk is told as such, with what to do, and nothing is lost by it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recalld.errors import StorageFull
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb.engine import lancedb

Opened = Callable[..., Any]
Note = Callable[..., MemoryItem]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounts a small disk, which only root may")
    yield place
    subprocess.run([shutil.which("umount") or "umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    """Leaves no room at all on the disk."""
    with (place / "ballast").open("ab", buffering=0) as file:
        for size in (65_536, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)


async def test_nothing_is_lost_and_the_error_says_what_to_do(
    opened: Opened, small: Path, scope: Scope, note: Note
) -> None:
    store = await opened(root=small / "data", durability="fsync")
    await store.put(scope, note("a", "some words"), note("b"))
    fill(small)
    for change in (
        lambda: store.put(scope, note("c"), key="k"),
        lambda: store.delete(scope, "a"),
        lambda: store.put(Scope("acme", "never-written"), note("a")),
    ):
        with pytest.raises(StorageFull, match=r"disk .* is full \(0 of 4 MiB are free\)\. Free some space .* delete"):
            await change()
    assert await store.ids(scope) == ["b", "a"]
    assert await store.by_words(scope, "words") == ["a"]
    assert await store.records.receipt(scope, "k") is None
    (small / "ballast").unlink()
    assert await store.delete(scope, "a") == 1
    await store.put(scope, note("c"), key="k")
    await store.put(Scope("acme", "never-written"), note("a"))
    assert await store.ids(scope) == ["c", "b"]
    assert await store.revision(scope) == 4


async def test_it_is_told_where_the_file_system_says_so(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(durability="fsync")
    await store.put(scope, note("a"))

    def fsync(handle: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fsync)
        with pytest.raises(StorageFull, match="disk of the data directory is full"):
            await store.put(scope, note("b"))
    await store.put(scope, note("c"))


async def test_it_is_told_where_the_engine_says_so(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened()
    await store.put(scope, note("a"))

    async def execute(self: Any, *args: Any, **given: Any) -> Any:
        raise RuntimeError("lance error: IO error: /secret/path: No space left on device (os error 28)")

    monkeypatch.setattr(lancedb.merge.LanceMergeInsertBuilder, "execute", execute)
    with pytest.raises(StorageFull, match="disk of the data directory is full") as caught:
        await store.put(scope, note("b"))
    assert "secret" not in caught.value.message
    assert caught.value.details == {"resource": "disk"}
