from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import (
    AllSourcesFailed,
    CompositeMemory,
    CompositeWriteError,
    Ctx,
    JournalMemory,
    MemoryItem,
    MemoryWriteRefused,
    MutationJournal,
    ReadOnlyMemory,
    RecalldError,
    ScopedMemory,
    ToolMemory,
)
from recalld.errors import InvalidFilter, SourceUnavailable
from recalld.testing import BlockedMemory, FailingMemory, ListMemory

ITEM = MemoryItem("new", "caller")


def holding(name: str, *contents: str, score: float | None = None) -> ListMemory:
    return ListMemory([MemoryItem(content, name, score) for content in contents], name)


class CancelledByOthers(ListMemory):
    """Ends in a CancelledError although nobody cancelled the call."""

    async def query(self, query: str, *, k: int, ctx: Any, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        raise asyncio.CancelledError

    async def write(self, items: Iterable[MemoryItem], *, ctx: Any) -> None:
        raise asyncio.CancelledError


class TestQuery:
    async def test_asks_every_source_at_once(self, ctx: Ctx):
        members = [BlockedMemory([MemoryItem(name, name)], name) for name in "abc"]
        asking = asyncio.create_task(CompositeMemory(list(members)).query("q", k=5, ctx=ctx))
        for member in members:
            await member.started.wait()
        for member in members:
            member.release.set()
        assert [item.content for item in await asking] == ["a", "b", "c"]

    async def test_hands_query_k_context_and_where_to_each(self, ctx: Ctx):
        members = [holding("a"), holding("b")]
        await CompositeMemory(list(members)).query("q", k=5, ctx=ctx, where={"page": 3})
        for member in members:
            (call,) = member.queries
            assert (call.query, call.k, call.ctx, call.where) == ("q", 5, ctx, {"page": 3})

    async def test_sorts_by_score_and_keeps_k(self, ctx: Ctx):
        composite = CompositeMemory(
            [holding("a", "low", score=0.1), holding("b", "high", score=0.9), holding("c", "none")]
        )
        assert [item.content for item in await composite.query("q", k=2, ctx=ctx)] == ["high", "low"]

    async def test_merges_before_it_reranks(self, ctx: Ctx):
        seen: list[MemoryItem] = []

        async def rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
            assert (query, k) == ("q", 2)
            seen.extend(items)
            return list(reversed(items))

        composite = CompositeMemory([holding("a", "x", "y", "z"), holding("b", "x")], reranker=rerank)
        answer = await composite.query("q", k=2, ctx=ctx)
        assert [item.content for item in seen] == ["x", "y"]  # each source was asked for two
        assert [item.content for item in answer] == ["y", "x"]
        assert answer[1].metadata == {"dedupe_sources": ["a", "b"], "dedupe_count": 2}

    async def test_cuts_what_a_reranker_returns_too_much(self, ctx: Ctx):
        async def everything(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
            return items

        composite = CompositeMemory([holding("a", "x"), holding("b", "y")], reranker=everything)
        assert len(await composite.query("q", k=1, ctx=ctx)) == 1

    async def test_one_fact_takes_one_of_the_k_places(self, ctx: Ctx):
        members = [holding("vector", "fact", score=0.9), holding("journal", "fact"), holding("c", "other", score=0.1)]
        answer = await CompositeMemory(list(members)).query("q", k=2, ctx=ctx)
        assert [item.content for item in answer] == ["fact", "other"]
        kept = await CompositeMemory(list(members), dedupe=None).query("q", k=3, ctx=ctx)
        assert sorted(item.content for item in kept) == ["fact", "fact", "other"]

    async def test_an_item_without_a_copy_is_the_object_that_the_source_returned(self, ctx: Ctx):
        member = holding("a", "x")
        assert (await CompositeMemory([member]).query("q", k=1, ctx=ctx))[0] is member.items[0]

    @pytest.mark.parametrize("k", [0, -3])
    async def test_asks_nobody_for_nothing(self, ctx: Ctx, k: int):
        composite = CompositeMemory([FailingMemory(ValueError())])
        assert await composite.query("q", k=k, ctx=ctx) == []

    async def test_without_sources_there_is_nothing(self, ctx: Ctx):
        assert await CompositeMemory([]).query("q", k=3, ctx=ctx) == []

    async def test_the_reranker_is_not_asked_about_nothing(self, ctx: Ctx):
        async def rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
            raise AssertionError

        assert await CompositeMemory([holding("a")], reranker=rerank).query("q", k=3, ctx=ctx) == []

    async def test_the_error_of_a_reranker_is_the_query_s(self, ctx: Ctx):
        async def rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
            raise OSError("model gone")

        with pytest.raises(OSError, match="model gone"):
            await CompositeMemory([holding("a", "x")], reranker=rerank).query("q", k=3, ctx=ctx)

    @pytest.mark.parametrize("member", [FailingMemory(ValueError()), ToolMemory(lambda **_: "x")])
    async def test_a_wrong_filter_is_the_caller_s_error_and_reaches_nobody(self, ctx: Ctx, member: Any):
        asked = holding("asked", "x")
        with pytest.raises(InvalidFilter):
            await CompositeMemory([asked, member]).query("q", k=1, ctx=ctx, where={"page": {"$near": 1}})
        assert asked.queries == []


class TestFailingSources:
    async def test_the_others_answer_and_the_failure_is_observed(self, ctx: Ctx, observed: Any):
        broken = OSError("disk")
        composite = CompositeMemory([FailingMemory(broken, "down"), holding("up", "x")])
        assert [item.content for item in await composite.query("q", k=3, ctx=ctx)] == ["x"]
        assert observed == [("memory.source_failed", {"source": "down", "error": broken})]

    async def test_an_empty_answer_is_an_answer(self, ctx: Ctx):
        assert await CompositeMemory([FailingMemory(OSError()), holding("up")]).query("q", k=3, ctx=ctx) == []

    async def test_when_all_fail_each_is_named(self, ctx: Ctx, observed: Any):
        errors = {"a": OSError("disk"), "b": ValueError("bad")}
        composite = CompositeMemory([FailingMemory(error, name) for name, error in errors.items()])
        with pytest.raises(AllSourcesFailed) as raised:
            await composite.query("q", k=3, ctx=ctx)
        assert raised.value.failed == errors
        assert list(raised.value.group.exceptions) == list(errors.values())
        assert [fields["source"] for _, fields in observed] == ["a", "b"]

    async def test_a_nested_composite_fails_as_one_source(self, ctx: Ctx):
        inner = CompositeMemory([FailingMemory(OSError("disk"), "leaf")], name="inner")
        with pytest.raises(AllSourcesFailed) as raised:
            await CompositeMemory([inner]).query("q", k=3, ctx=ctx)
        nested = raised.value.failed["inner"]
        assert isinstance(nested, AllSourcesFailed)
        assert list(nested.failed) == ["leaf"]

    async def test_a_context_without_an_observer_serves(self):
        composite = CompositeMemory([FailingMemory(OSError()), holding("up", "x")])
        assert len(await composite.query("q", k=3, ctx=Ctx())) == 1

    async def test_a_member_cancelled_by_somebody_else_has_failed(self, ctx: Ctx, observed: Any):
        composite = CompositeMemory([CancelledByOthers(name="odd"), holding("up", "x")])
        assert [item.content for item in await composite.query("q", k=3, ctx=ctx)] == ["x"]
        assert observed[0][1]["source"] == "odd"
        assert isinstance(observed[0][1]["error"], SourceUnavailable)

    async def test_an_observer_s_error_leaves_no_member_running(self, ctx: Ctx):
        def refuse(event: str, fields: Any) -> None:
            raise KeyError(event)

        slow = BlockedMemory(name="slow")
        composite = CompositeMemory([FailingMemory(OSError()), slow])
        asking = asyncio.create_task(composite.query("q", k=3, ctx=Ctx(observe=refuse)))
        await slow.started.wait()
        slow.release.set()
        with pytest.raises(KeyError):
            await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}


class TestCancellation:
    @pytest.mark.parametrize("verb", ["query", "write"])
    async def test_cancels_every_member_and_goes_through(self, ctx: Ctx, verb: str, observed: Any):
        members = [BlockedMemory(name="a"), BlockedMemory(name="b"), FailingMemory(OSError())]
        composite = CompositeMemory(list(members))
        call = composite.query("q", k=3, ctx=ctx) if verb == "query" else composite.write([ITEM], ctx=ctx)
        task = asyncio.create_task(call)
        for member in members[:2]:
            await member.started.wait()  # type: ignore[union-attr]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [member.cancelled for member in members[:2]] == [1, 1]  # type: ignore[union-attr]
        assert observed == []

    @pytest.mark.parametrize("verb", ["query", "write"])
    async def test_a_deadline_is_a_timeout(self, ctx: Ctx, verb: str):
        member = BlockedMemory()
        composite = CompositeMemory([member, holding("fast", "x")])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await (composite.query("q", k=3, ctx=ctx) if verb == "query" else composite.write([ITEM], ctx=ctx))
        assert member.cancelled == 1

    async def test_a_member_that_makes_another_error_of_it_does_not_stop_it(self, ctx: Ctx):
        class Stubborn(BlockedMemory):
            async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
                try:
                    return await super().query(query, k=k, ctx=ctx, where=where)
                except asyncio.CancelledError:
                    raise OSError("closed") from None

        member = Stubborn()
        task = asyncio.create_task(CompositeMemory([member, holding("a", "x")]).query("q", k=3, ctx=ctx))
        await member.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestConstruction:
    def test_two_sources_of_one_name_are_refused(self):
        with pytest.raises(ValueError, match="two sources are named 'a'") as raised:
            CompositeMemory([holding("a"), ReadOnlyMemory(holding("a"))])
        assert isinstance(raised.value, RecalldError)
        CompositeMemory([holding("a"), ReadOnlyMemory(holding("a"), name="guarded")])

    @pytest.mark.parametrize("word", ["ids", "", True])
    def test_an_unknown_dedupe_word_is_refused(self, word: Any):
        with pytest.raises(ValueError, match="dedupe") as raised:
            CompositeMemory([], dedupe=word)
        assert isinstance(raised.value, RecalldError)

    def test_defaults(self):
        composite = CompositeMemory([])
        assert (composite.name, composite.dedupe, composite.reranker) == ("composite", "id", None)

    def test_the_list_of_sources_is_its_own(self):
        given_sources: list[Any] = [holding("a")]
        composite = CompositeMemory(given_sources)
        given_sources.append(holding("a"))
        assert len(composite.sources) == 1


class TestAcceptsWrites:
    def test_any_member_that_can_commit_is_enough(self):
        closed = ReadOnlyMemory(holding("closed"))
        assert CompositeMemory([closed, holding("open")]).accepts_writes
        assert not CompositeMemory([closed, JournalMemory(MutationJournal[str](), str)]).accepts_writes
        assert not CompositeMemory([]).accepts_writes

    def test_a_source_that_does_not_say_accepts_writes(self):
        assert CompositeMemory([FailingMemory(OSError())]).accepts_writes

    def test_through_nesting(self):
        inner = CompositeMemory([ReadOnlyMemory(holding("a"))], name="inner")
        assert not CompositeMemory([inner]).accepts_writes
        assert CompositeMemory([inner, CompositeMemory([holding("b")], name="other")]).accepts_writes


class TestWrite:
    async def test_every_source_gets_every_item(self, ctx: Ctx):
        members = [holding("a"), holding("b")]
        await CompositeMemory(list(members)).write([ITEM, ITEM], ctx=ctx)
        assert [member.writes for member in members] == [[[ITEM, ITEM]], [[ITEM, ITEM]]]

    async def test_at_once(self, ctx: Ctx):
        members = [BlockedMemory(name="a"), BlockedMemory(name="b")]
        writing = asyncio.create_task(CompositeMemory(list(members)).write([ITEM], ctx=ctx))
        for member in members:
            await member.started.wait()
        for member in members:
            member.release.set()
        await writing
        assert [member.items for member in members] == [[ITEM], [ITEM]]

    async def test_a_generator_is_consumed_once(self, ctx: Ctx):
        read: list[int] = []

        def items() -> Iterable[MemoryItem]:
            for number in range(3):
                read.append(number)
                yield MemoryItem(str(number), "caller")

        members = [holding("a"), holding("b")]
        await CompositeMemory(list(members)).write(items(), ctx=ctx)
        assert read == [0, 1, 2]
        assert [[len(batch) for batch in member.writes] for member in members] == [[3], [3]]

    async def test_a_member_cannot_change_what_another_gets(self, ctx: Ctx):
        class Greedy(ListMemory):
            async def write(self, items: Iterable[MemoryItem], *, ctx: Any) -> None:
                assert isinstance(items, list)
                items.clear()

        after = holding("after")
        await CompositeMemory([Greedy(name="greedy"), after]).write([ITEM], ctx=ctx)
        assert after.writes == [[ITEM]]

    async def test_an_empty_write_reaches_nobody(self, ctx: Ctx, observed: Any):
        member = holding("a")
        await CompositeMemory([member, ReadOnlyMemory(holding("b")), FailingMemory(OSError())]).write(iter([]), ctx=ctx)
        assert member.writes == []
        assert observed == []

    async def test_the_split_has_three_buckets(self, ctx: Ctx):
        broken = OSError("disk")
        members: list[Any] = [
            holding("open"),
            ReadOnlyMemory(holding("ignoring"), "ignore"),
            ReadOnlyMemory(holding("refusing"), "refuse"),
            FailingMemory(broken, "down"),
            JournalMemory(MutationJournal[str](), str),
        ]
        with pytest.raises(CompositeWriteError) as raised:
            await CompositeMemory(members).write([ITEM], ctx=ctx)
        split = raised.value
        assert split.accepted == ["open"]
        assert split.refused == ["ignoring", "journal"]
        assert split.failed["down"] is broken
        refusal = split.failed["refusing"]
        assert isinstance(refusal, MemoryWriteRefused)
        assert (refusal.source, refusal.n) == ("refusing", 1)
        assert members[0].writes == [[ITEM]]

    async def test_refused_members_alone_are_no_error(self, ctx: Ctx):
        await CompositeMemory([ReadOnlyMemory(holding("a"), "ignore"), holding("b")]).write([ITEM], ctx=ctx)

    async def test_a_nested_composite_that_stores_nothing_is_refused_and_not_accepted(self, ctx: Ctx):
        inner = CompositeMemory([ReadOnlyMemory(holding("a"), "ignore")], name="inner")
        with pytest.raises(CompositeWriteError) as raised:
            await CompositeMemory([inner, FailingMemory(OSError())]).write([ITEM], ctx=ctx)
        assert (raised.value.accepted, raised.value.refused) == ([], ["inner"])

    async def test_a_nested_composite_that_failed_in_part_has_failed_with_its_own_split(self, ctx: Ctx):
        inner = CompositeMemory([holding("a"), FailingMemory(OSError("disk"), "down")], name="inner")
        with pytest.raises(CompositeWriteError) as raised:
            await CompositeMemory([inner, holding("b")]).write([ITEM], ctx=ctx)
        nested = raised.value.failed["inner"]
        assert isinstance(nested, CompositeWriteError)
        assert (nested.accepted, list(nested.failed)) == (["a"], ["down"])
        assert raised.value.accepted == ["b"]

    async def test_a_member_cancelled_by_somebody_else_has_failed(self, ctx: Ctx):
        with pytest.raises(CompositeWriteError) as raised:
            await CompositeMemory([CancelledByOthers(name="odd"), holding("b")]).write([ITEM], ctx=ctx)
        assert isinstance(raised.value.failed["odd"], asyncio.CancelledError)
        assert raised.value.accepted == ["b"]

    async def test_a_member_that_raises_before_it_awaits_has_failed(self, ctx: Ctx):
        class Hasty(ListMemory):
            def write(self, items: Iterable[MemoryItem], *, ctx: Any) -> Any:
                raise OSError("at once")

        other = holding("b")
        with pytest.raises(CompositeWriteError) as raised:
            await CompositeMemory([Hasty(name="hasty"), other]).write([ITEM], ctx=ctx)
        assert list(raised.value.failed) == ["hasty"]
        assert other.writes == [[ITEM]]

    async def test_a_tenant_violation_in_one_member_is_a_failure_of_that_member(self):
        with pytest.raises(CompositeWriteError) as raised:
            await CompositeMemory([ScopedMemory(holding("a")), holding("b")]).write([ITEM], ctx=Ctx())
        assert isinstance(raised.value.failed["a"], PermissionError)

    async def test_names_that_became_equal_are_refused_before_anything_is_written(self, ctx: Ctx):
        members = [holding("a"), holding("b")]
        composite = CompositeMemory(list(members))
        members[1].name = "a"
        with pytest.raises(ValueError, match="two sources"):
            await composite.write([ITEM], ctx=ctx)
        assert [member.writes for member in members] == [[], []]

    @given(st.lists(st.sampled_from(["accept", "ignore", "refuse", "fail", "cancelled", "nested"]), max_size=6))
    def test_every_member_ends_in_exactly_one_bucket(self, fates: list[str]):
        expected: dict[str, list[str]] = {"accepted": [], "refused": [], "failed": []}
        members: list[Any] = []
        for place, fate in enumerate(fates):
            name = f"{fate}{place}"
            members.append(
                {
                    "accept": lambda n=name: holding(n),
                    "ignore": lambda n=name: ReadOnlyMemory(holding(n), "ignore"),
                    "refuse": lambda n=name: ReadOnlyMemory(holding(n)),
                    "fail": lambda n=name: FailingMemory(OSError(), n),
                    "cancelled": lambda n=name: CancelledByOthers(name=n),
                    "nested": lambda n=name: CompositeMemory([holding("leaf")], name=n),
                }[fate]()
            )
            bucket = {"accept": "accepted", "nested": "accepted", "ignore": "refused"}.get(fate, "failed")
            expected[bucket].append(name)
        call = CompositeMemory(members).write([ITEM], ctx=Ctx())
        if not expected["failed"]:
            asyncio.run(call)
            return
        with pytest.raises(CompositeWriteError) as raised:
            asyncio.run(call)
        split = raised.value
        assert {"accepted": split.accepted, "refused": split.refused, "failed": list(split.failed)} == expected
