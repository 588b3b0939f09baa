"""A plain source as a store: what it can do it does, what it cannot it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest

from recalld import (
    CompositeMemory,
    Ctx,
    Degradation,
    DirectoryFiles,
    FileMemory,
    InMemoryFiles,
    JournalMemory,
    MemoryItem,
    MutationJournal,
    RetrievalMode,
    ScratchpadMemory,
    SearchHit,
    SearchQuery,
    VectorMemory,
    WriteBatch,
    as_store,
)
from recalld.engine import LocalMemory
from recalld.errors import DeadlineExceeded, InvalidField, UnknownSource
from recalld.filters import All, AnyOf, Compare, Exists, Field, In, Not, Op
from recalld.lift import keeps_records
from recalld.testing import BlockedMemory, FailingMemory, InMemoryVectors, ListMemory, ScriptedStore
from recalld.where import parse_where

ITEM = MemoryItem("tea", "plain", 0.5, {"page": 3})


class Entered(BlockedMemory):
    """Notes whose write came, before it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[str] = []
        self._came = asyncio.Condition()

    async def write(self, items: Iterable[MemoryItem], *, ctx: Any) -> None:
        batch = list(items)
        async with self._came:
            self.entered.append(batch[0].content)
            self._came.notify_all()
        await super().write(batch, ctx=ctx)

    async def until(self, count: int) -> None:
        async with self._came:
            await self._came.wait_for(lambda: len(self.entered) >= count)


class TestLifting:
    def test_a_store_comes_back_as_it_is(self):
        for store in (LocalMemory(), ScriptedStore(), CompositeMemory([])):
            assert as_store(store) is store
        lifted = as_store(ListMemory())
        assert as_store(lifted) is lifted

    def test_what_may_change_is_read_at_each_call(self):
        source = ListMemory(name="before")
        lifted = as_store(source)
        source.name, source.accepts_writes = "after", False
        assert (lifted.name, lifted.accepts_writes, lifted.keeps_records) == ("after", False, False)
        assert as_store(FailingMemory(OSError())).accepts_writes

    def test_who_keeps_records(self):
        assert keeps_records(LocalMemory())
        assert not keeps_records(ListMemory())

    async def test_query_and_write_are_the_source_s_own(self, ctx: Ctx):
        source = ListMemory([ITEM], "plain")
        lifted = as_store(source)
        where = {"page": 3}
        assert await lifted.query("q", k=2, ctx=ctx, where=where) == [ITEM]
        (call,) = source.queries
        assert (call.query, call.k) == ("q", 2)
        assert call.ctx is ctx
        assert call.where is where
        await lifted.write(iter([ITEM]), ctx=ctx, idempotency_key="a plain source knows none")
        assert source.writes == [[ITEM]]
        with pytest.raises(OSError, match="disk"):
            await as_store(FailingMemory(OSError("disk"))).query("q", k=1, ctx=ctx)


