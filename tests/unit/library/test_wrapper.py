"""What every decorator does alike: it is the wrapped source in all that it has no opinion about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from recalld import (
    UNSET,
    CachedMemory,
    CompactedMemory,
    CompositeMemory,
    CompositeWriteError,
    Ctx,
    Degradation,
    JournalMemory,
    MemoryItem,
    MemorySource,
    Message,
    MutationJournal,
    RankFusion,
    ReadOnlyMemory,
    RetrievalMode,
    ScopedMemory,
    SearchHit,
    SearchQuery,
    SearchResult,
    WrapperMemory,
    WriteBatch,
    WriteOutcome,
    as_store,
)
from recalld.errors import SourceUnavailable, UnknownSource
from recalld.source import accepts_writes
from recalld.testing import BlockedMemory, FailingMemory, ListMemory, ScriptedStore


class Unchanged:
    async def compact(self, messages: list[Message]) -> list[Message]:
        return messages


class Loud(WrapperMemory):
    """A decorator of a user's own."""

    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return await super().query(query.upper(), k=k, ctx=ctx, where=where)


DECORATORS: dict[str, Callable[[MemorySource], Any]] = {
    "wrapper": WrapperMemory,
    "own": Loud,
    "scoped": ScopedMemory,
    "cached": CachedMemory,
    "compacted": lambda inner: CompactedMemory(inner, Unchanged()),
    "read-only": ReadOnlyMemory,
}
WRITING = [name for name in DECORATORS if name != "read-only"]
NAMED: dict[str, Callable[..., Any]] = {
    "scoped": ScopedMemory,
    "cached": CachedMemory,
    "compacted": lambda inner, **more: CompactedMemory(inner, Unchanged(), **more),
    "read-only": ReadOnlyMemory,
}

ITEM = MemoryItem("text", "inner", 0.5, {"a": 1}, id="7")


@pytest.mark.parametrize("decorate", DECORATORS.values(), ids=DECORATORS)
class TestEveryDecorator:
    async def test_items_come_through_with_their_stamp(self, decorate: Any, ctx: Ctx):
        inner = ListMemory([ITEM], "inner")
        assert await decorate(inner).query("q", k=3, ctx=ctx, where={"a": 1}) == [ITEM]
        (call,) = inner.queries
        assert (call.query.lower(), call.k, call.ctx, call.where) == ("q", 3, ctx, {"a": 1})

    def test_its_name_is_the_wrapped_source_s_also_when_that_changes(self, decorate: Any):
        inner = ListMemory(name="before")
        wrapped = decorate(decorate(inner))
        assert wrapped.name == "before"
        inner.name = "after"
        assert wrapped.name == "after"

    async def test_the_error_of_the_source_is_its_own(self, decorate: Any, ctx: Ctx):
        with pytest.raises(OSError, match="disk"):
            await decorate(FailingMemory(OSError("disk"))).query("q", k=3, ctx=ctx)

    async def test_k_of_zero_gives_nothing(self, decorate: Any, ctx: Ctx):
        inner = ListMemory([ITEM])
        assert await decorate(inner).query("q", k=0, ctx=ctx) == []
        assert inner.queries == []

    async def test_it_is_a_source(self, decorate: Any, ctx: Ctx):
        wrapped = decorate(ListMemory([ITEM]))
        assert isinstance(wrapped, MemorySource)
        assert len(await CompositeMemory([wrapped]).query("q", k=3, ctx=ctx)) == 1

    def test_two_of_one_source_are_not_equal(self, decorate: Any):
        inner = ListMemory()
        assert decorate(inner) != decorate(inner)
        assert len({decorate(inner), decorate(inner)}) == 2


@pytest.mark.parametrize("name", WRITING)
class TestEveryWritingDecorator:
    async def test_writes_go_through(self, name: str, ctx: Ctx):
        inner = ListMemory()
        await DECORATORS[name](inner).write(iter([ITEM]), ctx=ctx)
        assert inner.writes == [[ITEM]]

    def test_accepts_writes_is_the_wrapped_source_s(self, name: str):
        closed = JournalMemory(MutationJournal[str](), str)
        assert accepts_writes(DECORATORS[name](ListMemory()))
        assert accepts_writes(DECORATORS[name](FailingMemory(OSError())))
        assert not accepts_writes(DECORATORS[name](closed))
        assert not CompositeMemory([DECORATORS[name](closed)]).accepts_writes


@pytest.mark.parametrize("name", NAMED)
class TestExplicitNames:
    async def test_win_in_name_only(self, name: str, ctx: Ctx):
        wrapped = NAMED[name](ListMemory([ITEM], "inner"), name="outer")
        assert wrapped.name == "outer"
        assert [item.source for item in await wrapped.query("q", k=1, ctx=ctx)] == ["inner"]
        assert "name='outer'" in repr(wrapped)


