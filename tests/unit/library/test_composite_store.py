"""A composite as a store: what it tells of a search and a write, whose records it keeps, and what passes through."""

# ruff: noqa: S105, S106 - commit tokens and page tokens are no passwords

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from recalld import (
    AllSourcesFailed,
    CompositeMemory,
    CompositeWriteError,
    Ctx,
    Degradation,
    MemoryAttributes,
    MemoryItem,
    MemoryWriteRefused,
    RankFusion,
    ReadOnlyMemory,
    RetrievalMode,
    Scope,
    ScopedMemory,
    SearchHit,
    SearchQuery,
    WriteBatch,
)
from recalld.commit_tokens import join, split
from recalld.engine import InMemoryRecords, LocalMemory
from recalld.errors import (
    DeadlineExceeded,
    InternalFailure,
    InvalidField,
    InvalidFilter,
    ItemNotFound,
    RecalldError,
    ScopeRequired,
    SourceUnavailable,
    UnknownSource,
)
from recalld.fusion import rank_across_sources, rrf_rerank
from recalld.store import WriteOutcome
from recalld.testing import BlockedMemory, FailingMemory, ListMemory, ScriptedStore

ITEM = MemoryItem("tea", "caller")
GONE = SourceUnavailable("gone", details={"source": "down"})
WRONG = InvalidField(violations={"items[0].content": "is empty"})


def local(name: str) -> LocalMemory:
    return LocalMemory(InMemoryRecords(name))


def hit(content: str, source: str, id: str | None = None, *, rank: int = 0, day: int | None = None) -> SearchHit:
    time = None if day is None else datetime(2024, 1, day, tzinfo=UTC)
    item = MemoryItem(content, source, id=id, attributes=MemoryAttributes(create_time=time))
    return SearchHit(item, lexical_rank=rank, lexical_score=10.0 - rank if rank else None)


def contents(hits: Any) -> list[str]:
    return [each.item.content for each in hits]


async def write_to(*members: Any, ctx: Ctx, **batch: Any) -> WriteOutcome:
    return await CompositeMemory(list(members)).commit(WriteBatch([ITEM], **batch), ctx=ctx)


