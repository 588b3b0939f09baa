"""A search over two legs: what each contributes, what it could not, and that nothing comes back that must not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from recalld import Ctx, MemoryAttributes, MemoryItem, RecalldError, Scope, Visibility
from recalld.engine import LocalMemory
from recalld.errors import DeadlineExceeded, InternalFailure, InvalidField, SourceUnavailable
from recalld.store import RankFusion, RetrievalMode, SearchQuery, WriteBatch

ITEMS = [
    MemoryItem("red tea", "me", id="red"),
    MemoryItem("green tea", "me", id="green"),
    MemoryItem("milk", "me", id="m"),
]


@pytest.fixture
async def memory(records, embedder, clock, ctx) -> LocalMemory:
    made = LocalMemory(records, embedder, clock=clock)
    await made.write(ITEMS, ctx=ctx)
    return made


def watched(ctx: Ctx, **fields: Any) -> tuple[Ctx, list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []
    return Ctx(ctx.scope, observe=lambda event, told: seen.append((event, dict(told))), **fields), seen


def ids(result) -> list[str | None]:
    return [hit.item.id for hit in result.hits]


async def test_both_legs_rank_and_the_fusion_is_told(memory, ctx):
    result = await memory.search(SearchQuery("red tea"), ctx=ctx)
    assert ids(result)[:2] == ["red", "green"]
    first = result.hits[0]
    assert (first.lexical_rank, first.semantic_rank) == (1, 1)
    fusion = result.fusion
    assert first.item.score == pytest.approx((fusion.lexical_weight + fusion.semantic_weight) / (fusion.k + 1))


async def test_the_caller_s_fusion_is_the_one_used(memory, ctx):
    result = await memory.search(SearchQuery("red tea", fusion=RankFusion(7, 1.0, 0.0)), ctx=ctx)
    assert result.fusion == RankFusion(7, 1.0, 0.0)
    assert result.hits[0].item.score == pytest.approx(1 / 8)


async def test_a_failed_leg_is_told_and_the_other_answers(memory, embedder, ctx):
    embedder.failure = SourceUnavailable("the model is gone")
    call, seen = watched(ctx)
    result = await memory.search(SearchQuery("red tea"), ctx=call)
    assert ids(result) == ["red", "green"]
    assert [(each.component, each.reason) for each in result.degradations] == [
        ("memory/semantic", "SOURCE_UNAVAILABLE")
    ]
    assert [(event, told["component"]) for event, told in seen] == [("memory.source_degraded", "memory/semantic")]
    assert result.fusion is None


async def test_a_defect_in_a_leg_tells_nothing_of_the_inside(memory, embedder, ctx):
    embedder.failure = KeyError("a secret path")
    result = await memory.search(SearchQuery("red tea"), ctx=ctx)
    assert [each.reason for each in result.degradations] == ["INTERNAL"]
    assert "secret" not in result.degradations[0].message


async def test_a_late_leg_leaves_time_for_the_other(memory, records, ctx):
    records.lexical_answer = asyncio.Event().wait
    call, _ = watched(ctx, deadline=time.monotonic() + 0.5)
    result = await memory.search(SearchQuery("red tea"), ctx=call)
    assert [(each.component, each.reason) for each in result.degradations] == [("memory/lexical", "DEADLINE_EXCEEDED")]
    assert ids(result)[0] == "red"
    assert call.remaining > 0


async def test_when_no_leg_comes_through_the_call_fails(memory, records, embedder, ctx):
    async def fail() -> None:
        raise DeadlineExceeded("slow disk")

    records.lexical_answer = fail
    embedder.failure = SourceUnavailable("the model is gone")
    with pytest.raises(DeadlineExceeded, match="slow disk"):
        await memory.search(SearchQuery("red tea"), ctx=ctx)
    for mode, error in ((RetrievalMode.LEXICAL, DeadlineExceeded), (RetrievalMode.SEMANTIC, SourceUnavailable)):
        with pytest.raises(error):
            await memory.search(SearchQuery("red tea", mode=mode), ctx=ctx)
    embedder.failure = ValueError("a defect")
    with pytest.raises(InternalFailure):
        await memory.search(SearchQuery("red tea", mode=RetrievalMode.SEMANTIC), ctx=ctx)


async def test_a_mode_asks_its_leg_alone(memory, embedder, records, ctx):
    by_words = await memory.search(SearchQuery("tea", mode=RetrievalMode.LEXICAL), ctx=ctx)
    assert {hit.semantic_rank for hit in by_words.hits} == {0}
    by_meaning = await memory.search(SearchQuery("tea", mode=RetrievalMode.SEMANTIC), ctx=ctx)
    assert {hit.lexical_rank for hit in by_meaning.hits} == {0}
    assert set(ids(by_meaning)) == {"red", "green", "m"}


async def test_what_is_deleted_while_the_legs_run_does_not_come_back(memory, records, ctx):
    records.after_legs = lambda: memory.delete(["red"], ctx=ctx)
    assert ids(await memory.search(SearchQuery("red tea"), ctx=ctx)) == ["green", "m"]


async def test_what_turns_private_while_the_legs_run_does_not_come_back(memory, records, ctx):
    shared = MemoryAttributes(visibility=Visibility.ORG, user_id="maya")
    await memory.write([MemoryItem("blue tea", "me", id="blue", attributes=shared)], ctx=ctx)
    records.after_legs = lambda: memory.update("blue", ctx=ctx, attributes={"visibility": Visibility.PRIVATE})
    call, _ = watched(ctx, user_id="noor")
    assert "blue" not in ids(await memory.search(SearchQuery("blue tea"), ctx=call))
    assert "blue" in ids(await memory.search(SearchQuery("blue tea"), ctx=ctx))


@pytest.mark.parametrize("mode", [RetrievalMode.LEXICAL, RetrievalMode.SEMANTIC])
async def test_each_leg_filters_before_it_ranks(memory, ctx, mode):
    crowd = [MemoryItem("red tea", "me", id=f"c{n}", metadata={"crowd": True}) for n in range(30)]
    await memory.write([*crowd, MemoryItem("red", "me", id="one", metadata={"crowd": False})], ctx=ctx)
    query = SearchQuery("red tea", 1, {"crowd": False}, mode, candidates=1)
    assert ids(await memory.search(query, ctx=ctx)) == ["one"]


async def test_a_leg_goes_to_a_fixed_depth_whatever_the_page(memory, records, ctx):
    for k in (1, 5, 200):
        await memory.search(SearchQuery("tea", k), ctx=ctx)
    await memory.search(SearchQuery("tea", 3, candidates=7), ctx=ctx)
    assert records.limits == [100, 100, 200, 7]


async def test_a_state_that_is_not_reached_is_not_answered_for(memory, records, ctx):
    token = await memory.commit_token(ctx=ctx)
    ahead = LocalMemory()
    await ahead.write([MemoryItem(str(n), "me") for n in range(9)], ctx=ctx)
    beyond = await ahead.commit_token(ctx=ctx)
    assert ids(await memory.search(SearchQuery("red", min_commit_token=token), ctx=ctx))
    with pytest.raises(SourceUnavailable):
        await memory.search(SearchQuery("red", min_commit_token=beyond), ctx=ctx)
    for forged in ("x", "x.y", token + "z", token.replace(".", ".-"), token + "0" * 5000):
        with pytest.raises((InvalidField, SourceUnavailable)):
            await memory.search(SearchQuery("red", min_commit_token=forged), ctx=ctx)
    with pytest.raises(InvalidField):
        await memory.search(SearchQuery("red", min_commit_token=token), ctx=Ctx(Scope("acme", "other")))


async def test_only_active_memories_are_found_unless_the_filter_names_a_status(memory, clock, ctx):
    await memory.write(
        [MemoryItem("red wine", "me", id="w", attributes=MemoryAttributes(expire_time=clock()))], ctx=ctx
    )
    assert "w" not in ids(await memory.search(SearchQuery("red"), ctx=ctx))
    clock.forward(hours=-1)
    assert "w" in ids(await memory.search(SearchQuery("red"), ctx=ctx))
    assert ids(await memory.search(SearchQuery("red", where={"attributes.status": "archived"}), ctx=ctx)) == []


async def test_without_an_embedder_it_finds_by_words_and_says_that_meaning_is_missing(ctx):
    async with LocalMemory() as memory:
        await memory.write(ITEMS, ctx=ctx)
        hybrid = await memory.search(SearchQuery("tea"), ctx=ctx)
        assert (set(ids(hybrid)), list(hybrid.degradations)) == ({"red", "green"}, [])
        call, seen = watched(ctx)
        semantic = await memory.search(SearchQuery("tea", mode=RetrievalMode.SEMANTIC), ctx=call)
        assert (ids(semantic), [each.component for each in semantic.degradations]) == ([], ["memory/semantic"])
        assert [event for event, _ in seen] == ["memory.source_degraded"]


async def test_a_cancelled_search_stops_both_legs(memory, records, ctx):
    stopped = asyncio.Event()
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    records.lexical_answer = wait
    search = asyncio.create_task(memory.search(SearchQuery("tea"), ctx=ctx))
    await started.wait()
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert stopped.is_set()


async def test_the_short_form_gives_at_most_what_a_search_may(memory, ctx):
    assert len(await memory.query("tea", k=5000, ctx=ctx)) == 3
    with pytest.raises(RecalldError):
        await memory.search(SearchQuery("tea", 5000), ctx=ctx)


async def test_memories_in_two_event_loops_share_what_is_stored(ctx):
    memory = LocalMemory()

    def write(number: int) -> None:
        asyncio.run(memory.commit(WriteBatch([MemoryItem(f"from loop {number}", "me")]), ctx=ctx))

    for number in range(2):
        await asyncio.to_thread(write, number)
    assert len([item async for item in memory.list(ctx=ctx)]) == 2
