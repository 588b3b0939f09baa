"""One turn a scope: what waits becomes one commit, a moved head means another try, nobody is left waiting."""

from __future__ import annotations

import asyncio

import pytest

from recalld import Ctx, MemoryAttributes, MemoryItem, Scope
from recalld.engine import LocalMemory
from recalld.engine.turns import TurnBounds
from recalld.errors import InternalFailure, ItemNotFound, Overloaded, RevisionMismatch, SourceUnavailable
from recalld.store import SearchQuery, WriteBatch


def item(content: str, **fields) -> MemoryItem:
    return MemoryItem(content, "me", **fields)


async def contents(memory: LocalMemory, ctx: Ctx) -> list[str]:
    return [each.content async for each in memory.list(ctx=ctx)]


async def test_what_waits_is_one_commit_in_the_order_of_the_calls(records, ctx):
    memory = LocalMemory(records)
    free = asyncio.Event()
    records.before_turn = free.wait
    writes = [asyncio.create_task(memory.commit(WriteBatch([item(f"n{n}")]), ctx=ctx)) for n in range(20)]
    while len(asyncio.all_tasks()) < 30 and not free.is_set():
        await asyncio.sleep(0)
        free.set()
    await asyncio.gather(*writes)
    assert len(records.commits) < 10
    assert await contents(memory, ctx) == [f"n{n}" for n in reversed(range(20))]


async def test_each_change_sees_those_before_it_and_a_refused_one_leaves_nothing(records, ctx):
    memory = LocalMemory(records)
    await memory.write([item("one", id="a")], ctx=ctx)
    free = asyncio.Event()
    records.before_turn = free.wait
    calls = [
        asyncio.create_task(memory.update("a", ctx=ctx, metadata={"x": 1}, if_revision=1)),
        asyncio.create_task(memory.update("a", ctx=ctx, metadata={"x": 2}, if_revision=1)),
        asyncio.create_task(memory.delete(["a"], ctx=ctx)),
        asyncio.create_task(memory.update("a", ctx=ctx, metadata={"x": 3})),
        asyncio.create_task(memory.commit(WriteBatch([item("two", id="a")]), ctx=ctx)),
    ]
    await asyncio.sleep(0)
    free.set()
    updated, mismatch, deleted, missing, outcome = await asyncio.gather(*calls, return_exceptions=True)
    assert updated.metadata == {"x": 1}
    assert isinstance(mismatch, RevisionMismatch)
    assert mismatch.details == {"id": "a", "expectedRevision": "1", "actualRevision": "2"}
    assert deleted == 1
    assert isinstance(missing, ItemNotFound)
    assert list(outcome.ids) == ["a"]
    assert await contents(memory, ctx) == ["two"]


async def test_a_moved_head_is_another_try_on_what_is_there_now(records, ctx):
    memory, other = LocalMemory(records), LocalMemory(records)
    await memory.write([item("one", id="a", metadata={"n": 1})], ctx=ctx)

    async def somebody_else() -> None:
        records.before_turn = None
        await other.update("a", ctx=ctx, metadata_changes={"theirs": True})

    records.heads_moved = 2
    records.before_turn = somebody_else
    updated = await memory.update("a", ctx=ctx, metadata_changes={"ours": True})
    assert updated.metadata == {"n": 1, "theirs": True, "ours": True}


async def test_a_head_that_moves_for_ever_is_overload(records, ctx, monkeypatch):
    monkeypatch.setattr("recalld.engine.turns._FIRST_PAUSE", 0.0)
    memory = LocalMemory(records)
    records.heads_moved = 1000
    with pytest.raises(Overloaded):
        await memory.write([item("one")], ctx=ctx)
    records.heads_moved = 0
    assert await contents(memory, ctx) == []


async def test_a_repeat_of_a_key_is_answered_before_anything_is_embedded(records, embedder, ctx):
    memory = LocalMemory(records, embedder)
    batch = WriteBatch([item("keyed")], "key")
    first = await memory.commit(batch, ctx=ctx)
    again = await LocalMemory(records, embedder).commit(batch, ctx=ctx)
    assert (again.replayed, list(again.ids), again.commit_token) == (True, list(first.ids), first.commit_token)
    assert embedder.texts == ["keyed"]
    assert len(records.commits) == 1


async def test_repeats_at_once_apply_once_although_none_finds_a_receipt_first(records, embedder, ctx):
    memory = LocalMemory(records, embedder)
    embedder.gates["keyed"] = asyncio.Event()
    batch = WriteBatch([item("keyed")], "key")
    calls = [asyncio.create_task(memory.commit(batch, ctx=ctx)) for _ in range(3)]
    await asyncio.sleep(0)
    embedder.gates["keyed"].set()
    outcomes = await asyncio.gather(*calls)
    assert [outcome.replayed for outcome in outcomes].count(False) == 1
    assert len(await contents(memory, ctx)) == 1


