"""Several stores on one place, in one process or in several, with a lock and without: nothing is lost or told twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from recalld.engine.ports import HeadMoved
from recalld.engine.records import Commit, Head, Receipt, Record
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus
from recalld.scope import Ctx, Scope
from recalld_server.adapters.lancedb import upkeep
from recalld_server.adapters.lancedb.engine import lancedb, pa
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.tables import OpenTable

Opened = Callable[..., Any]
Note = Callable[..., MemoryItem]


@pytest.fixture(params=["disk", "disk without a lock", "object store"])
def place(request: pytest.FixtureRequest, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the stores of a test keep what they have. On an object store nothing can be locked, and tables come into
    being in another way."""
    if request.param == "object store":
        return f"file-object-store://{tmp_path}"
    if request.param == "disk without a lock":
        hold = TableLocks.hold
        # The first writes of a scope need the lock on a disk; commits do not.
        monkeypatch.setattr(
            TableLocks, "hold", lambda self, path: hold(self, path) if not _is_made(path) else nullcontext()
        )
    return str(root)


def _is_made(lock: Path | None) -> bool:
    return lock is not None and (lock.parent.parent / "tables" / f"{lock.stem}.lance" / "_versions").exists()


def revisions(items: list[MemoryItem]) -> list[int]:
    return [(item.attributes or MemoryAttributes()).revision for item in items]


async def test_one_row_a_key_and_one_revision_a_change(opened: Opened, place: str, scope: Scope, note: Note) -> None:
    one, two = await opened(root=place), await opened(root=place)

    async def write(store: Any, who: int) -> None:
        for step in range(8):
            await store.put(scope, note(f"k{step}", f"by {who}"), note(f"{who}-{step}"))

    await asyncio.gather(write(one, 1), write(two, 2), write(one, 3), write(two, 4))
    items = await one.items(scope)
    assert sorted(item.id or "" for item in items) == sorted(
        [f"k{step}" for step in range(8)] + [f"{who}-{step}" for who in (1, 2, 3, 4) for step in range(8)]
    )
    assert len(set(revisions(items))) == len(items)
    assert await one.records.head(scope) == await two.records.head(scope) == Head(64, 40)
    assert await two.items(scope) == items


async def test_one_store_sees_at_once_what_the_other_did(opened: Opened, place: str, scope: Scope, note: Note) -> None:
    one, two = await opened(root=place), await opened(root=place)
    for step in range(4):
        writer, reader = (one, two) if step % 2 else (two, one)
        await writer.put(scope, note(f"i{step}", f"word{step}"), key=f"k{step}")
        assert await reader.revision(scope) == await writer.revision(scope)
        assert await reader.by_words(scope, f"word{step}") == [f"i{step}"]
        assert (await reader.put(scope, note(f"i{step}", f"word{step}"), key=f"k{step}")).replayed
        assert await reader.delete(scope, f"i{step}") == 1
        assert await writer.records.read(scope, [f"i{step}"], None) == []


async def test_updates_do_not_undo_each_other(opened: Opened, place: str, scope: Scope, note: Note) -> None:
    one, two = await opened(root=place), await opened(root=place)
    await one.put(scope, note("a"))
    await asyncio.gather(
        *(
            store.memory.update("a", ctx=Ctx(scope), metadata_changes={f"k{n}": n})
            for n, store in enumerate([one, two] * 5)
        )
    )
    (item,) = await two.records.read(scope, ["a"], None)
    assert item.metadata == {f"k{n}": n for n in range(10)}


async def test_first_writes_of_a_scope(opened: Opened, place: str, note: Note) -> None:
    stores = [await opened(root=place) for _ in range(4)]
    for n in range(6):
        scope = Scope("acme", f"fresh{n}")
        await asyncio.gather(*(store.put(scope, note("k"), note(f"by {at}")) for at, store in enumerate(stores)))
        assert sorted(await stores[0].ids(scope)) == ["by 0", "by 1", "by 2", "by 3", "k"]
        assert await stores[1].revision(scope) == 8
        assert await stores[2].by_words(scope, "note") != []