class TestSearch:
    async def test_a_hybrid_one_is_its_query_without_ranks(self, ctx: Ctx):
        source = ListMemory([ITEM, ITEM], "plain")
        result = await as_store(source).search(SearchQuery("q", 1, {"page": 3}), ctx=ctx)
        assert (result.hits, result.degradations) == ([SearchHit(ITEM)], [])
        assert (result.commit_token, result.fusion) == ("", None)
        assert result.hits[0].item is ITEM
        assert source.queries[0].ctx is ctx

    @pytest.mark.parametrize(
        ("filter", "where"),
        [
            (Compare(Field("metadata", ("a", "b.c")), Op.GE, 3), {"a.b\\.c": {"$gte": 3}}),
            (
                All((Exists(Field("metadata", ("a",))), Not(In(Field("user_id"), ("x", "y"))))),
                {"$and": [{"a": {"$exists": True}}, {"$not": {"attributes.user_id": {"$in": ["x", "y"]}}}]},
            ),
            (
                AnyOf((Compare(Field("metadata", ("a",)), Op.EQ, {"x": 1}),)),
                {"$or": [{"a": {"$eq": {"x": 1}}}]},
            ),
        ],
    )
    async def test_a_typed_filter_becomes_a_where(self, ctx: Ctx, filter: Any, where: dict[str, Any]):
        source = ListMemory([ITEM])
        await as_store(source).search(SearchQuery("q", 1, filter), ctx=ctx)
        assert parse_where(where) == filter
        assert parse_where(source.queries[0].where) in (filter, All((filter,)))

    async def test_a_typed_filter_never_speaks_a_source_s_own_words(self, ctx: Ctx):
        files = InMemoryFiles()
        await files.create("/notes/a.md", "tea")
        own = await as_store(FileMemory(files)).search(SearchQuery("tea", where={"path_prefix": "/notes"}), ctx=ctx)
        assert len(own.hits) == 1
        typed = Compare(Field("metadata", ("path_prefix",)), Op.EQ, "/notes")  # of metadata that no file has
        assert (await as_store(FileMemory(files)).search(SearchQuery("tea", where=typed), ctx=ctx)).hits == []

    @pytest.mark.parametrize("mode", [RetrievalMode.LEXICAL, RetrievalMode.SEMANTIC])
    async def test_a_mode_that_it_does_not_declare_is_a_degradation(self, ctx: Ctx, observed: Any, mode: RetrievalMode):
        source = ListMemory([ITEM], "plain")
        result = await as_store(source).search(SearchQuery("q", 3, mode=mode), ctx=ctx)
        assert result.hits == ()
        (degradation,) = result.degradations
        assert degradation.component == f"plain/{mode.name.lower()}"
        assert degradation.reason == "SOURCE_UNAVAILABLE"
        told = {"component": degradation.component, "reason": degradation.reason, "message": degradation.message}
        assert observed == [("memory.source_degraded", {"source": "plain", **told})]
        assert source.queries == []

    async def test_a_mode_that_it_declares_is_its_query_with_ranks(self, ctx: Ctx):
        files = InMemoryFiles()
        await files.create("/a.md", "tea")
        await files.create("/b.md", "tea tea")
        by_words = (
            FileMemory(files),
            JournalMemory(MutationJournal(["tea", "more tea"]), str),
            ScratchpadMemory(type("Agent", (), {"scratchpad": {"1": "tea", "2": "more tea"}})()),
        )
        for source in by_words:
            for mode in (RetrievalMode.LEXICAL, RetrievalMode.HYBRID):
                result = await as_store(source).search(SearchQuery("tea", 3, mode=mode), ctx=ctx)
                assert [(hit.lexical_rank, hit.lexical_score) for hit in result.hits] == [
                    (1, result.hits[0].item.score),
                    (2, result.hits[1].item.score),
                ]
                assert {(hit.semantic_rank, hit.semantic_score) for hit in result.hits} == {(0, None)}
            degraded = await as_store(source).search(SearchQuery("tea", 3, mode=RetrievalMode.SEMANTIC), ctx=ctx)
            assert [each.component for each in degraded.degradations] == [f"{source.name}/semantic"]

    async def test_vectors_are_found_by_meaning(self, ctx: Ctx):
        source = VectorMemory(InMemoryVectors())
        await source.write([MemoryItem("tea", "me")], ctx=ctx)
        result = await as_store(source).search(SearchQuery("tea", 3, mode=RetrievalMode.SEMANTIC), ctx=ctx)
        assert [(hit.semantic_rank, hit.semantic_score, hit.lexical_rank) for hit in result.hits] == [(1, 1.0, 0)]

    @pytest.mark.parametrize("mode", RetrievalMode)
    async def test_an_empty_text_is_no_matter_of_modes_and_ranks_nothing(self, ctx: Ctx, mode: RetrievalMode):
        journal = JournalMemory(MutationJournal(["older", "newer"]), str)
        result = await as_store(journal).search(SearchQuery("", 3, mode=mode), ctx=ctx)
        assert [hit.item.content for hit in result.hits] == ["newer", "older"]
        assert {hit.lexical_rank for hit in result.hits} == {0}
        assert result.degradations == []

    async def test_nobody_has_a_commit_token_of_it(self, ctx: Ctx):
        source = ListMemory([ITEM])
        with pytest.raises(InvalidField, match="min_commit_token"):
            await as_store(source).search(SearchQuery("q", 1, min_commit_token="x"), ctx=ctx)  # noqa: S106
        assert source.queries == []
        assert await as_store(source).commit_token(ctx=ctx) == ""

    @pytest.mark.parametrize("k", [0, -2])
    async def test_k_of_zero_gives_nothing(self, ctx: Ctx, k: int):
        assert (await as_store(ListMemory([ITEM])).search(SearchQuery("q", k), ctx=ctx)).hits == []

    async def test_one_that_gives_too_much_is_cut(self, ctx: Ctx):
        class Generous(ListMemory):
            async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
                return list(self.items)

        assert len((await as_store(Generous([ITEM] * 3)).search(SearchQuery("q", 2), ctx=ctx)).hits) == 2

    async def test_what_is_observed_within_it_degrades_the_answer(self, ctx: Ctx, observed: Any):
        class OwnDecorator:
            """A plain source around a store, in the way of a user who knows only sources."""

            name = "own"
            inner = CompositeMemory([FailingMemory(OSError("a secret"), "down"), ListMemory([ITEM], "up")])

            async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
                return await self.inner.query(query, k=k, ctx=ctx, where=where)

            async def write(self, items: Iterable[MemoryItem], *, ctx: Any) -> None: ...

        result = await as_store(OwnDecorator()).search(SearchQuery("q", 3), ctx=ctx)
        assert result.degradations == [Degradation("down", "INTERNAL", "source 'down' failed")]
        assert [event for event, _ in observed] == ["memory.source_failed"]  # once, where it happened
        unobserved = await as_store(OwnDecorator()).search(SearchQuery("q", 3), ctx=Ctx(ctx.scope))
        assert unobserved.degradations == result.degradations

    async def test_files_that_are_left_out_degrade_the_answer(self, ctx: Ctx, observed: Any, tmp_path: Any):
        (tmp_path / "small.md").write_text("tea")
        for number in range(5):
            (tmp_path / f"large{number}.md").write_text("tea " * 100)
        source = FileMemory(DirectoryFiles(tmp_path, max_bytes=10), name="notes")
        result = await as_store(source).search(SearchQuery("tea", 3), ctx=ctx)
        assert [hit.item.content for hit in result.hits] == ["tea"]
        (degradation,) = result.degradations
        assert (degradation.component, degradation.reason) == ("notes", "INVALID_FIELD")
        assert "files left out: 5" in degradation.message
        assert str(tmp_path) not in degradation.message
        assert observed[-1][0] == "memory.source_degraded"
        assert observed[-1][1]["message"] == degradation.message

    async def test_the_deadline_of_the_context_bounds_it(self, ctx: Ctx):
        source = BlockedMemory()
        late = Ctx(ctx.scope, deadline=time.monotonic() + 0.01)
        with pytest.raises(DeadlineExceeded) as raised:
            await as_store(source).search(SearchQuery("q", 3), ctx=late)
        assert raised.value.details == {"stage": "blocked"}
        assert source.cancelled == 1

    async def test_a_time_out_of_its_own_stays_its_own(self, ctx: Ctx):
        own = TimeoutError("of its own")
        with pytest.raises(TimeoutError) as raised:
            await as_store(FailingMemory(own)).search(SearchQuery("q", 3), ctx=Ctx(deadline=time.monotonic() + 60))
        assert raised.value is own