@pytest.mark.parametrize("outer", NAMED)
@pytest.mark.parametrize("inner", NAMED)
async def test_each_nests_in_each(outer: str, inner: str, ctx: Ctx):
    source = ListMemory([ITEM], "inner")
    nested = NAMED[outer](NAMED[inner](source))
    assert nested.name == "inner"
    assert await nested.query("q", k=3, ctx=ctx) == [ITEM]
    assert accepts_writes(nested) is ("read-only" not in (outer, inner))


HIT = SearchHit(ITEM, 1, 2.5, 3, 0.75)
STORE_CALLS: dict[str, Callable[[Any, Ctx], Awaitable[Any]]] = {
    "search": lambda store, ctx: store.search(SearchQuery("q", 3, {"a": 1}), ctx=ctx),
    "get": lambda store, ctx: store.get(["7"], ctx=ctx),
    "list_page": lambda store, ctx: store.list_page(ctx=ctx, where={"a": 1}, page_size=5, page_token="p"),  # noqa: S106
    "commit_token": lambda store, ctx: store.commit_token(ctx=ctx),
    "commit": lambda store, ctx: store.commit(WriteBatch([ITEM], "key", "lane"), ctx=ctx),
    "update": lambda store, ctx: store.update(
        "7", ctx=ctx, content="c", metadata={"m": 1}, metadata_changes={"x": UNSET}, attributes={}, if_revision=3
    ),
    "delete": lambda store, ctx: store.delete(["7"], ctx=ctx, where=None, dry_run=True),
}
CHANGES = ("commit", "update", "delete")


def scripted() -> ScriptedStore:
    degradation = Degradation("inner/semantic", "INTERNAL", "broken")
    return ScriptedStore("inner", [HIT], [ITEM], [degradation], RankFusion(2, 0.5, 0.5), "token")


@pytest.mark.parametrize("decorate", DECORATORS.values(), ids=DECORATORS)
class TestEveryDecoratorOfAStore:
    @pytest.mark.parametrize("method", STORE_CALLS)
    async def test_hands_on_what_was_asked_and_what_was_answered(self, decorate: Any, method: str, ctx: Ctx):
        if (decorate is ReadOnlyMemory and method in CHANGES) or (decorate is Loud and method == "search"):
            pytest.skip("it has an opinion about that")
        direct, inner = scripted(), scripted()
        expected = await STORE_CALLS[method](direct, ctx)
        found = await STORE_CALLS[method](decorate(inner), ctx)
        if method == "search":
            found, expected = (replace(each, hits=list(each.hits), degradations=()) for each in (found, expected))
        assert found == expected
        assert inner.calls == direct.calls

    async def test_lists_through_its_pages(self, decorate: Any, ctx: Ctx):
        inner = scripted()
        assert [item async for item in decorate(inner).list(ctx=ctx, where={"a": 1}, page_size=5)] == [ITEM]
        assert inner.calls_of("list_page") == [{"where": {"a": 1}, "page_size": 5, "page_token": ""}]

    async def test_closes_what_it_wraps(self, decorate: Any):
        inner = scripted()
        async with decorate(inner) as wrapped:
            assert wrapped.name == "inner"
            assert inner.calls == []
        assert [call.method for call in inner.calls] == ["close"]

    def test_keeps_records_if_that_does(self, decorate: Any):
        assert decorate(scripted()).keeps_records
        assert not decorate(ScriptedStore(keeps_records=False)).keeps_records
        assert not decorate(ListMemory()).keeps_records
        assert as_store(wrapped := decorate(ListMemory())) is wrapped

    async def test_around_a_plain_source_it_does_what_a_lifted_one_does(self, decorate: Any, ctx: Ctx):
        wrapped = decorate(ListMemory([ITEM], "inner"))
        assert (await wrapped.search(SearchQuery("q"), ctx=ctx)).items == [ITEM]
        degraded = await wrapped.search(SearchQuery("q", mode=RetrievalMode.LEXICAL), ctx=ctx)
        assert (list(degraded.hits), len(degraded.degradations)) == ([], 1)
        if wrapped.accepts_writes:
            assert (await wrapped.commit(WriteBatch([ITEM]), ctx=ctx)).accepted == ["inner"]
        with pytest.raises(UnknownSource, match="source 'inner' keeps no records"):
            await wrapped.get(["7"], ctx=ctx)

    async def test_a_lane_lasts_from_call_to_call(self, decorate: Any, ctx: Ctx):
        if decorate is ReadOnlyMemory:
            pytest.skip("it writes nothing")
        inner = BlockedMemory(name="inner")
        wrapped = decorate(inner)
        first, second = (
            asyncio.create_task(wrapped.commit(WriteBatch([MemoryItem(text, "me")], lane="lane"), ctx=ctx))
            for text in ("first", "second")
        )
        await inner.started.wait()
        inner.started.clear()
        for _ in range(10):  # more turns of the loop than a second one without a lane would need
            await asyncio.sleep(0)
        assert not inner.started.is_set()
        first.cancel()
        await inner.started.wait()
        inner.release.set()
        await second
        assert [batch[0].content for batch in inner.writes] == ["second"]


