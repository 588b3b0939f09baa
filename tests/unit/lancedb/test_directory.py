"""What a data directory is, what is refused, and that nothing refused is touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalld.errors import EmbeddingModelMismatch, SourceUnavailable, StorageCorrupt
from recalld.filters import Exists, Field
from recalld.scope import Scope
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.ports import ModelIdentity, Receipt, Row

Opened = Callable[..., Any]
MakeRow = Callable[..., Row]
OTHER = Scope("acme", "sales")


def contents(root: Path) -> dict[str, str]:
    """Every file below `root` with a digest of its bytes."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def fill(root: Path, name: str, text: str) -> None:
    root.mkdir(exist_ok=True)
    (root / name).write_text(text)


def newest_manifest(root: Path, scope: Scope) -> Path:
    return min((root / "tables" / f"{table_name(scope)}.lance" / "_versions").glob("*.manifest"))


async def test_a_new_directory_is_marked(opened: Opened, root: Path) -> None:
    await opened(root=root / "deep" / "er")
    assert json.loads((root / "deep" / "er" / "recalld.json").read_text()) == {"format": 1}


async def test_reads_make_no_files(opened: Opened, root: Path, scope: Scope, now: datetime) -> None:
    store = await opened()
    before = contents(root)
    await store.lexical(scope, "x", None, limit=1)
    await store.newest(scope, None, limit=1, before=None)
    await store.receipt(scope, Receipt("k", "f"))
    await store.delete(scope, ["a"], Exists(Field("id")), dry_run=False, now=now)
    assert contents(root) == before
    assert list(before) == ["recalld.json"]


async def test_a_fresh_volume_counts_as_empty(opened: Opened, root: Path) -> None:
    (root / "lost+found").mkdir(parents=True)
    await opened()


@pytest.mark.parametrize(
    ("name", "text"),
    [("notes.txt", "mine"), ("recalld.json", '{"format": 2}'), ("recalld.json", ""), ("recalld.json", "[1]")],
)
async def test_a_directory_that_is_not_understood_is_refused(opened: Opened, root: Path, name: str, text: str) -> None:
    fill(root, name, text)
    before = contents(root)
    with pytest.raises(StorageCorrupt, match=r"data directory .*Nothing was changed"):
        await opened()
    assert contents(root) == before
    assert list(contents(root)) == [name]


async def test_a_file_is_no_data_directory(opened: Opened, root: Path) -> None:
    fill(root.parent, root.name, "x")
    with pytest.raises(StorageCorrupt, match="is not a directory"):
        await opened()
    with pytest.raises(SourceUnavailable):
        await opened(root=root / "below")


async def test_everything_is_there_after_a_restart(opened: Opened, scope: Scope, row: MakeRow, now: datetime) -> None:
    first = await opened()
    commit = await first.put(scope, [row("a", "some words", metadata={"n": 1})], Receipt("k", "f"), now=now)
    items = (await first.newest(scope, None, limit=9, before=None)).items
    await first.close()
    again = await opened()
    assert (await again.newest(scope, None, limit=9, before=None)).items == items
    assert await again.receipt(scope, Receipt("k", "f")) == replace(commit, replayed=True)
    assert [hit.id for hit in (await again.lexical(scope, "words", None, limit=1)).candidates] == ["a"]
    assert (await again.put(scope, [row("b")], None, now=now)).revision == commit.revision + 1


