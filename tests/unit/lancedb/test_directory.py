"""What a data directory is, what is refused, and that nothing refused is touched."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recalld.engine.ports import ModelIdentity
from recalld.engine.records import Body, Commit, Head, Record
from recalld.errors import EmbeddingModelMismatch, SourceUnavailable, StorageCorrupt
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus
from recalld.scope import Scope
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.layout import table_name

Opened = Callable[..., Any]
Note = Callable[..., MemoryItem]
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


async def test_reads_make_no_files(opened: Opened, root: Path, scope: Scope) -> None:
    store = await opened()
    before = contents(root)
    await store.by_words(scope, "x")
    await store.records.newest(scope, None, limit=1)
    await store.records.receipt(scope, "k")
    assert await store.delete(scope, "a") == 0
    assert {name: text for name, text in contents(root).items() if not name.startswith("locks/")} == before
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


async def test_everything_is_there_after_a_restart(opened: Opened, scope: Scope, note: Note) -> None:
    first = await opened()
    outcome = await first.put(scope, note("a", "some words", metadata={"n": 1}), key="k")
    items, head = await first.items(scope), await first.records.head(scope)
    await first.memory.close()
    again = await opened()
    assert (await again.items(scope), await again.records.head(scope)) == (items, head)
    repeat = await again.put(scope, note("a", "some words", metadata={"n": 1}), key="k")
    assert repeat == replace(outcome, replayed=True)
    assert await again.by_words(scope, "words") == ["a"]
    await again.put(scope, note("b"))
    assert await again.records.head(scope) == Head(head.revision + 1, head.sequence + 1)


async def test_an_empty_manifest_closes_its_scope_only(opened: Opened, root: Path, scope: Scope, note: Note) -> None:
    store = await opened()
    for each in (scope, OTHER):
        await store.put(each, note("a"))
        await store.put(each, note("b"))
    await store.memory.close()
    manifest = newest_manifest(root, scope)
    manifest.write_bytes(b"")
    before = contents(root)

    store = await opened()
    for call in (
        store.records.newest(scope, None, limit=1),
        store.by_words(scope, "note"),
        store.put(scope, note("c")),
        store.delete(scope, "a"),
        store.records.head(scope),
    ):
        with pytest.raises(StorageCorrupt) as caught:
            await call
        assert manifest.relative_to(root).as_posix() in caught.value.message
        assert str(root) not in caught.value.message
    assert {name: digest for name, digest in contents(root).items() if not name.startswith("locks/")} == {
        name: digest for name, digest in before.items() if not name.startswith("locks/")
    }
    assert len((await store.records.newest(OTHER, None, limit=9)).items) == 2
    await store.put(OTHER, note("c"))


@pytest.mark.parametrize("damage", ["manifest cut", "manifest overwritten", "data cut", "data gone"])
async def test_damage_is_told_as_such(opened: Opened, root: Path, scope: Scope, note: Note, damage: str) -> None:
    store = await opened()
    await store.put(scope, *(note(f"i{n}", "words " * 50) for n in range(50)))
    await store.memory.close()
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
        await store.records.newest(scope, None, limit=50)
    assert str(root) not in caught.value.message
    assert table_name(scope) in caught.value.message


async def test_damage_to_a_table_that_is_open_is_told_too(opened: Opened, root: Path, scope: Scope, note: Note) -> None:
    store = await opened()
    await store.put(scope, note("a"))
    await store.put(scope, note("b"))
    other = await opened()
    await other.records.newest(scope, None, limit=1)
    await store.put(scope, note("c"))
    newest_manifest(root, scope).write_bytes(b"")
    with pytest.raises(StorageCorrupt):
        await other.records.newest(scope, None, limit=1)


STORED = ModelIdentity("tiny", 8, "0" * 64, 16, "f" * 64)


def written(dimensions: int) -> Commit:
    """One memory, with a vector of so many dimensions."""
    time = datetime(2025, 3, 1, tzinfo=UTC)
    attributes = MemoryAttributes(status=MemoryStatus.ACTIVE, create_time=time, update_time=time)
    record = Record("b", 1, 1, attributes, Body("words", {}, [1.0] * dimensions))
    return Commit(Head(), Head(1, 1), {"b": record}, {})


@pytest.mark.parametrize(
    ("stored", "served"),
    [
        (STORED, replace(STORED, fingerprint="e" * 64)),
        (STORED, replace(STORED, sha256="1" * 64, fingerprint="")),
        (replace(STORED, fingerprint=""), replace(STORED, sha256="1" * 64)),
        (STORED, replace(STORED, dimensions=4, fingerprint="e" * 64)),
        (replace(STORED, fingerprint=""), replace(STORED, dimensions=4, fingerprint="")),
    ],
    ids=["other pooling", "other weights", "other weights than an older table's", "dimensions", "older dimensions"],
)
async def test_vectors_of_another_model_are_not_mixed(
    opened: Opened, scope: Scope, note: Note, stored: ModelIdentity, served: ModelIdentity
) -> None:
    store = await opened(model=stored)
    await store.put(scope, note("a"))
    await store.memory.close()
    store = await opened(model=served)

    async def commit(where: Scope) -> None:
        async with store.records.turn(where) as turn:
            await turn.commit(written(served.dimensions))

    for call in (
        store.records.newest(scope, None, limit=1),
        commit(scope),
        store.records.semantic(scope, [1.0] * served.dimensions, None, limit=1),
    ):
        with pytest.raises(EmbeddingModelMismatch, match="new data directory") as caught:
            await call
        assert caught.value.details["storedModel"].startswith("tiny (8 dimensions")
        assert caught.value.details["servedModel"].startswith(f"tiny ({served.dimensions} dimensions")
    await commit(OTHER)


@pytest.mark.parametrize(
    ("stored", "served"),
    [
        (STORED, replace(STORED, name="in another folder")),
        (STORED, replace(STORED, sha256="1" * 64)),
        (replace(STORED, fingerprint=""), replace(STORED, name="in another folder")),
        (STORED, replace(STORED, fingerprint="")),
    ],
    ids=["name", "same vectors by other means", "an older table", "an older server"],
)
async def test_a_model_is_what_shapes_its_vectors(
    opened: Opened, scope: Scope, note: Note, stored: ModelIdentity, served: ModelIdentity
) -> None:
    store = await opened(model=stored)
    await store.put(scope, note("a"))
    await store.memory.close()
    store = await opened(model=served)
    await store.put(scope, note("b"))
    assert await store.ids(scope) == ["b", "a"]


async def test_a_table_of_another_scope_is_not_served(opened: Opened, root: Path, scope: Scope, note: Note) -> None:
    store = await opened()
    await store.put(scope, note("a"))
    await store.memory.close()
    tables = root / "tables"
    (tables / f"{table_name(scope)}.lance").rename(tables / f"{table_name(OTHER)}.lance")
    store = await opened()
    with pytest.raises(StorageCorrupt, match="belongs to another scope"):
        await store.records.newest(OTHER, None, limit=1)


async def test_more_scopes_than_stay_open(opened: Opened, note: Note) -> None:
    store = await opened(open_tables=2)
    scopes = [Scope("acme", f"d{n}") for n in range(5)]
    for round_ in range(2):
        for at, scope in enumerate(scopes):
            await store.put(scope, note(f"{at}-{round_}"))
    for at, scope in enumerate(scopes):
        assert await store.ids(scope) == [f"{at}-1", f"{at}-0"]


# A directory that goes away under a running server


def rename(root: Path) -> Callable[[], None]:
    root.rename(root.with_name("elsewhere"))
    return lambda: root.with_name("elsewhere").rename(root)


def replace_by_another(root: Path) -> Callable[[], None]:
    back = rename(root)
    shutil.copytree(root.with_name("elsewhere"), root)
    shutil.rmtree(root / "tables")
    (root / "tables").mkdir()

    def restore() -> None:
        shutil.rmtree(root)
        back()

    return restore


def unmount(root: Path) -> Callable[[], None]:
    back = rename(root)
    root.mkdir()

    def mount() -> None:
        root.rmdir()
        back()

    return mount


def lose_the_tables(root: Path) -> Callable[[], None]:
    (root / "tables").rename(root / "other")
    return lambda: (root / "other").rename(root / "tables")


@pytest.mark.parametrize("lose", [rename, replace_by_another, unmount, lose_the_tables])
async def test_a_directory_that_is_gone_is_not_an_empty_one(
    opened: Opened, root: Path, scope: Scope, note: Note, lose: Callable[[Path], Callable[[], None]]
) -> None:
    store = await opened()
    for each in (scope, OTHER):
        await store.put(each, note("a", "some words"))
    await store.records.check()
    # One scope's table is open, the other's is not, and the third was never written.
    cold = await opened()
    assert await cold.ids(scope) == ["a"]
    bring_back = lose(root)
    for each in (scope, OTHER, Scope("acme", "never")):
        for call in (
            cold.items(each),
            cold.by_words(each, "words"),
            cold.records.semantic(each, cold.vector("x"), None, limit=1),
            cold.records.read(each, ["a"], None),
            cold.records.count(each, None),
            cold.records.head(each),
            cold.records.receipt(each, "k"),
            cold.put(each, note("b")),
            cold.delete(each, "a"),
        ):
            with pytest.raises(SourceUnavailable, match="data directory") as caught:
                await call
            assert str(root) not in caught.value.message
    with pytest.raises(SourceUnavailable, match="data directory"):
        await cold.records.check()
    bring_back()
    await cold.records.check()
    assert await cold.ids(scope) == await cold.ids(OTHER) == ["a"]
    await cold.put(Scope("acme", "never"), note("b"))


async def test_a_deleted_directory_is_not_made_anew(opened: Opened, root: Path, scope: Scope, note: Note) -> None:
    store = await opened()
    await store.put(scope, note("a"))
    shutil.rmtree(root)
    for each in (scope, OTHER):
        with pytest.raises(SourceUnavailable):
            await store.put(each, note("b"))
        with pytest.raises(SourceUnavailable):
            await store.items(each)
    assert not root.exists()


async def test_an_object_store_is_asked_whether_it_answers(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(root=f"file-object-store://{tmp_path}")
    await store.records.check()

    async def list_tables(self: Any, **given: Any) -> Any:
        raise RuntimeError("connection refused by /some/host")

    monkeypatch.setattr(lancedb.AsyncConnection, "list_tables", list_tables)
    with pytest.raises(SourceUnavailable, match="object store does not answer; the server's log"):
        await store.records.check()