class TestShortFormsAndWholeOnes:
    """A subclass that overrides one of two is met by both."""

    async def test_a_query_of_one_s_own_answers_every_search(self, ctx: Ctx):
        inner = ListMemory([ITEM], "inner")
        for memory in (Loud(inner), CompositeMemory([Loud(inner)]), ScopedMemory(Loud(inner))):
            assert (await memory.search(SearchQuery("quiet"), ctx=ctx)).items == [ITEM]
        assert [call.query for call in inner.queries] == ["QUIET"] * 3

    async def test_and_keeps_to_a_commit_token(self, ctx: Ctx):
        unreached = SourceUnavailable("not there yet")
        inner = ScriptedStore("inner", [HIT], failures={"search": unreached})
        with pytest.raises(SourceUnavailable):
            await Loud(inner).search(SearchQuery("q", min_commit_token="later"), ctx=ctx)  # noqa: S106
        assert inner.calls[0].given["query"].min_commit_token == "later"  # noqa: S105

    async def test_a_guard_on_write_is_not_walked_around(self, ctx: Ctx):
        class Guard(WrapperMemory):
            async def write(self, items: Any, *, ctx: Any, idempotency_key: str = "") -> None:
                raise PermissionError("closed")

        inner = ScriptedStore()
        for memory in (Guard(inner), WrapperMemory(Guard(inner))):
            with pytest.raises(PermissionError):
                await memory.commit(WriteBatch([ITEM]), ctx=ctx)
        assert inner.calls == []

    async def test_a_search_of_one_s_own_answers_every_query(self, ctx: Ctx):
        class Louder(WrapperMemory):
            async def search(self, query: SearchQuery, *, ctx: Any) -> SearchResult:
                return await super().search(replace(query, text=query.text + "!"), ctx=ctx)

        inner = ListMemory([ITEM], "inner")
        assert await Louder(inner).query("q", k=1, ctx=ctx, where={"a": 1}) == [ITEM]
        assert (inner.queries[0].query, inner.queries[0].where) == ("q!", {"a": 1})

    async def test_a_commit_of_one_s_own_does_every_write(self, ctx: Ctx):
        class Keyed(WrapperMemory):
            async def commit(self, batch: WriteBatch, *, ctx: Any) -> WriteOutcome:
                return await super().commit(replace(batch, idempotency_key=batch.idempotency_key + "!"), ctx=ctx)

        inner = ScriptedStore("inner")
        await Keyed(inner).write(iter([ITEM]), ctx=ctx, idempotency_key="key")
        assert inner.calls_of("commit") == [{"batch": WriteBatch([ITEM], "key!")}]
        inner.outcome = WriteOutcome(failed={"inner": SourceUnavailable("gone")})
        with pytest.raises(CompositeWriteError):
            await Keyed(inner).write([ITEM], ctx=ctx)

    async def test_each_level_of_subclasses_has_its_say_once(self, ctx: Ctx):
        class LoudAndLonger(Loud):
            async def search(self, query: SearchQuery, *, ctx: Any) -> SearchResult:
                return await super().search(replace(query, text=query.text + "x"), ctx=ctx)

        inner = ListMemory([ITEM], "inner")
        memory = LoudAndLonger(inner)
        await memory.query("q", k=1, ctx=ctx)
        await memory.search(SearchQuery("q", 1), ctx=ctx)
        assert [call.query for call in inner.queries] == ["QX", "QX"]


def test_positional_order_is_that_of_the_documented_constructors():
    inner = ListMemory(name="inner")
    cached = CachedMemory(inner, 5.0, 7, "c", True)
    assert (cached.ttl_seconds, cached.max_entries, cached.name, cached.strict_scope) == (5.0, 7, "c", True)
    compactor = Unchanged()
    compacted = CompactedMemory(inner, compactor, 3, "m")
    assert (compacted.compactor, compacted.max_items, compacted.name) == (compactor, 3, "m")
    read_only = ReadOnlyMemory(inner, "ignore", "r")
    assert (read_only.on_write, read_only.name, read_only.refused_writes) == ("ignore", "r", 0)
    scoped = ScopedMemory(inner, bool, "s")
    assert (scoped.enforce, scoped.name) == (bool, "s")