async def test_an_empty_manifest_closes_its_scope_only(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    for each in (scope, OTHER):
        await store.put(each, [row("a")], None, now=now)
        await store.put(each, [row("b")], None, now=now)
    await store.close()
    manifest = newest_manifest(root, scope)
    manifest.write_bytes(b"")
    before = contents(root)

    store = await opened()
    for call in (
        store.newest(scope, None, limit=1, before=None),
        store.lexical(scope, "note", None, limit=1),
        store.put(scope, [row("c")], None, now=now),
        store.delete(scope, ["a"], Exists(Field("id")), dry_run=False, now=now),
    ):
        with pytest.raises(StorageCorrupt) as caught:
            await call
        assert manifest.relative_to(root).as_posix() in caught.value.message
        assert str(root) not in caught.value.message
    assert {name: digest for name, digest in contents(root).items() if not name.startswith("locks/")} == {
        name: digest for name, digest in before.items() if not name.startswith("locks/")
    }
    assert len((await store.newest(OTHER, None, limit=9, before=None)).items) == 2
    await store.put(OTHER, [row("c")], None, now=now)


@pytest.mark.parametrize("damage", ["manifest cut", "manifest overwritten", "data cut", "data gone"])
async def test_damage_is_told_as_such(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime, damage: str
) -> None:
    store = await opened()
    await store.put(scope, [row(f"i{n}", "words " * 50) for n in range(50)], None, now=now)
    await store.close()
    what, how = damage.split()
    table = root / "tables" / f"{table_name(scope)}.lance"
    for victim in [newest_manifest(root, scope)] if what == "manifest" else (table / "data").iterdir():
        size = victim.stat().st_size
        if how == "gone":
            victim.unlink()
        elif how == "cut":
            victim.write_bytes(victim.read_bytes()[: size // 2])
        else:
            victim.write_bytes(b"\x00" * size)
    store = await opened()
    with pytest.raises(StorageCorrupt) as caught:
        await store.newest(scope, None, limit=50, before=None)
    assert str(root) not in caught.value.message
    assert table_name(scope) in caught.value.message


async def test_damage_to_a_table_that_is_open_is_told_too(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    await store.put(scope, [row("a")], None, now=now)
    await store.put(scope, [row("b")], None, now=now)
    other = await opened()
    await other.newest(scope, None, limit=1, before=None)
    await store.put(scope, [row("c")], None, now=now)
    newest_manifest(root, scope).write_bytes(b"")
    with pytest.raises(StorageCorrupt):
        await other.newest(scope, None, limit=1, before=None)


@pytest.mark.parametrize(
    "served",
    [
        ModelIdentity("other", 8, "0" * 64, 16),
        ModelIdentity("tiny", 8, "1" * 64, 16),
        ModelIdentity("tiny", 4, "0" * 64, 16),
    ],
)
async def test_vectors_of_another_model_are_not_mixed(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, served: ModelIdentity
) -> None:
    store = await opened()
    await store.put(scope, [row("a")], None, now=now)
    await store.close()
    store = await opened(model=served)
    mine = Row(row("b").item, np.ones(served.dimensions, np.float32))
    for call in (
        store.newest(scope, None, limit=1, before=None),
        store.put(scope, [mine], None, now=now),
        store.semantic(scope, mine.vector, None, limit=1),
    ):
        with pytest.raises(EmbeddingModelMismatch, match="new data directory") as caught:
            await call
        assert caught.value.details["storedModel"].startswith("tiny (8 dimensions")
        assert caught.value.details["servedModel"].startswith(served.name)
    await store.put(OTHER, [mine], None, now=now)


async def test_a_table_of_another_scope_is_not_served(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    store = await opened()
    await store.put(scope, [row("a")], None, now=now)
    await store.close()
    tables = root / "tables"
    (tables / f"{table_name(scope)}.lance").rename(tables / f"{table_name(OTHER)}.lance")
    store = await opened()
    with pytest.raises(StorageCorrupt, match="belongs to another scope"):
        await store.newest(OTHER, None, limit=1, before=None)


async def test_more_scopes_than_stay_open(opened: Opened, row: MakeRow, now: datetime) -> None:
    store = await opened(open_tables=2)
    scopes = [Scope("acme", f"d{n}") for n in range(5)]
    for round_ in range(2):
        for at, scope in enumerate(scopes):
            await store.put(scope, [row(f"{at}-{round_}")], None, now=now)
    for at, scope in enumerate(scopes):
        found = (await store.newest(scope, None, limit=9, before=None)).items
        assert [item.id for item in found] == [f"{at}-1", f"{at}-0"]