class TestWhatASearchTells:
    async def test_every_member_is_asked_for_all_that_was_asked(self, ctx: Ctx):
        members = [ScriptedStore("a"), ScriptedStore("b")]
        query = SearchQuery("q", 7, {"page": 3}, RetrievalMode.LEXICAL, RankFusion(k=3), candidates=50)
        await CompositeMemory(list(members)).search(query, ctx=ctx)
        for member in members:
            (call,) = member.calls
            assert call.given == {"query": query}
            assert call.ctx is ctx

    async def test_a_hit_keeps_the_explanation_of_its_first_copy(self, ctx: Ctx):
        one = ScriptedStore("one", [hit("tea", "one", "1", rank=4), hit("milk", "one", "2", rank=5)])
        two = ScriptedStore("two", [hit("tea", "two", "9", rank=1)])
        for reranker in (None, rrf_rerank()):
            result = await CompositeMemory([one, two], reranker).search(SearchQuery("q", 3), ctx=ctx)
            found = {each.item.content: each for each in result.hits}
            assert (found["tea"].lexical_rank, found["tea"].lexical_score) == (4, 6.0)
            assert found["tea"].item.metadata["dedupe_sources"] == ["one", "two"]
            assert found["milk"].lexical_rank == 5

    async def test_also_where_two_hits_look_alike(self, ctx: Ctx):
        store = ScriptedStore("one", [hit("tea", "one", rank=1), hit("tea", "one", rank=2)])
        result = await CompositeMemory([store], rrf_rerank(), dedupe=None).search(SearchQuery("q", 3), ctx=ctx)
        assert [each.lexical_rank for each in result.hits] == [1, 2]

    async def test_of_what_a_reranker_rewrote_nothing_is_known(self, ctx: Ctx):
        async def rewrite(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
            return [replace(item, content=item.content.upper()) for item in items]

        result = await CompositeMemory([ScriptedStore("one", [hit("tea", "one", rank=1)])], rewrite).search(
            SearchQuery("q"), ctx=ctx
        )
        assert [(each.item.content, each.lexical_rank) for each in result.hits] == [("TEA", 0)]

    async def test_fusion_is_that_of_a_single_member(self, ctx: Ctx):
        fusion = RankFusion(2, 0.25, 0.75)
        one, two = ScriptedStore("one", fusion=fusion), ScriptedStore("two", fusion=fusion)
        assert (await CompositeMemory([one]).search(SearchQuery("q"), ctx=ctx)).fusion == fusion
        assert (await CompositeMemory([one, two]).search(SearchQuery("q"), ctx=ctx)).fusion is None
        failing = CompositeMemory([one, FailingMemory(OSError())])
        assert (await failing.search(SearchQuery("q"), ctx=ctx)).fusion is None

    async def test_an_empty_text_gives_the_newest_of_all_not_reranked(self, ctx: Ctx):
        async def rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
            raise AssertionError

        naive = MemoryItem("naive", "two", attributes=MemoryAttributes(create_time=datetime(2030, 1, 1)))  # noqa: DTZ001
        one = ScriptedStore("one", [hit("3rd", "one", day=3), hit("undated", "one"), hit("1st", "one", day=1)])
        two = ScriptedStore("two", [hit("also 3rd", "two", day=3), hit("2nd", "two", day=2), SearchHit(naive)])
        plain = ListMemory([MemoryItem("plain", "plain", 0.9)], "plain")
        composite = CompositeMemory([one, two, plain], rerank)
        newest = ["3rd", "also 3rd", "2nd", "1st", "undated", "naive", "plain"]
        assert contents((await composite.search(SearchQuery("", 9), ctx=ctx)).hits) == newest
        assert contents((await composite.search(SearchQuery("", 2), ctx=ctx)).hits) == newest[:2]

    async def test_as_the_server_composes_it_a_single_source_passes_unchanged(self, ctx: Ctx):
        store = ScriptedStore("one", [hit("same", "one", "1", rank=1), hit("same", "one", "2", rank=2)])
        composite = CompositeMemory([store], rank_across_sources, dedupe="origin")
        assert (await composite.search(SearchQuery("q"), ctx=ctx)).hits == store.hits

    async def test_two_sources_that_number_alike_lose_nothing_by_origin(self, ctx: Ctx):
        one = ScriptedStore("one", [hit("tea", "one", "m1")])
        two = ScriptedStore("two", [hit("milk", "two", "m1")])
        by_origin = CompositeMemory([one, two], rank_across_sources, dedupe="origin")
        assert contents((await by_origin.search(SearchQuery("q"), ctx=ctx)).hits) == ["tea", "milk"]
        assert contents((await CompositeMemory([one, two]).search(SearchQuery("q"), ctx=ctx)).hits) == ["tea"]


class TestDegradations:
    async def test_each_member_s_own_and_one_for_each_that_failed(self, ctx: Ctx, observed: Any):
        leg = Degradation("up/semantic", "DEADLINE_EXCEEDED", "late")
        broken = RuntimeError("a defect with a secret")
        up = ScriptedStore("up", [hit("tea", "up")], degradations=[leg])
        composite = CompositeMemory(
            [ScriptedStore("down", failures={"search": GONE}), FailingMemory(broken, "broken"), up]
        )
        result = await composite.search(SearchQuery("q"), ctx=ctx)
        assert contents(result.hits) == ["tea"]
        assert result.degradations == [
            leg,
            Degradation("down", "SOURCE_UNAVAILABLE", "gone"),
            Degradation("broken", "INTERNAL", "source 'broken' failed"),
        ]
        failed = [{"source": "down", "error": GONE}, {"source": "broken", "error": broken}]
        assert observed == [("memory.source_failed", fields) for fields in failed]

    async def test_a_late_member_is_one_and_the_others_still_answer(self, ctx: Ctx, observed: Any):
        late = ScriptedStore("late", until={"search": asyncio.Event()})
        up = ScriptedStore("up", [hit("tea", "up")])
        hurried = replace(ctx, deadline=time.monotonic() + 0.5)
        result = await CompositeMemory([late, up]).search(SearchQuery("q"), ctx=hurried)
        assert hurried.remaining  # there is time left to send it
        assert contents(result.hits) == ["tea"]
        assert [(each.component, each.reason) for each in result.degradations] == [("late", "DEADLINE_EXCEEDED")]
        assert isinstance(observed[0][1]["error"], DeadlineExceeded)

    async def test_members_get_a_share_of_the_time(self, ctx: Ctx):
        store = ScriptedStore("one")
        hurried = replace(ctx, deadline=time.monotonic() + 100)
        composite = CompositeMemory([store])
        await composite.search(SearchQuery("q"), ctx=hurried)
        await composite.commit(WriteBatch([ITEM]), ctx=hurried)
        for call in store.calls:
            assert isinstance(call.ctx, Ctx)
            assert call.ctx.deadline == pytest.approx(hurried.deadline - 10, abs=1)
            assert replace(call.ctx, deadline=hurried.deadline) == hurried

    async def test_a_context_of_another_framework_comes_through_as_it_is(self):
        class FrameworkContext:
            scope = Scope("acme", "support")
            deadline = time.monotonic() + 100

        ctx, source = FrameworkContext(), ListMemory([ITEM])
        await CompositeMemory([source]).search(SearchQuery("q"), ctx=ctx)
        assert source.queries[0].ctx is ctx

    async def test_when_all_fail_each_is_named_by_an_error_that_may_travel(self, ctx: Ctx):
        composite = CompositeMemory(
            [ScriptedStore("a", failures={"search": GONE}), FailingMemory(OSError("disk"), "b")]
        )
        with pytest.raises(AllSourcesFailed) as raised:
            await composite.search(SearchQuery("q"), ctx=ctx)
        assert raised.value.failed["a"] is GONE
        assert isinstance(raised.value.failed["b"], InternalFailure)
        assert "disk" not in str(raised.value)
        assert isinstance(raised.value.failed["b"].__cause__, OSError)

    @pytest.mark.parametrize("short", [True, False])
    @pytest.mark.parametrize("wrong", [WRONG, ScopeRequired("no scope")])
    async def test_a_wrong_request_is_an_error_also_when_others_answer(
        self, ctx: Ctx, observed: Any, wrong: Exception, short: bool
    ):
        member = ScriptedStore("strict", failures={"search": wrong})
        composite = CompositeMemory([ListMemory([ITEM], "up"), member])
        with pytest.raises(type(wrong)) as raised:
            await (composite.query("q", k=1, ctx=ctx) if short else composite.search(SearchQuery("q", 1), ctx=ctx))
        assert raised.value is wrong
        assert observed == []

    async def test_a_guard_that_closes_one_member_is_that_member_s_failure(self, ctx: Ctx):
        closed = ScopedMemory(ListMemory([ITEM], "closed"), enforce=lambda _: False)
        result = await CompositeMemory([closed, ListMemory([ITEM], "open")]).search(SearchQuery("q"), ctx=ctx)
        assert [(each.component, each.reason) for each in result.degradations] == [("closed", "PERMISSION_DENIED")]

    async def test_wrong_filters_and_tokens_reach_nobody(self, ctx: Ctx):
        store = ScriptedStore()
        for query in (SearchQuery("q", where={"$near": 1}), SearchQuery("q", min_commit_token="?")):
            with pytest.raises((InvalidFilter, InvalidField)):
                await CompositeMemory([store]).search(query, ctx=ctx)
        assert store.calls == []

    async def test_a_query_for_more_than_a_store_takes_asks_it_for_what_it_takes(self, ctx: Ctx):
        store, plain = ScriptedStore("store"), ListMemory(name="plain")
        await CompositeMemory([store, plain]).query("q", k=5000, ctx=ctx)
        assert store.calls_of("search")[0]["query"].k == 1000
        assert plain.queries[0].k == 5000

    async def test_cancelling_cancels_every_member(self, ctx: Ctx):
        plain = BlockedMemory(name="plain")
        task = asyncio.create_task(
            CompositeMemory([plain, ScriptedStore(until={"search": asyncio.Event()})]).search(SearchQuery("q"), ctx=ctx)
        )
        await plain.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert plain.cancelled == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}


