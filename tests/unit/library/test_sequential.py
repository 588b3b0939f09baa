from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recalld import AllSourcesFailed, CompositeMemory, Ctx, MemoryItem, ReadOnlyMemory, SequentialMemory
from recalld.errors import InvalidFilter
from recalld.testing import BlockedMemory, FailingMemory, ListMemory

ITEM = MemoryItem("new", "caller")


def holding(name: str, *contents: str, score: float | None = None) -> ListMemory:
    return ListMemory([MemoryItem(content, name, score) for content in contents], name)


async def test_the_second_source_is_not_asked_when_the_first_has_enough(ctx: Ctx):
    first, second = holding("cache", "a", "b"), holding("store", "c")
    answer = await SequentialMemory([first, second]).query("q", k=2, ctx=ctx)
    assert [item.content for item in answer] == ["a", "b"]
    assert second.queries == []


async def test_each_is_asked_for_what_is_missing(ctx: Ctx):
    tiers = [holding("one", "a"), holding("two"), holding("three", "b", "c", "d")]
    answer = await SequentialMemory(list(tiers)).query("q", k=3, ctx=ctx, where={"$not": {"x": 1}})
    assert [item.content for item in answer] == ["a", "b", "c"]
    assert [tier.queries[0].k for tier in tiers] == [3, 2, 2]
    assert tiers[2].queries[0].where == {"$not": {"x": 1}}


async def test_the_order_of_sources_beats_the_scores(ctx: Ctx):
    chain = SequentialMemory([holding("cache", "a", score=0.1), holding("store", "b", score=0.9)])
    assert [item.content for item in await chain.query("q", k=2, ctx=ctx)] == ["a", "b"]


async def test_copies_are_kept_and_a_composite_around_it_merges_them(ctx: Ctx):
    chain = SequentialMemory([holding("cache", "a"), holding("store", "a", "b")])
    assert [item.content for item in await chain.query("q", k=3, ctx=ctx)] == ["a", "a", "b"]
    merged = await CompositeMemory([chain]).query("q", k=3, ctx=ctx)
    assert [item.content for item in merged] == ["a", "b"]


async def test_a_source_that_returns_too_much_is_cut(ctx: Ctx):
    class Generous(ListMemory):
        async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
            return list(self.items)

    chain = SequentialMemory([holding("cache", "a"), Generous([ITEM, ITEM, ITEM], "store")])
    assert len(await chain.query("q", k=2, ctx=ctx)) == 2


@pytest.mark.parametrize("k", [0, -1])
async def test_asks_nobody_for_nothing(ctx: Ctx, k: int):
    assert await SequentialMemory([FailingMemory(OSError())]).query("q", k=k, ctx=ctx) == []


async def test_a_wrong_filter_reaches_nobody(ctx: Ctx):
    first = holding("a", "x")
    with pytest.raises(InvalidFilter):
        await SequentialMemory([first]).query("q", k=1, ctx=ctx, where={"$near": 1})
    assert first.queries == []


async def test_a_failing_source_is_passed_over_and_observed(ctx: Ctx, observed: Any):
    broken = OSError("cache down")
    chain = SequentialMemory([FailingMemory(broken, "cache"), holding("store", "a")])
    assert [item.content for item in await chain.query("q", k=1, ctx=ctx)] == ["a"]
    assert observed == [("memory.source_failed", {"source": "cache", "error": broken})]


async def test_when_all_fail_each_is_named_also_under_one_name(ctx: Ctx):
    chain = SequentialMemory([FailingMemory(OSError("1"), "same"), FailingMemory(OSError("2"), "same")])
    with pytest.raises(AllSourcesFailed) as raised:
        await chain.query("q", k=1, ctx=ctx)
    assert list(raised.value.failed) == ["same", "same#2"]


async def test_cancelling_goes_through_and_asks_nobody_else(ctx: Ctx, observed: Any):
    first, second = BlockedMemory(), holding("store", "a")
    asking = asyncio.create_task(SequentialMemory([first, second]).query("q", k=1, ctx=ctx))
    await first.started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (second.queries, observed) == ([], [])


async def test_without_sources_there_is_nothing(ctx: Ctx):
    chain = SequentialMemory([])
    assert await chain.query("q", k=1, ctx=ctx) == []
    await chain.write([ITEM], ctx=ctx)
    assert not chain.accepts_writes


async def test_only_the_first_source_is_written_to(ctx: Ctx):
    first, second = holding("cache"), holding("store")
    await SequentialMemory([first, second]).write(iter([ITEM]), ctx=ctx)
    assert (first.writes, second.writes) == ([[ITEM]], [])


async def test_an_empty_write_reaches_nobody(ctx: Ctx):
    first = ReadOnlyMemory(holding("cache"))
    await SequentialMemory([first]).write([], ctx=ctx)
    assert first.refused_writes == 0


def test_accepts_writes_is_the_first_source_s():
    closed, open_ = ReadOnlyMemory(holding("closed")), holding("open")
    assert not SequentialMemory([closed, open_]).accepts_writes
    assert SequentialMemory([open_, closed]).accepts_writes
    assert not CompositeMemory([SequentialMemory([closed, open_])]).accepts_writes
