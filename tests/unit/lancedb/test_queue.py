"""What waits for a table is bounded, in order, and nothing of a caller's stays behind."""

from __future__ import annotations

import asyncio
import contextvars
import fcntl
import gc
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

from recalld.errors import ItemNotFound
from recalld.filters import Exists, Field
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb import MaintenancePolicy, analysis, changes, store, writer
from recalld_server.adapters.lancedb.failures import CommitConflict
from recalld_server.adapters.lancedb.layout import table_name
from recalld_server.adapters.lancedb.maintenance import Maintenance
from recalld_server.adapters.lancedb.writer import TableWriter
from recalld_server.ports import Patch, Row

Opened = Callable[..., Any]
MakeRow = Callable[..., Row]
ANY = Exists(Field("id"))


@contextmanager
def held(root: Path, scope: Scope) -> Generator[None]:
    """Keeps every writer of the scope waiting, as a busy other process would."""
    with (root / "locks" / f"{table_name(scope)}.lock").open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


async def given_up(call: Any) -> None:
    """Begins a call and lets it go once it waits."""
    task = asyncio.create_task(call)
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def count(opened: Any, scope: Scope) -> int:
    return len((await opened.newest(scope, None, limit=500, before=None)).items)


async def test_callers_that_go_away_do_not_make_room_for_more(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    memory = await opened(waiting=3)
    await memory.put(scope, [row("first")], None, now=now)
    with held(root, scope):
        for n in range(30):
            await given_up(memory.put(scope, [row(f"i{n}")], None, now=now))
    await asyncio.wait_for(memory.put(scope, [row("last")], None, now=now), 20)
    # The three that may wait, and what the writer took before it had to wait itself.
    assert await count(memory, scope) <= 2 + 2 * 3


async def test_a_put_that_never_got_a_place_was_never_prepared(
    opened: Opened, root: Path, scope: Scope, row: MakeRow, now: datetime
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    memory = await opened(waiting=1)
    await memory.put(scope, [row("first")], None, now=now)
    bad = Row(row("bad").item, np.zeros(8, np.float32))
    with held(root, scope):
        for _ in range(10):
            await given_up(memory.put(scope, [bad], None, now=now))
    await memory.put(scope, [row("last")], None, now=now)
    gc.collect()
    assert complaints == []


async def test_puts_take_effect_in_the_order_of_their_calls(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime
) -> None:
    memory = await opened(waiting=2, group_rows=3)
    # The larger a put is, the longer it takes to prepare.
    calls = [memory.put(scope, [row("k", "x" * 2000 * (12 - n))], None, now=now) for n in range(12)]
    commits = await asyncio.gather(*calls)
    assert [commit.revision for commit in commits] == list(range(1, 13))


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> WeakSet[TableWriter]:
    """Every writer that someone still holds."""
    alive: WeakSet[TableWriter] = WeakSet()

    class Seen(TableWriter):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            alive.add(self)

    monkeypatch.setattr(store, "TableWriter", Seen)
    return alive


async def test_writers_with_nothing_to_do_are_forgotten(
    opened: Opened, row: MakeRow, now: datetime, writers: WeakSet[TableWriter]
) -> None:
    scopes = [Scope("acme", f"d{n}") for n in range(8)]
    first = await opened()
    for scope in scopes:
        await first.put(scope, [row("a")], None, now=now)
    assert len(writers) == len(scopes), "each has old versions to sweep"
    await first.close()
    writers.clear()
    second = await opened(open_tables=2)
    for scope in scopes:
        with pytest.raises(ItemNotFound):
            await second.update(scope, Patch(MemoryItem("", "", id="none"), [("metadata",)]), ANY, now=now)
    gc.collect()
    assert len(writers) <= 3
    assert [(await second.put(scope, [row("b")], None, now=now)).revision for scope in scopes] == [2] * 8


async def test_a_writer_keeps_nothing_of_the_request_that_started_it(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = contextvars.ContextVar[str]("request")
    seen: list[str | None] = []
    ran = asyncio.Event()

    async def run(self: Maintenance, table: Any) -> None:
        seen.append(request.get(None))
        self.failed()
        ran.set()

    monkeypatch.setattr(Maintenance, "run", run)
    memory = await opened(maintenance=MaintenancePolicy(commits=1, quiet=0.0))
    request.set("one")
    await memory.put(scope, [row("a")], None, now=now)
    await asyncio.wait_for(ran.wait(), 20)
    assert seen == [None]


async def test_large_changes_and_long_texts_are_worked_out_beside_the_event_loop(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*args: Any, **given: Any) -> Any:
            ran.append((name, threading.get_ident()))
            return real(*args, **given)

        monkeypatch.setattr(module, name, watched)

    watch(changes, "replace")
    watch(changes, "tombstone")
    watch(analysis, "index_text")
    memory = await opened()
    await memory.put(scope, [row(f"i{n}") for n in range(100)], None, now=now)
    await memory.update(scope, Patch(MemoryItem("", "", id="i0", metadata={"x": 1}), [("metadata",)]), ANY, now=now)
    assert {name for name, _ in ran} == {"replace", "index_text"}
    assert (await memory.delete(scope, [f"i{n}" for n in range(100)], ANY, dry_run=False, now=now))[0] == 100
    assert "tombstone" in {name for name, _ in ran}
    assert threading.get_ident() not in {thread for _, thread in ran}


async def test_a_large_delete_counts_what_it_blanked_before_another_writer_got_in_its_way(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ERASED_AT_ONCE", 4)
    memory = await opened()
    await memory.put(scope, [row(f"i{n}") for n in range(10)], None, now=now)
    real = TableWriter._store
    commits: list[int] = []

    async def commit(self: TableWriter, table: Any, draft: Any) -> Any:
        commits.append(len(draft.changed))
        if len(commits) == 2:
            raise CommitConflict("another writer was first")
        return await real(self, table, draft)

    monkeypatch.setattr(TableWriter, "_store", commit)
    erased, _ = await memory.delete(scope, ANY, ANY, dry_run=False, now=now)
    assert commits == [4, 4, 4, 2]
    assert erased == 10
    assert await count(memory, scope) == 0


async def test_what_is_written_while_a_sweep_is_due_gets_one_of_its_own(
    opened: Opened, scope: Scope, row: MakeRow, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[Callable[[], None]] = []
    loop = asyncio.get_running_loop()
    real = loop.call_later

    def call_later(delay: float, callback: Any, *args: Any, **given: Any) -> Any:
        if delay > 3000:
            due.append(callback)
            delay *= 1000
        return real(delay, callback, *args, **given)

    monkeypatch.setattr(loop, "call_later", call_later)
    memory = await opened(maintenance=MaintenancePolicy(horizon=timedelta(hours=1)))
    await memory.put(scope, [row("a")], None, now=now)
    await memory.put(scope, [row("b")], None, now=now)
    assert len(due) == 1
    due[0]()
    assert len(due) == 2
    due[1]()
    assert len(due) == 2