class TestCommitTokens:
    async def test_an_answer_s_token_holds_one_of_each_member(self, ctx: Ctx):
        members = [ScriptedStore("a", token="1"), ListMemory(name="plain"), ScriptedStore("b:1", token="2")]
        composite = CompositeMemory(members)
        for token in (
            (await composite.search(SearchQuery("q"), ctx=ctx)).commit_token,
            (await composite.commit(WriteBatch([ITEM]), ctx=ctx)).commit_token,
            await composite.commit_token(ctx=ctx),
        ):
            assert split(token) == {"a": "1", "b:1": "2"}

    async def test_each_member_gets_its_own_part_and_those_of_others_are_nobody_s(self, ctx: Ctx):
        members = [ScriptedStore("a"), ListMemory(name="plain"), ScriptedStore("b")]
        query = SearchQuery("q", min_commit_token=join({"b": "2", "a": "1", "elsewhere": "3"}))
        await CompositeMemory(members).search(query, ctx=ctx)
        assert members[0].calls_of("search")[0]["query"].min_commit_token == "1"  # type: ignore[union-attr]
        assert members[2].calls_of("search")[0]["query"].min_commit_token == "2"  # type: ignore[union-attr]

    async def test_they_promise_what_was_written_through_composites_of_composites(self, ctx: Ctx):
        inner = CompositeMemory([local("deep")], name="inner")
        outer = CompositeMemory([inner, local("flat")])
        token = (await outer.commit(WriteBatch([ITEM]), ctx=ctx)).commit_token
        result = await outer.search(SearchQuery("tea", min_commit_token=token), ctx=ctx)
        assert contents(result.hits) == ["tea"]
        assert await outer.commit_token(ctx=ctx) == token == result.commit_token

    async def test_a_selection_of_one_has_the_same_form(self, ctx: Ctx):
        whole = CompositeMemory([local("a"), local("b")])
        token = (await whole.select(["b"]).commit(WriteBatch([ITEM]), ctx=ctx)).commit_token
        assert set(split(token)) == {"b"}
        assert contents((await whole.search(SearchQuery("tea", min_commit_token=token), ctx=ctx)).hits) == ["tea"]

    async def test_a_state_that_is_not_reached_is_that_member_s_failure(self, ctx: Ctx):
        a, b = local("a"), local("b")
        token = (await CompositeMemory([a]).commit(WriteBatch([ITEM]), ctx=ctx)).commit_token
        younger = CompositeMemory([LocalMemory(InMemoryRecords("a")), b])
        result = await younger.search(SearchQuery("tea", min_commit_token=token), ctx=ctx)
        assert [(each.component, each.reason) for each in result.degradations] == [("a", "SOURCE_UNAVAILABLE")]

    async def test_the_state_of_now_leaves_out_a_member_that_fails(self, ctx: Ctx, observed: Any):
        down = ScriptedStore("down", failures={"commit_token": GONE})
        assert await CompositeMemory([down, ScriptedStore("up", token="1")]).commit_token(ctx=ctx) == join({"up": "1"})
        assert observed == [("memory.source_failed", {"source": "down", "error": GONE})]
        with pytest.raises(AllSourcesFailed):
            await CompositeMemory([down]).commit_token(ctx=ctx)