_CHILD = """
import asyncio, sys
from recalld.engine import LocalMemory
from recalld.engine.ports import Embedding, ModelIdentity
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld.store import WriteBatch
from recalld_server.adapters.lancedb import LanceConfig, open_records

class Same:
    identity = ModelIdentity("tiny", 8, "0" * 64, 16, "f" * 64)
    async def embed_documents(self, texts):
        return [Embedding([1.0] * 8) for _ in texts]

async def main(root, who):
    records = await open_records(LanceConfig(name="memory", root=root, model=Same.identity))
    memory = LocalMemory(records, Same())

    async def write(lane):
        for step in range(100000):
            ids = f"{who}-{lane}-{step}", "shared"
            batch = WriteBatch([MemoryItem("text", "x", id=id) for id in ids], f"{who}-{lane}-{step}")
            await memory.commit(batch, ctx=Ctx(Scope("acme", "support")))
            print(f"{who}-{lane}-{step}", flush=True)

    await asyncio.gather(write(0), write(1))

asyncio.run(main(*sys.argv[1:]))
"""


def _killed_after(root: str, who: str, lines: int) -> list[str]:
    """What a process acknowledged until it was killed, at least so many writes."""
    child = subprocess.Popen([sys.executable, "-c", _CHILD, root, who], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    read = [child.stdout.readline() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    # What was printed before the kill counts as well; a last line may be cut.
    read += [line for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    child.stdout.close()
    child.wait()
    return [line.strip() for line in read]


@pytest.mark.parametrize("kind", ["disk", "object store"])
async def test_killed_processes_lose_nothing_that_they_acknowledged(
    opened: Opened, root: Path, tmp_path: Path, scope: Scope, note: Note, kind: str
) -> None:
    """Two at once: on the object store there is no lock between them."""
    place = str(root) if kind == "disk" else f"file-object-store://{tmp_path}"
    acknowledged = await asyncio.gather(
        asyncio.to_thread(_killed_after, place, "p", 15), asyncio.to_thread(_killed_after, place, "q", 20)
    )
    keys = [key for each in acknowledged for key in each]
    assert len(keys) >= 35
    store = await opened(root=place)
    items = {item.id: item for item in await store.items(scope)}
    assert set(keys) <= set(items)
    receipts = [await store.records.receipt(scope, key) for key in keys]
    told = [receipt.revision for receipt in receipts if receipt is not None]
    assert len(set(told)) == len(keys), "each has its receipt, with a revision of its own"
    assert [receipt.ids for receipt in receipts] == [(key, "shared") for key in keys]
    assert len(set(revisions(list(items.values())))) == len(items)
    # Every write that came through moved the head by two, also one whose acknowledgement was cut off.
    head = await store.records.head(scope)
    assert head == Head(2 * (len(items) - 1), len(items))
    # And the survivors' lock is free, and the state sound.
    await store.put(scope, note("after"))
    assert await store.revision(scope) == head.revision + 1


async def test_a_stale_store_that_looks_again_too_late_stores_nothing(
    opened: Opened, place: str, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The condition is the database's own: the head moves after this store has looked at it for the last time."""
    one, two = await opened(root=place), await opened(root=place)
    await one.put(scope, note("a"))
    table = await one.records._tables.find(scope)
    stale = await table.head()
    await two.put(scope, note("b"))

    async def head(self: OpenTable) -> Any:
        return stale

    time = (await one.items(scope))[0].attributes.create_time
    attributes = MemoryAttributes(status=MemoryStatus.ACTIVE, create_time=time, update_time=time)
    record = Record("c", 2, 2, attributes, None)
    commit = Commit(stale.head, Head(2, 2), {"c": record}, {"k": Receipt("k", "1:f", 2, ("c",), time)})
    with monkeypatch.context() as late:
        late.setattr(OpenTable, "head", head)
        async with one.records.turn(scope) as turn:
            with pytest.raises(HeadMoved):
                await turn.commit(commit)
    assert await one.records.head(scope) == Head(2, 2)
    assert sorted(await one.ids(scope)) == ["a", "b"]
    assert await two.records.receipt(scope, "k") is None


# The head of a scope


async def test_after_another_s_commit_the_head_is_one_row(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await opened(), await opened()
    await one.put(scope, note("a"))
    await two.put(scope, note("b"))
    read: list[int] = []
    real = lancedb.query.AsyncStandardQuery.to_arrow

    async def to_arrow(self: Any, *args: Any, **given: Any) -> Any:
        found = await real(self, *args, **given)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(lancedb.query.AsyncStandardQuery, "to_arrow", to_arrow)
    assert await one.records.head(scope) == Head(2, 2)
    assert await one.records.head(scope) == Head(2, 2)
    assert read == [1], "one row, once a version"


async def test_a_table_of_an_older_version_gets_its_head_with_the_next_commit(
    opened: Opened, place: str, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await opened(root=place)
    await old.put(scope, note("a"), note("b"))
    await old.delete(scope, "b")
    await (await old.records._tables.find(scope)).lance.delete("key = 'h'")
    stores = [await opened(root=place) for _ in range(3)]
    assert await stores[0].records.head(scope) == Head(3, 2)
    await asyncio.gather(*(store.put(scope, note(f"by {n}")) for n, store in enumerate(stores)))
    assert await old.records.head(scope) == Head(6, 5)
    assert sorted(revisions(await old.items(scope))) == [1, 4, 5, 6]
    rows = await (await old.records._tables.find(scope)).lance.count_rows("key = 'h'")
    assert rows == 1


# What a crash leaves


async def test_a_table_without_its_index_is_completed(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened()
    with monkeypatch.context() as crash:
        crash.setattr(OpenTable, "ensure_indexed", lambda self: asyncio.sleep(0))
        crash.setattr(OpenTable, "lacks_index", lambda self: asyncio.sleep(0, False))
        await store.put(scope, note("a", "東京都に住んでいます"))
    reader = await opened()
    assert await reader.by_words(scope, "東京") == ["a"]
    await reader.put(scope, note("b", "more words"))
    assert await reader.revision(scope) == 2
    assert await store.by_words(scope, "more") == ["b"]


async def test_files_of_a_table_that_was_never_made_are_no_table(
    opened: Opened, root: Path, scope: Scope, note: Note
) -> None:
    store = await opened()
    (root / "tables" / f"{table_name(scope)}.lance" / "data").mkdir(parents=True)
    (root / "tables" / f"{table_name(scope)}.lance" / "data" / "half.lance").write_bytes(b"half")
    assert await store.revision(scope) == 0
    await store.put(scope, note("a"))
    assert await store.ids(scope) == ["a"]


async def test_a_table_that_was_not_put_in_place_is_swept_one_horizon_later(
    opened: Opened, tmp_path: Path, tidied: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables").mkdir()
    connection = await lancedb.connect_async(str(tmp_path / "tables"))
    await connection.create_table("new-0123", schema=pa.schema([("key", pa.string())]))
    monkeypatch.setattr(upkeep, "delay_of_sweep", lambda policy: 0.01)
    await opened(root=f"file-object-store://{tmp_path}")
    await asyncio.wait_for(tidied.wait(), 20)
    assert list((tmp_path / "tables").glob("new-*")) == []


async def test_a_storage_that_refuses_reaches_every_waiting_caller(
    opened: Opened, root: Path, scope: Scope, note: Note
) -> None:
    store = await opened()
    await store.put(scope, note("a"))
    (root / "locks" / f"{table_name(scope)}.lock").unlink()
    (root / "locks").rmdir()
    results = await asyncio.gather(*(store.put(scope, note(f"i{n}")) for n in range(3)), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["SourceUnavailable"] * 3
    (root / "locks").mkdir()
    await store.put(scope, note("b"))
    assert await store.revision(scope) == 2


async def test_a_turn_waits_for_another_process(opened: Opened, scope: Scope, note: Note) -> None:
    one, two = await opened(), await opened()
    await one.put(scope, note("a"))
    async with one.records.turn(scope):
        waiting = asyncio.create_task(two.put(scope, note("b")))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        assert await two.ids(scope) == ["a"], "reads wait for nobody"
    await asyncio.wait_for(waiting, 20)


async def test_an_index_that_others_get_in_the_way_of_fails_no_write(
    opened: Opened, tmp_path: Path, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(root=f"file-object-store://{tmp_path}")
    real = lancedb.AsyncTable.create_index
    tries: list[int] = []
    most = 100

    async def create_index(self: Any, *args: Any, **given: Any) -> None:
        tries.append(1)
        if len(tries) < most:
            raise RuntimeError("Retryable commit conflict for version 3: This CreateIndex transaction was preempted")
        await real(self, *args, **given)

    monkeypatch.setattr(lancedb.AsyncTable, "create_index", create_index)
    await store.put(scope, note("a", "some words"))
    assert await store.ids(scope) == ["a"]
    assert await store.by_words(scope, "words") == ["a"], "found all the same"
    most = len(tries) + 3
    await store.put(scope, note("b", "東京都に住んでいます"))
    assert await store.by_words(scope, "東京") == ["b"], "by words as the index splits them"
    assert len(tries) == most
