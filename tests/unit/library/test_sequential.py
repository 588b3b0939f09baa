from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from recalld import (
    AllSourcesFailed,
    CompositeMemory,
    Ctx,
    Degradation,
    MemoryItem,
    RankFusion,
    ReadOnlyMemory,
    RetrievalMode,
    SearchHit,
    SearchQuery,
    SearchResult,
    SequentialMemory,
    WriteBatch,
    WriteOutcome,
)
from recalld.commit_tokens import join
from recalld.errors import InternalFailure, InvalidField, InvalidFilter, UnknownSource
from recalld.testing import BlockedMemory, FailingMemory, ListMemory, ScriptedStore

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


class TestAsAStore:
    async def test_each_is_searched_for_what_is_missing_and_explains_its_own(self, ctx: Ctx):
        hits = [SearchHit(MemoryItem(text, "one"), lexical_rank=rank) for rank, text in enumerate("ab", 1)]
        one, two = ScriptedStore("one", hits[:1]), ScriptedStore("two", hits)
        query = SearchQuery("q", 2, {"x": 1}, RetrievalMode.LEXICAL)
        result = await SequentialMemory([one, two]).search(query, ctx=ctx)
        assert result.hits == [hits[0], hits[0]]
        assert [given["query"] for given in two.calls_of("search")] == [replace(query, k=1)]
        assert one.calls[0].given["query"] == query

    async def test_a_store_that_returns_too_much_is_cut(self, ctx: Ctx):
        class Generous(ScriptedStore):
            async def search(self, query: SearchQuery, *, ctx: Any) -> SearchResult:
                return SearchResult(self.hits)

        chain = SequentialMemory([Generous("a", [SearchHit(ITEM)]), Generous("b", [SearchHit(ITEM)] * 3)])
        assert len((await chain.search(SearchQuery("q", 2), ctx=ctx)).hits) == 2

    async def test_fusion_is_that_of_the_only_source_asked(self, ctx: Ctx):
        fusion = RankFusion(2, 0.5, 0.5)
        one = ScriptedStore("one", [SearchHit(ITEM)], fusion=fusion)
        chain = SequentialMemory([one, ScriptedStore("two", fusion=fusion)])
        assert (await chain.search(SearchQuery("q", 1), ctx=ctx)).fusion == fusion
        assert (await chain.search(SearchQuery("q", 2), ctx=ctx)).fusion is None

    async def test_a_source_that_fails_or_is_late_is_a_degradation(self, ctx: Ctx, observed: Any):
        leg = Degradation("store/semantic", "DEADLINE_EXCEEDED", "late")
        late = ScriptedStore("late", until={"search": asyncio.Event()})
        chain = SequentialMemory(
            [late, FailingMemory(OSError("a secret"), "down"), ScriptedStore("store", degradations=[leg])]
        )
        hurried = replace(ctx, deadline=time.monotonic() + 0.05)
        result = await chain.search(SearchQuery("q"), ctx=hurried)
        assert [(each.component, each.reason) for each in result.degradations] == [
            ("store/semantic", "DEADLINE_EXCEEDED"),
            ("late", "DEADLINE_EXCEEDED"),
            ("down", "INTERNAL"),
        ]
        assert "secret" not in result.degradations[2].message
        assert [fields["source"] for _, fields in observed] == ["late", "down"]

    async def test_when_all_fail_the_errors_may_travel(self, ctx: Ctx):
        with pytest.raises(AllSourcesFailed) as raised:
            await SequentialMemory([FailingMemory(OSError("disk"), "a")]).search(SearchQuery("q"), ctx=ctx)
        assert isinstance(raised.value.failed["a"], InternalFailure)

    async def test_a_wrong_request_is_raised_and_asks_nobody_else(self, ctx: Ctx, observed: Any):
        wrong = InvalidField(violations={"k": "is odd"})
        second = ScriptedStore("second")
        for call in ("query", "search"):
            chain = SequentialMemory([ScriptedStore("first", failures={"search": wrong}), second])
            with pytest.raises(InvalidField):
                await (chain.query("q", k=3, ctx=ctx) if call == "query" else chain.search(SearchQuery("q"), ctx=ctx))
        assert (second.calls, observed) == ([], [])

    async def test_a_commit_goes_to_the_first(self, ctx: Ctx):
        first, second = ScriptedStore("same", token="1"), ScriptedStore("same", token="2")  # noqa: S106
        chain = SequentialMemory([first, second])
        outcome = await chain.commit(WriteBatch([ITEM], "key", "lane"), ctx=ctx)
        assert (outcome.accepted, outcome.ids) == (["same"], ["same-0"])
        assert first.calls_of("commit") == [{"batch": WriteBatch([ITEM], "key", "lane")}]
        assert second.calls == []
        assert await chain.commit(WriteBatch([]), ctx=ctx) == WriteOutcome()
        assert await SequentialMemory([]).commit(WriteBatch([ITEM]), ctx=ctx) == WriteOutcome()
        failing = SequentialMemory([FailingMemory(OSError("disk"))])
        with pytest.raises(OSError, match="disk"):
            await failing.commit(WriteBatch([ITEM]), ctx=ctx)

    async def test_tokens_are_told_apart_also_under_one_name(self, ctx: Ctx):
        first, second = ScriptedStore("same", token="1"), ScriptedStore("same", token="2")  # noqa: S106
        chain = SequentialMemory([first, second])
        token = (await chain.search(SearchQuery("q"), ctx=ctx)).commit_token
        assert token == await chain.commit_token(ctx=ctx) == join({"same": "1", "same#2": "2"})
        await chain.search(SearchQuery("q", min_commit_token=token), ctx=ctx)
        assert [store.calls_of("search")[-1]["query"].min_commit_token for store in (first, second)] == ["1", "2"]
        written = (await chain.commit(WriteBatch([ITEM]), ctx=ctx)).commit_token
        assert written == join({"same": "1"})

    async def test_records_are_those_of_the_first_that_keeps_any(self, ctx: Ctx):
        store, other = ScriptedStore("store", items=[replace(ITEM, id="1")]), ScriptedStore("other")
        chain = SequentialMemory([holding("cache"), store, other])
        assert chain.keeps_records
        assert len(await chain.get(["1"], ctx=ctx)) == len([item async for item in chain.list(ctx=ctx)]) == 1
        await chain.update("1", ctx=ctx, content="x")
        assert await chain.delete(["1"], ctx=ctx) == 1
        assert [call.method for call in store.calls] == ["get", "list_page", "update", "delete"]
        assert other.calls == []
        assert not SequentialMemory([holding("cache")]).keeps_records
        with pytest.raises(UnknownSource, match="keeps no records"):
            await SequentialMemory([holding("cache")]).get(["1"], ctx=ctx)

    async def test_closing_closes_every_source(self):
        sources = [ScriptedStore("a", failures={"close": OSError("stuck")}), ScriptedStore("b")]
        with pytest.raises(ExceptionGroup):
            async with SequentialMemory(list(sources)):
                pass
        assert [len(source.calls_of("close")) for source in sources] == [1, 1]