class TestTheSplitOfACommit:
    async def test_each_member_ends_in_exactly_one_bucket(self, ctx: Ctx):
        broken = RuntimeError("a defect with a secret")
        up = ScriptedStore("up")
        outcome = await write_to(
            up,
            ListMemory(name="files", accepts_writes=False),
            ReadOnlyMemory(ListMemory(name="kept"), "ignore"),
            ReadOnlyMemory(local("sealed"), "refuse"),
            ScriptedStore("down", failures={"commit": GONE}),
            FailingMemory(broken, "broken"),
            FailingMemory(asyncio.CancelledError(), "cancelled"),
            ctx=ctx,
        )
        assert outcome.accepted == ["up"]
        assert outcome.refused == ["files", "kept"]
        assert {name: type(error).__name__ for name, error in outcome.failed.items()} == {
            "sealed": "MemoryWriteRefused",
            "down": "SourceUnavailable",
            "broken": "InternalFailure",
            "cancelled": "SourceUnavailable",
        }
        assert outcome.failed["broken"].__cause__ is broken
        assert "secret" not in str(outcome.failed["broken"])
        assert outcome.ids == [up.calls_of("commit")[0]["batch"].items[0].id]
        with pytest.raises(CompositeWriteError):
            outcome.raise_for_failures()

    async def test_a_nested_composite_that_failed_in_part_has_failed_with_its_own_split(self, ctx: Ctx):
        inner = CompositeMemory([local("a"), ScriptedStore("down", failures={"commit": GONE})], name="inner")
        outcome = await write_to(inner, local("b"), ctx=ctx)
        assert outcome.accepted == ["b"]
        nested = outcome.failed["inner"]
        assert isinstance(nested, CompositeWriteError)
        assert (nested.accepted, nested.failed) == (["a"], {"down": GONE})

    async def test_a_nested_composite_that_stored_nothing_is_refused(self, ctx: Ctx):
        inner = CompositeMemory([ReadOnlyMemory(local("a"), "ignore")], name="inner")
        outcome = await write_to(inner, local("b"), ctx=ctx)
        assert (outcome.accepted, outcome.refused) == (["b"], ["inner"])

    @pytest.mark.parametrize("verb", ["commit", "write"])
    @pytest.mark.parametrize("wrong", [WRONG, ScopeRequired("no scope")])
    async def test_a_wrong_request_is_raised_where_nobody_took_it(self, ctx: Ctx, wrong: Exception, verb: str):
        strict = ScriptedStore("strict", failures={"commit": wrong})
        down = ScriptedStore("down", failures={"commit": GONE})

        async def attempt(*members: Any) -> Any:
            composite = CompositeMemory(list(members))
            if verb == "commit":
                (await composite.commit(WriteBatch([ITEM]), ctx=ctx)).raise_for_failures()
            else:
                await composite.write([ITEM], ctx=ctx)

        for members in ((strict,), (down, strict)):
            with pytest.raises(type(wrong)) as raised:
                await attempt(*members)
            assert raised.value is wrong
        # Somebody took it: only the split can tell.
        for taker in (ScriptedStore("up"), ReadOnlyMemory(ListMemory(name="kept"), "ignore")):
            with pytest.raises(CompositeWriteError) as split:
                await attempt(taker, strict)
            assert split.value.failed == {"strict": wrong}

    async def test_one_member_that_fails_is_told_and_not_raised(self, ctx: Ctx):
        outcome = await write_to(ScriptedStore("down", failures={"commit": GONE}), ctx=ctx)
        assert (outcome.accepted, outcome.failed) == ([], {"down": GONE})

    async def test_it_is_a_replay_when_all_that_accepted_replayed(self, ctx: Ctx):
        again = WriteOutcome(["x"], ids=["1"], replayed=True)
        for members, replayed in (
            ([ScriptedStore("a", outcome=again), ScriptedStore("b", outcome=again)], True),
            ([ScriptedStore("a", outcome=again), ScriptedStore("b")], False),
            ([ScriptedStore("a", outcome=again), ReadOnlyMemory(ListMemory(name="b"), "ignore")], True),
            ([ReadOnlyMemory(ListMemory(name="b"), "ignore")], False),
        ):
            assert (await write_to(*members, ctx=ctx)).replayed is replayed

    async def test_a_retry_heals_the_failed_member_and_leaves_the_other(self, ctx: Ctx):
        class Flaky(LocalMemory):
            down = True

            async def commit(self, batch: WriteBatch, *, ctx: Any) -> WriteOutcome:
                if self.down:
                    raise GONE
                return await super().commit(batch, ctx=ctx)

        steady, flaky = local("steady"), Flaky(InMemoryRecords("flaky"))
        composite = CompositeMemory([steady, flaky])
        first = await composite.commit(WriteBatch([ITEM], "key"), ctx=ctx)
        flaky.down = False
        second = await composite.commit(WriteBatch([ITEM], "key"), ctx=ctx)
        assert (first.accepted, list(first.failed)) == (["steady"], ["flaky"])
        assert (second.accepted, second.ids, second.replayed) == (["steady", "flaky"], first.ids, False)
        for store in (steady, flaky):
            assert [item.id async for item in store.list(ctx=ctx)] == list(first.ids)
        assert (await composite.commit(WriteBatch([ITEM], "key"), ctx=ctx)).replayed

    async def test_an_empty_batch_reaches_nobody(self, ctx: Ctx):
        store = ScriptedStore()
        assert await CompositeMemory([store]).commit(WriteBatch([]), ctx=ctx) == WriteOutcome()
        assert store.calls == []

    async def test_without_members_nothing_takes_it(self, ctx: Ctx):
        assert await write_to(ctx=ctx) == WriteOutcome([], [], {}, (), "", False)

    async def test_cancelling_cancels_every_member(self, ctx: Ctx):
        plain = BlockedMemory(name="plain")
        task = asyncio.create_task(write_to(plain, ScriptedStore(until={"commit": asyncio.Event()}), ctx=ctx))
        await plain.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert plain.cancelled == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}


