"""A query, a `k` or a `where` of a wrong type is a RecalldError that says what was given, in every source."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from recalld import (
    CachedMemory,
    CompactedMemory,
    CompositeMemory,
    Ctx,
    FileMemory,
    FunctionTool,
    InMemoryFiles,
    JournalMemory,
    MutationJournal,
    ReadOnlyMemory,
    RecalldError,
    RemoteMemory,
    ScopedMemory,
    ScratchpadMemory,
    SequentialMemory,
    ToolMemory,
    VectorMemory,
    WrapperMemory,
)
from recalld.engine import LocalMemory
from recalld.filters import Compare, Field, Op
from recalld.store import SearchQuery, SearchResult
from recalld.testing import InMemoryVectors, ListMemory


class OwnSearch(WrapperMemory):
    """A decorator that has an opinion about `search` alone."""

    async def search(self, query: SearchQuery, *, ctx: Any) -> SearchResult:
        return await super().search(query, ctx=ctx)


SOURCES: dict[str, Callable[[], Any]] = {
    "cached": lambda: CachedMemory(ListMemory()),
    "compacted": lambda: CompactedMemory(ListMemory(), compactor=SimpleNamespace(compact=None)),  # type: ignore[arg-type]
    "composite": lambda: CompositeMemory([ListMemory()]),
    "empty composite": lambda: CompositeMemory([]),
    "file": lambda: FileMemory(InMemoryFiles()),
    "journal": lambda: JournalMemory(MutationJournal[str](), render=str),
    "list": ListMemory,
    "local": LocalMemory,
    "read-only": lambda: ReadOnlyMemory(ListMemory()),
    "remote": lambda: RemoteMemory("127.0.0.1:1"),
    "scoped": lambda: ScopedMemory(ListMemory()),
    "scratchpad": lambda: ScratchpadMemory(SimpleNamespace(scratchpad={})),
    "sequential": lambda: SequentialMemory([ListMemory()]),
    "tool": lambda: ToolMemory(FunctionTool(lambda query, limit: [])),
    "search of its own": lambda: OwnSearch(LocalMemory()),
    "vector": lambda: VectorMemory(InMemoryVectors()),
}
WRONG = [
    ({"query": 3}, "query: must be a str, not int"),
    ({"query": None}, "query: must be a str, not NoneType"),
    ({"k": "3"}, "k: must be an int, not str"),
    ({"k": 3.0}, "k: must be an int, not float"),
    ({"k": True}, "k: must be an int, not bool"),
    ({"k": None}, "k: must be an int, not NoneType"),
    ({"where": "turn=1"}, "where: must be a dict or a filter, not str"),
    ({"where": ""}, "where: must be a dict or a filter, not str"),
    ({"where": ["turn"]}, "where: must be a dict or a filter, not list"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG, ids=lambda value: repr(value)[:30])
@pytest.mark.parametrize("name", SOURCES)
async def test_a_wrong_type_is_told(name: str, wrong: dict[str, Any], told: str, ctx: Ctx):
    source = SOURCES[name]()
    arguments: dict[str, Any] = {"query": "burr", "k": 3, "where": None} | wrong
    with pytest.raises(TypeError, match=told) as raised:
        await source.query(arguments.pop("query"), ctx=ctx, **arguments)
    assert isinstance(raised.value, RecalldError)
    assert isinstance(raised.value, ValueError)


async def test_a_cached_answer_is_not_given_to_a_wrong_call(ctx: Ctx):
    cached = CachedMemory(ListMemory())
    await cached.query("burr", k=1, ctx=ctx)
    await cached.search(SearchQuery("burr", 1), ctx=ctx)
    wrong: Any = ""
    three: Any = "3"
    for call in (
        lambda: cached.query("burr", k=True, ctx=ctx),
        lambda: cached.query("burr", k=1, ctx=ctx, where=wrong),
        lambda: cached.search(SearchQuery("burr", True), ctx=ctx),
        lambda: cached.search(SearchQuery("burr", three), ctx=ctx),
        lambda: cached.search(SearchQuery("burr", 1, wrong), ctx=ctx),
    ):
        with pytest.raises(TypeError, match="must be"):
            await call()


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in ("remote", "compacted", "tool")])
async def test_a_typed_filter_is_taken_where_a_dict_is(name: str, ctx: Ctx):
    where: Any = Compare(Field("metadata", ("limit",)), Op.EQ, 1)
    assert await SOURCES[name]().query("burr", k=3, ctx=ctx, where=where) == []