class TestCommit:
    async def test_it_is_its_write(self, ctx: Ctx):
        source = ListMemory(name="plain")
        outcome = await as_store(source).commit(WriteBatch((ITEM, ITEM), "key"), ctx=ctx)
        assert (outcome.accepted, outcome.refused, outcome.failed) == (["plain"], (), {})
        assert (outcome.ids, outcome.commit_token, outcome.replayed) == ((), "", False)
        assert source.writes == [[ITEM, ITEM]]

    async def test_one_that_returns_having_stored_nothing_has_refused(self, ctx: Ctx):
        outcome = await as_store(ListMemory(name="closed", accepts_writes=False)).commit(WriteBatch([ITEM]), ctx=ctx)
        assert (outcome.accepted, outcome.refused) == ((), ["closed"])

    async def test_its_error_is_the_commit_s(self, ctx: Ctx):
        with pytest.raises(OSError, match="disk"):
            await as_store(FailingMemory(OSError("disk"))).commit(WriteBatch([ITEM]), ctx=ctx)

    async def test_a_lane_keeps_its_order_and_holds_up_no_other(self, ctx: Ctx):
        source = Entered()
        lifted = as_store(source)

        def begin(text: str, lane: str | None) -> asyncio.Task[Any]:
            return asyncio.create_task(lifted.commit(WriteBatch([MemoryItem(text, "me")], lane=lane), ctx=ctx))

        tasks = [begin("first", "lane"), begin("second", "lane"), begin("third", "lane")]
        tasks += [begin("other", "another lane"), begin("none", None)]
        await source.until(3)
        assert source.entered == ["first", "other", "none"]
        tasks[0].cancel()  # who gives up lets the next one go
        await source.until(4)
        assert source.entered[3:] == ["second"]
        source.release.set()
        await asyncio.gather(*tasks[1:])
        assert source.entered[3:] == ["second", "third"]

    async def test_the_deadline_does_not_cut_it(self, ctx: Ctx):
        source = BlockedMemory()
        late = Ctx(ctx.scope, deadline=time.monotonic() - 1)
        writing = asyncio.create_task(as_store(source).commit(WriteBatch([ITEM]), ctx=late))
        await source.started.wait()
        source.release.set()
        assert (await writing).accepted == ["blocked"]


class TestRecords:
    async def test_there_are_none(self, ctx: Ctx):
        lifted = as_store(ListMemory([ITEM], "plain"))
        calls = (
            lifted.get(["x"], ctx=ctx),
            lifted.list_page(ctx=ctx),
            lifted.update("x", ctx=ctx, content="y"),
            lifted.delete(["x"], ctx=ctx),
            anext(aiter(lifted.list(ctx=ctx))),
        )
        for call in calls:
            with pytest.raises(UnknownSource, match="source 'plain' keeps no records") as raised:
                await call
            assert raised.value.details == {"source": "plain"}


class TestClosing:
    async def test_it_closes_what_can_be_closed(self):
        class Closing(ListMemory):
            closed = 0

            def close(self) -> None:
                self.closed += 1

        class ClosingLater(Closing):
            async def close(self) -> None:  # type: ignore[override]
                self.closed += 1

        for source in (Closing(), ClosingLater()):
            async with as_store(source):  # type: ignore[attr-defined]
                assert source.closed == 0
            assert source.closed == 1
        await as_store(ListMemory()).close()