class TestIds:
    @pytest.mark.parametrize("verb", ["commit", "write"])
    async def test_one_write_has_one_id_in_all_that_keep_records(self, ctx: Ctx, verb: str):
        stores, plain = [local("a"), local("b")], ListMemory(name="plain")
        composite = CompositeMemory([*stores, plain])
        items = [MemoryItem("tea", "me"), MemoryItem("milk", "me", id="mine")]
        if verb == "commit":
            await composite.commit(WriteBatch(items), ctx=ctx)
        else:
            await composite.write(items, ctx=ctx)
        ids = [[item.id async for item in store.list(ctx=ctx)] for store in stores]
        assert ids[0] == ids[1]
        assert ids[0][0] == "mine"
        assert [item.id for item in plain.writes[0]] == ids[0][::-1]

    async def test_a_keyed_write_has_the_ids_that_a_member_would_give(self, ctx: Ctx):
        alone = await local("a").commit(WriteBatch([ITEM], "key"), ctx=ctx)
        assert (await write_to(local("a"), local("b"), ctx=ctx, idempotency_key="key")).ids == alone.ids

    async def test_beside_a_single_keeper_plain_sources_get_items_as_they_are(self, ctx: Ctx):
        plain = ListMemory(name="plain")
        outcome = await write_to(plain, local("a"), ctx=ctx)
        assert plain.writes == [[ITEM]]
        assert plain.writes[0][0] is ITEM
        assert len(outcome.ids) == 1  # those of the member that has them
        assert outcome.accepted == ["plain", "a"]

    async def test_a_short_write_passes_its_key_on(self, ctx: Ctx):
        store, plain = local("a"), ListMemory(name="plain")
        composite = CompositeMemory([store, plain])
        for _ in range(2):
            await composite.write([ITEM], ctx=ctx, idempotency_key="key")
        assert len([item async for item in store.list(ctx=ctx)]) == 1
        assert len(plain.writes) == 2  # a plain source knows no keys


