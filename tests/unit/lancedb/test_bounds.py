"""What is kept for a table is bounded, nothing is worked out twice, and nothing long holds the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import pytest

from recalld.filters import AnyOf, Compare, Exists, Field, Filter, In, Not, Op
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld_server.adapters.lancedb import (
    MaintenancePolicy,
    conditions,
    expiry,
    filters,
    offload,
    records,
    store,
    turn,
    upkeep,
)
from recalld_server.adapters.lancedb.access import TableAccess
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.maintenance import Maintenance

Opened = Callable[..., Any]
Note = Callable[..., MemoryItem]
ANY = Exists(Field("id"))


@pytest.fixture
def accesses(monkeypatch: pytest.MonkeyPatch) -> WeakSet[TableAccess]:
    """Every access that someone still holds."""
    alive: WeakSet[TableAccess] = WeakSet()

    class Seen(TableAccess):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            alive.add(self)

    monkeypatch.setattr(store, "TableAccess", Seen)
    return alive


async def test_tables_with_a_sweep_to_come_are_not_kept_at_hand(
    opened: Opened, note: Note, accesses: WeakSet[TableAccess]
) -> None:
    scopes = [Scope("acme", f"d{n}") for n in range(8)]
    memory = await opened(open_tables=2)
    for scope in scopes:
        await memory.put(scope, note("a"))
    gc.collect()
    assert len(accesses) <= 2
    assert len(memory.records._tables._open) <= 2
    assert memory.records._upkeep._agenda.earliest is not None, "each has old versions to sweep"
    for scope in scopes:
        await memory.put(scope, note("b"))
        assert await memory.revision(scope) == 2


async def test_sweeps_come_although_the_table_was_let_go(
    opened: Opened, note: Note, accesses: WeakSet[TableAccess], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    done = asyncio.Event()
    run = Maintenance.run

    async def watched(self: Maintenance, table: Any, **given: Any) -> Any:
        swept.append(table.name)
        if len(set(swept)) == 6:
            done.set()
        return await run(self, table, **given)

    monkeypatch.setattr(Maintenance, "run", watched)
    memory = await opened(open_tables=2, maintenance=MaintenancePolicy(horizon=timedelta(milliseconds=1), quiet=0.0))
    for n in range(6):
        await memory.put(Scope("acme", f"d{n}"), note("a"))
    await asyncio.wait_for(done.wait(), 20)
    gc.collect()
    assert len(accesses) <= 3
    assert len(memory.records._tables._open) <= 2, "to be tidied, a table need not be opened for good"


async def test_what_is_due_is_taken_some_at_a_time(
    opened: Opened, note: Note, accesses: WeakSet[TableAccess], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await opened(maintenance=MaintenancePolicy(horizon=timedelta(hours=1)))
    scopes = [Scope("acme", f"d{n}") for n in range(12)]
    for scope in scopes:
        await first.put(scope, note("a"))
        await first.put(scope, note("b"))
    await first.memory.close()
    most, ran = 0, 0
    done = asyncio.Event()
    run = Maintenance.run

    async def watched(self: Maintenance, table: Any, **given: Any) -> Any:
        nonlocal most, ran
        gc.collect()
        most, ran = max(most, len(accesses)), ran + 1
        if ran == 12:
            done.set()
        return await run(self, table, **given)

    monkeypatch.setattr(Maintenance, "run", watched)
    accesses.clear()
    await opened(open_tables=2, maintenance=MaintenancePolicy(quiet=0.0, settled=0.0))
    await asyncio.wait_for(done.wait(), 30)
    assert most <= 2 + upkeep._AT_HAND


def test_an_agenda_has_one_time_a_name_and_no_litter() -> None:
    agenda = upkeep.Agenda()
    assert (agenda.earliest, agenda.take(10)) == (None, None)
    agenda.note("a", 5)
    agenda.note("a", 7)
    agenda.note("b", 4)
    agenda.note("a", 3)
    assert agenda.earliest == 3
    assert agenda.take(2) is None
    assert [agenda.take(10), agenda.take(10), agenda.take(10)] == ["a", "b", None]
    for n in range(10_000, 0, -1):
        agenda.note("a", n)
    assert len(agenda._order) < 100
    assert [agenda.take(10_000), agenda.take(10_000)] == ["a", None]


async def test_upkeep_keeps_nothing_of_the_request_that_was_first(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = contextvars.ContextVar[str]("request")
    seen: list[str | None] = []
    ran = asyncio.Event()
    run = Maintenance.run

    async def watched(self: Maintenance, table: Any, **given: Any) -> Any:
        seen.append(request.get(None))
        ran.set()
        return await run(self, table, **given)

    monkeypatch.setattr(Maintenance, "run", watched)
    request.set("one")
    memory = await opened(maintenance=MaintenancePolicy(commits=1, quiet=0.0))
    await memory.put(scope, note("a"))
    await asyncio.wait_for(ran.wait(), 20)
    assert seen == [None]


# What searches remember


async def test_whether_a_filter_leaves_something_out_is_looked_up_once_a_version(
    opened: Opened, scope: Scope, note: Note, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = await opened()
    await memory.put(scope, note("a", "some words"), note("b", "words", expire_time=clock.now + timedelta(days=1)))
    counted: list[str] = []
    real = lancedb.AsyncTable.count_rows

    async def count_rows(self: Any, condition: str | None = None) -> int:
        if condition is not None:
            counted.append(condition)
        return await real(self, condition)

    monkeypatch.setattr(lancedb.AsyncTable, "count_rows", count_rows)
    for some_expire in (True, False):
        for _ in range(3):
            await memory.memory.query("words", k=2, ctx=Ctx(scope))
        assert 1 <= len(counted) <= 2, "once for each leg at most, and then remembered, whatever the answer was"
        counted.clear()
        if some_expire:
            await memory.delete(scope, "b")


def many_conditions() -> Filter:
    return AnyOf(tuple(In(Field("metadata", (f"k{n}",)), tuple(range(100))) for n in range(100)))


async def test_a_large_filter_is_compiled_once_for_a_search(
    opened: Opened, scope: Scope, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []
    real = filters.compile_filter

    def compile_filter(where: Filter, source: str) -> str:
        compiled.append(threading.get_ident())
        return real(where, source)

    memory = await opened()
    await memory.put(scope, note("a", "some words", metadata={"k7": 7}), note("b", "other words"))
    monkeypatch.setattr(conditions, "compile_filter", compile_filter)
    where = many_conditions()
    words, meaning = await asyncio.gather(
        memory.records.lexical(scope, "words", where, limit=5),
        memory.records.semantic(scope, memory.vector("x"), where, limit=5),
    )
    found = await memory.records.read(scope, ["a", "b"], where)
    newest = await memory.records.newest(scope, where, limit=5)
    assert [each.id for each in words.candidates] == [each.id for each in meaning] == ["a"]
    assert [item.id for item in found] == [item.id for item in newest.items] == ["a"]
    assert len(compiled) == 1
    assert threading.get_ident() not in compiled
    for _ in range(12):
        await memory.records.count(scope, many_conditions())
    assert sum(each.weight for each in memory.records._conditions._large.values()) <= conditions._REMEMBERED


# What leaves the event loop


async def test_long_conversions_are_worked_out_beside_the_event_loop(
    opened: Opened, scope: Scope, note: Note, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*args: Any, **given: Any) -> Any:
            ran.append((name, threading.get_ident()))
            return real(*args, **given)

        monkeypatch.setattr(module, name, watched)

    def names() -> set[str]:
        return {name for name, _ in ran}

    watch(records, "index_text")
    watch(records.values, "filter_columns")
    watch(records.values, "load")
    watch(turn, "to_records")
    watch(store, "to_items")
    watch(store, "matches")
    watch(expiry, "to_records")
    watch(expiry, "to_batch")
    memory = await opened()
    heavy = {"text": "x" * 60_000}
    await memory.put(scope, note("one", "a short text", metadata=heavy), key="k")
    assert names() == {"index_text", "filter_columns"}
    await memory.memory.update("one", ctx=Ctx(scope), metadata_changes={"x": 1})
    assert {"to_records", "load"} <= names()
    await memory.put(scope, *(note(f"i{n}", metadata={"n": n}) for n in range(200)))
    ran.clear()
    await memory.records.read(scope, ["one", *(f"i{n}" for n in range(3))], None)
    await memory.records.newest(scope, None, limit=100)
    assert names() == {"to_items", "load"}
    ran.clear()
    await memory.records.read(scope, ["i1"], Not(many_conditions()))
    assert "matches" in names()
    assert threading.get_ident() not in {thread for _, thread in ran}
    assert await memory.memory.delete(ctx=Ctx(scope), where={"n": {"$gte": 0}}) == 200
    await memory.put(scope, note("old", expire_time=clock.now))
    table = await memory.records._tables.find(scope)
    ran.clear()
    assert await expiry.erase_expired(table, clock.now + timedelta(days=1), now=clock.now) == 1
    assert names() == {"to_records", "to_batch"}
    assert threading.get_ident() not in {thread for _, thread in ran}


def test_what_is_short_stays() -> None:
    """A thread costs more than a handful of rows."""
    rows = records.pa.table({"id": ["a"] * 5})
    before = threading.active_count()
    here = asyncio.run(
        offload.convert(rows, lambda rows: threading.get_ident(), where=Compare(Field("id"), Op.EQ, "a"))
    )
    assert here == threading.get_ident()
    assert threading.active_count() == before