async def test_a_lane_waits_for_what_is_embedded_longer_and_other_lanes_do_not(records, embedder, ctx):
    memory = LocalMemory(records, embedder)
    embedder.gates["slow"] = asyncio.Event()
    slow = asyncio.create_task(memory.commit(WriteBatch([item("slow")], lane="a"), ctx=ctx))
    quick = asyncio.create_task(memory.commit(WriteBatch([item("quick")], lane="a"), ctx=ctx))
    await memory.commit(WriteBatch([item("other")], lane="b"), ctx=ctx)
    assert await contents(memory, ctx) == ["other"]
    embedder.gates["slow"].set()
    await asyncio.gather(slow, quick)
    assert await contents(memory, ctx) == ["quick", "slow", "other"]


async def test_a_caller_that_goes_away_takes_nobody_with_it(records, ctx):
    memory = LocalMemory(records)
    free = asyncio.Event()
    records.before_turn = free.wait
    gone = asyncio.create_task(memory.commit(WriteBatch([item("gone")]), ctx=ctx))
    stays = asyncio.create_task(memory.commit(WriteBatch([item("stays")]), ctx=ctx))
    for _ in range(10):
        await asyncio.sleep(0)
    gone.cancel()
    free.set()
    await stays
    assert "stays" in await contents(memory, ctx)


async def test_a_defect_fails_its_group_and_the_scope_goes_on(records, ctx):
    memory = LocalMemory(records)

    async def break_() -> None:
        records.before_turn = None
        raise KeyError("a secret path")

    records.before_turn = break_
    with pytest.raises(InternalFailure) as failure:
        await memory.write([item("one")], ctx=ctx)
    assert "secret" not in str(failure.value)
    await memory.write([item("two")], ctx=ctx)
    assert await contents(memory, ctx) == ["two"]


async def test_callers_are_held_back_while_too_many_wait(records, ctx):
    memory = LocalMemory(records, bounds=TurnBounds(waiting=2, group_records=1))
    free = asyncio.Event()
    records.before_turn = free.wait
    calls = [asyncio.create_task(memory.commit(WriteBatch([item(f"n{n}")]), ctx=ctx)) for n in range(6)]
    for _ in range(20):
        await asyncio.sleep(0)
    free.set()
    await asyncio.gather(*calls)
    assert [len(commit.records) for commit in records.commits] == [1] * 6


async def test_a_delete_by_condition_takes_some_at_a_time_until_none_is_left(records, ctx):
    memory = LocalMemory(records, bounds=TurnBounds(erased_at_once=10))
    await memory.write([item(f"n{n}", metadata={"x": n % 2}) for n in range(60)], ctx=ctx)
    before = len(records.commits)
    assert await memory.delete(ctx=ctx, where={"x": 1}) == 30
    assert len(records.commits) - before == 3
    assert len(await contents(memory, ctx)) == 30


async def test_closing_finishes_what_waits_and_takes_nothing_more(records, ctx):
    memory = LocalMemory(records)
    free = asyncio.Event()
    records.before_turn = free.wait
    write = asyncio.create_task(memory.commit(WriteBatch([item("one")]), ctx=ctx))
    for _ in range(5):
        await asyncio.sleep(0)
    closing = asyncio.create_task(memory.close())
    await asyncio.sleep(0)
    free.set()
    await asyncio.gather(write, closing)
    assert len(records.commits) == 1
    with pytest.raises(SourceUnavailable):
        await memory.commit(WriteBatch([item("two")]), ctx=ctx)


async def test_many_scopes_leave_no_queues_behind(ctx):
    memory = LocalMemory()
    for number in range(400):
        await memory.write([item("x")], ctx=Ctx(Scope("acme", str(number))))
    assert sum(map(len, memory._turns.values())) <= 257


async def test_an_expired_id_starts_anew_and_a_live_one_keeps_its_birth(records, clock, ctx):
    memory = LocalMemory(records, clock=clock)
    soon = MemoryAttributes(expire_time=clock.time.replace(hour=13))
    born = clock.time
    await memory.write([item("one", id="a", attributes=soon), item("b", id="b")], ctx=ctx)
    clock.forward(minutes=30)
    await memory.write([item("two", id="a", attributes=soon)], ctx=ctx)
    (kept,) = await memory.get(["a"], ctx=ctx)
    assert (kept.attributes.create_time, kept.attributes.update_time) == (born, clock.time)
    clock.forward(hours=1)
    await memory.write([item("three", id="a")], ctx=ctx)
    (anew,) = await memory.get(["a"], ctx=ctx)
    assert anew.attributes.create_time == clock.time
    assert await contents(memory, ctx) == ["three", "b"]


async def test_a_long_write_is_cut_and_its_parts_have_keys_of_their_own(records, ctx):
    memory = LocalMemory(records)
    many = [item(f"n{n}") for n in range(1200)]
    for _ in range(2):
        await memory.write(many, ctx=ctx, idempotency_key="load")
    assert len(await contents(memory, ctx)) == 1200
    assert len((await memory.search(SearchQuery("n7"), ctx=ctx)).hits) == 1