class TestLanes:
    async def test_batches_of_a_lane_reach_every_member_in_their_order(self, ctx: Ctx):
        store, plain = ScriptedStore("store"), BlockedMemory(name="plain")
        whole = CompositeMemory([CompositeMemory([store], name="inner"), plain])
        batches = [WriteBatch([MemoryItem(str(number), "me")], lane="lane") for number in range(5)]
        # Whether through the whole or a selection, each with a wrapping of its own.
        doors = [whole, whole.select(["plain", "inner"]), whole, whole.select(["inner", "plain"]), whole]
        tasks = [asyncio.create_task(door.commit(batch, ctx=ctx)) for door, batch in zip(doors, batches, strict=True)]
        await plain.started.wait()
        plain.release.set()
        await asyncio.gather(*tasks)
        assert [given["batch"].items[0].content for given in store.calls_of("commit")] == list("01234")
        assert [batch[0].content for batch in plain.writes] == list("01234")

    async def test_a_selection_waits_for_what_the_whole_began(self, ctx: Ctx):
        class Slow(BlockedMemory):
            async def write(self, items: Any, *, ctx: Any) -> None:
                batch = list(items)
                if batch[0].content == "first":
                    await super().write(batch, ctx=ctx)
                else:
                    await ListMemory.write(self, batch, ctx=ctx)

        plain = Slow(name="plain")
        whole = CompositeMemory([plain, ListMemory(name="other")])
        batches = [WriteBatch([MemoryItem(text, "me")], lane="lane") for text in ("first", "second")]
        first = asyncio.create_task(whole.commit(batches[0], ctx=ctx))
        await plain.started.wait()
        second = asyncio.create_task(whole.select(["plain"]).commit(batches[1], ctx=ctx))
        other = asyncio.create_task(whole.select(["plain"]).commit(replace(batches[1], lane=None), ctx=ctx))
        await other
        assert not second.done()
        plain.release.set()
        await asyncio.gather(first, second)
        assert [batch[0].content for batch in plain.writes] == ["second", "first", "second"]


