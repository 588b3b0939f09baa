"""What every decorator does alike: it is the wrapped source in all that it has no opinion about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recalld import (
    CachedMemory,
    CompactedMemory,
    CompositeMemory,
    Ctx,
    JournalMemory,
    MemoryItem,
    MemorySource,
    Message,
    MutationJournal,
    ReadOnlyMemory,
    ScopedMemory,
    WrapperMemory,
)
from recalld.source import accepts_writes
from recalld.testing import FailingMemory, ListMemory


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
