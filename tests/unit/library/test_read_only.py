from __future__ import annotations

from typing import Any

import pytest

from recalld import (
    Ctx,
    MemoryItem,
    MemoryWriteRefused,
    ReadOnlyMemory,
    RecalldError,
    Scope,
    ScopedMemory,
    SearchQuery,
    WriteBatch,
    WriteOutcome,
)
from recalld.engine import LocalMemory
from recalld.testing import FailingMemory, ListMemory, ScriptedStore

ITEM = MemoryItem("text", "caller")


async def test_refuse_raises_and_names_the_wrapped_source(ctx: Ctx, observed: Any):
    guarded = ReadOnlyMemory(ListMemory(name="registry"), name="outer")
    with pytest.raises(MemoryWriteRefused) as raised:
        await guarded.write(iter([ITEM, ITEM]), ctx=ctx)
    assert (raised.value.source, raised.value.n) == ("registry", 2)
    assert isinstance(raised.value, RecalldError)
    assert not isinstance(raised.value, (PermissionError, ValueError))
    assert observed == [("memory.write_refused", {"source": "registry", "count": 2})]


async def test_ignore_returns_and_says_so(ctx: Ctx, observed: Any):
    guarded = ReadOnlyMemory(ListMemory(name="registry"), "ignore")
    await guarded.write([ITEM], ctx=ctx)
    assert observed == [("memory.write_refused", {"source": "registry", "count": 1})]
    assert guarded.refused_writes == 1


@pytest.mark.parametrize("policy", ["refuse", "ignore"])
class TestUnderEitherPolicy:
    async def test_the_wrapped_source_is_never_written_to(self, ctx: Ctx, policy: Any):
        inner = FailingMemory(AssertionError("was written to"))
        for items in ([ITEM], []):
            try:
                await ReadOnlyMemory(inner, policy).write(items, ctx=ctx)
            except MemoryWriteRefused:
                assert policy == "refuse"
            else:
                assert policy == "ignore"

    async def test_every_turned_away_call_counts_empty_ones_included(self, ctx: Ctx, policy: Any, observed: Any):
        guarded = ReadOnlyMemory(ListMemory(), policy)
        for items in ([ITEM, ITEM], [], iter([ITEM])):
            try:
                await guarded.write(items, ctx=ctx)
            except MemoryWriteRefused:
                assert policy == "refuse"
        assert guarded.refused_writes == 3
        assert [fields["count"] for _, fields in observed] == [2, 0, 1]

    async def test_it_never_accepts_writes(self, ctx: Ctx, policy: Any):
        assert ReadOnlyMemory(ListMemory(), policy).accepts_writes is False

    async def test_a_query_is_untouched(self, ctx: Ctx, policy: Any):
        inner = ListMemory([MemoryItem("x", "inner")], "inner")
        (found,) = await ReadOnlyMemory(inner, policy).query("q", k=1, ctx=ctx)
        assert found is inner.items[0]

    async def test_wrapping_twice_is_harmless(self, ctx: Ctx, policy: Any):
        inner = ReadOnlyMemory(ListMemory())
        outer = ReadOnlyMemory(inner, policy)
        try:
            await outer.write([ITEM], ctx=ctx)
        except MemoryWriteRefused:
            assert policy == "refuse"
        assert (outer.refused_writes, inner.refused_writes) == (1, 0)


async def test_the_outer_guard_speaks_first():
    nobody = Ctx(Scope())
    with pytest.raises(MemoryWriteRefused):
        await ReadOnlyMemory(ScopedMemory(ListMemory())).write([ITEM], ctx=nobody)
    with pytest.raises(PermissionError):
        await ScopedMemory(ReadOnlyMemory(ListMemory())).write([ITEM], ctx=nobody)


@pytest.mark.parametrize("word", ["Refuse", "", None, "drop"])
def test_another_policy_word_is_refused(word: Any):
    with pytest.raises(ValueError, match="on_write") as raised:
        ReadOnlyMemory(ListMemory(), word)
    assert isinstance(raised.value, RecalldError)


class TestAsAStore:
    async def test_a_refused_commit_raises(self, ctx: Ctx, observed: Any):
        inner = ScriptedStore("registry")
        with pytest.raises(MemoryWriteRefused) as raised:
            await ReadOnlyMemory(inner, name="outer").commit(WriteBatch([ITEM, ITEM]), ctx=ctx)
        assert (raised.value.source, raised.value.n) == ("registry", 2)
        assert observed == [("memory.write_refused", {"source": "registry", "count": 2})]
        assert inner.calls == []

    async def test_an_ignored_commit_says_that_it_was(self, ctx: Ctx, observed: Any):
        inner = ScriptedStore("registry")
        guarded = ReadOnlyMemory(inner, "ignore", "outer")
        assert await guarded.commit(WriteBatch([ITEM]), ctx=ctx) == WriteOutcome(refused=["outer"])
        assert observed == [("memory.write_refused", {"source": "registry", "count": 1})]
        assert (guarded.refused_writes, inner.calls) == (1, [])

    @pytest.mark.parametrize("policy", ["refuse", "ignore"])
    async def test_a_record_is_never_said_to_have_changed(self, ctx: Ctx, policy: Any, observed: Any):
        inner = ScriptedStore("registry", items=[ITEM])
        guarded = ReadOnlyMemory(inner, policy)
        for change, count in (
            (guarded.update("1", ctx=ctx, content="x"), 1),
            (guarded.delete(["1", "2"], ctx=ctx), 2),
            (guarded.delete(ctx=ctx, where={"x": 1}), 0),
            (guarded.delete(["1"], ctx=ctx, dry_run=True), 1),
        ):
            with pytest.raises(MemoryWriteRefused) as raised:
                await change
            assert (raised.value.source, raised.value.n) == ("registry", count)
        assert [fields["count"] for _, fields in observed] == [1, 2, 0, 1]
        assert guarded.refused_writes == 4
        assert inner.calls == []

    async def test_records_are_read_through_it(self, ctx: Ctx):
        memory = LocalMemory()
        await memory.commit(WriteBatch([MemoryItem("tea", "me", id="1")]), ctx=ctx)
        guarded = ReadOnlyMemory(memory)
        assert [item.content for item in await guarded.get(["1"], ctx=ctx)] == ["tea"]
        assert [item.id async for item in guarded.list(ctx=ctx)] == ["1"]
        assert (await guarded.search(SearchQuery("tea"), ctx=ctx)).hits[0].lexical_rank == 1