class TestRecords:
    @pytest.fixture
    def a(self) -> ScriptedStore:
        return ScriptedStore("a", items=[MemoryItem("of a", "a", id="1")])

    @pytest.fixture
    def b(self) -> ScriptedStore:
        return ScriptedStore("b", items=[MemoryItem("of b", "b", id="1")])

    async def test_are_read_in_the_first_that_keeps_any(self, ctx: Ctx, a: ScriptedStore, b: ScriptedStore):
        composite = CompositeMemory([ListMemory(), ReadOnlyMemory(a), b])
        assert composite.keeps_records
        assert [item.content for item in await composite.get(["1"], ctx=ctx)] == ["of a"]
        assert [item.content async for item in composite.list(ctx=ctx, where={"x": 1})] == ["of a"]
        page = await composite.list_page(ctx=ctx, page_size=7, page_token="p")
        assert [item.content for item in page.items] == ["of a"]
        expected = [{"where": {"x": 1}, "page_size": 100, "page_token": ""}]
        assert a.calls_of("list_page") == [*expected, {"where": None, "page_size": 7, "page_token": "p"}]
        assert b.calls == []

    async def test_are_updated_in_the_first_that_accepts_writes(self, ctx: Ctx, a: ScriptedStore, b: ScriptedStore):
        composite = CompositeMemory([ListMemory(), ReadOnlyMemory(a), b])
        changed = await composite.update("1", ctx=ctx, content="new", metadata_changes={"x": 1}, if_revision=3)
        assert changed.content == "of b"
        (given,) = b.calls_of("update")
        assert (given["id"], given["content"], given["metadata_changes"]) == ("1", "new", {"x": 1})
        assert given["if_revision"] == 3
        assert a.calls == []

    async def test_are_deleted_in_all_that_accept_writes(self, ctx: Ctx, a: ScriptedStore, b: ScriptedStore):
        sealed = ScriptedStore("sealed")
        composite = CompositeMemory([a, ReadOnlyMemory(sealed), ListMemory(), b])
        assert await composite.delete(["1"], ctx=ctx, dry_run=True) == 2
        assert a.calls_of("delete") == b.calls_of("delete") == [{"ids": ["1"], "where": None, "dry_run": True}]
        assert sealed.calls == []

    async def test_a_delete_that_fails_in_one_is_tried_in_the_others(self, ctx: Ctx, b: ScriptedStore):
        down = ScriptedStore("down", failures={"delete": GONE})
        broken = ScriptedStore("broken", failures={"delete": OSError("disk")})
        with pytest.raises(SourceUnavailable) as raised:
            await CompositeMemory([down, broken, b]).delete(["1"], ctx=ctx)
        assert raised.value is GONE
        assert any("disk" in note for note in raised.value.__notes__)
        assert len(b.calls) == 1

    async def test_one_after_another(self, ctx: Ctx, b: ScriptedStore):
        gate = asyncio.Event()
        slow = ScriptedStore("slow", until={"delete": gate})
        deleting = asyncio.create_task(CompositeMemory([slow, b]).delete(["1"], ctx=ctx))
        for _ in range(5):  # as many turns of the loop as two calls at once would need, and more
            await asyncio.sleep(0)
        assert (len(slow.calls), b.calls) == (1, [])
        gate.set()
        assert await deleting == 1

    async def test_the_member_that_is_named_is_used_instead(self, ctx: Ctx, a: ScriptedStore, b: ScriptedStore):
        composite = CompositeMemory([a, b], records="b")
        assert [item.content for item in await composite.get(["1"], ctx=ctx)] == ["of b"]
        assert (await composite.update("1", ctx=ctx, content="x")).content == "of b"
        assert await composite.delete(["1"], ctx=ctx) == 1
        assert a.calls == []
        with pytest.raises(MemoryWriteRefused):
            await CompositeMemory([ReadOnlyMemory(a), b], records="a").update("1", ctx=ctx, content="x")

    async def test_a_named_member_must_be_there_and_keep_records(self, ctx: Ctx, a: ScriptedStore):
        with pytest.raises(UnknownSource) as raised:
            CompositeMemory([a], records="c")
        assert raised.value.details == {"source": "c"}
        composite = CompositeMemory([a, ListMemory(name="plain")], records="plain")
        assert not composite.keeps_records
        with pytest.raises(UnknownSource, match="source 'plain' keeps no records"):
            await composite.get(["1"], ctx=ctx)

    async def test_where_nobody_keeps_any_they_are_unknown(self, ctx: Ctx):
        for composite, named in (
            (CompositeMemory([ListMemory(name="a"), ListMemory(name="b")], name="both"), "both"),
            (CompositeMemory([ListMemory(name="a")]), "a"),
            (CompositeMemory([]), "composite"),
        ):
            assert not composite.keeps_records
            for call in (
                composite.get(["1"], ctx=ctx),
                composite.list_page(ctx=ctx),
                composite.update("1", ctx=ctx, content="x"),
                composite.delete(["1"], ctx=ctx),
            ):
                with pytest.raises(UnknownSource, match="keeps no records") as raised:
                    await call
                assert raised.value.details == {"source": named}

    async def test_where_nobody_accepts_writes_a_change_is_refused(self, ctx: Ctx, a: ScriptedStore):
        composite = CompositeMemory([ReadOnlyMemory(a), ListMemory()])
        for call, count in (
            (composite.update("1", ctx=ctx, content="x"), 1),
            (composite.delete(["1", "2"], ctx=ctx), 2),
            (composite.delete(ctx=ctx, where={"x": 1}), 0),
        ):
            with pytest.raises(MemoryWriteRefused) as raised:
                await call
            assert (raised.value.source, raised.value.n) == ("composite", count)
        assert a.calls == []

    async def test_the_error_of_the_member_is_the_call_s(self, ctx: Ctx):
        with pytest.raises(ItemNotFound):
            await CompositeMemory([local("a"), local("b")]).update("missing", ctx=ctx, content="x")


class TestSelect:
    async def test_is_the_same_composite_over_some_members(self, ctx: Ctx):
        members = [ListMemory([MemoryItem(name, name)], name) for name in "abc"]
        reranker = rrf_rerank()
        whole = CompositeMemory(list(members), reranker, "whole", "origin", records="c")
        some = whole.select(["c", "a"])
        assert [source.name for source in some.sources] == ["a", "c"]
        assert (some.name, some.reranker, some.dedupe, some.records) == ("whole", reranker, "origin", "c")
        assert contents((await some.search(SearchQuery("q"), ctx=ctx)).hits) == ["a", "c"]
        assert members[1].queries == []
        assert whole.select(["a"]).records is None
        assert whole.select([]) is whole

    def test_an_unknown_name_is_named(self):
        with pytest.raises(UnknownSource) as raised:
            CompositeMemory([ListMemory(name="a")]).select(["a", "z"])
        assert raised.value.details == {"source": "z"}


class TestClosing:
    async def test_closes_every_member_also_when_some_fail_to(self):
        stuck = RecalldError("stuck")
        members = [ScriptedStore("a"), ScriptedStore("b", failures={"close": stuck}), ScriptedStore("c")]
        with pytest.raises(ExceptionGroup) as raised:
            await CompositeMemory([*members, ListMemory()]).close()
        assert raised.value.exceptions == (stuck,)
        assert [len(member.calls_of("close")) for member in members] == [1, 1, 1]

    async def test_as_a_context_manager(self):
        member = ScriptedStore()
        async with CompositeMemory([member]) as composite:
            assert isinstance(composite, CompositeMemory)
            assert member.calls == []
        assert len(member.calls_of("close")) == 1
