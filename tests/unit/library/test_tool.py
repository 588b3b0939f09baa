from __future__ import annotations

from typing import Any

import pytest

from recalld import Ctx, FunctionTool, MemoryItem, Tool, ToolMemory, default_parse
from recalld.errors import InvalidFilter, RecalldError
from recalld.source import accepts_writes


class Search:
    """A tool that remembers what it was asked."""

    name = "search"

    def __init__(self, result: Any = ()) -> None:
        self.result = result
        self.calls: list[dict[str, Any]] = []

    async def invoke(self, args: dict[str, Any]) -> Any:
        self.calls.append(args)
        return self.result


class TestFunctionTool:
    async def test_calls_a_function_with_the_arguments(self):
        assert await FunctionTool(lambda a, b: a + b).invoke({"a": 1, "b": 2}) == 3

    async def test_awaits_an_async_one(self):
        async def add(a: int, b: int) -> int:
            return a + b

        tool = FunctionTool(add)
        assert await tool.invoke({"a": 1, "b": 2}) == 3
        assert isinstance(tool, Tool)

    def test_is_named_after_its_function_or_as_told(self):
        def look_up() -> None: ...

        assert FunctionTool(look_up).name == "look_up"
        assert FunctionTool(look_up, name="other").name == "other"


class TestQuery:
    async def test_asks_with_the_query_and_the_limit(self, ctx: Ctx):
        tool = Search()
        await ToolMemory(tool).query("coffee", k=3, ctx=ctx)
        await ToolMemory(tool, query_arg="q").query("coffee", k=3, ctx=ctx)
        assert tool.calls == [{"query": "coffee", "limit": 3}, {"q": "coffee", "limit": 3}]

    async def test_where_is_passed_through_as_it_is_and_may_set_the_limit(self, ctx: Ctx):
        tool = Search(["a", "b", "c"])
        since = object()
        found = await ToolMemory(tool).query("q", k=2, ctx=ctx, where={"site": "docs", "since": since, "limit": 9})
        assert tool.calls == [{"query": "q", "limit": 9, "site": "docs", "since": since}]
        assert [item.content for item in found] == ["a", "b"]

    async def test_every_item_is_stamped_with_the_source_s_name(self, ctx: Ctx):
        def parse(result: Any, query: str) -> list[MemoryItem]:
            return [MemoryItem(f"{query}: {one}", "elsewhere", 0.5, {"n": 1}, id="7") for one in result]

        found = await ToolMemory(Search(["a"]), result_to_items=parse, name="web").query("q", k=2, ctx=ctx)
        assert found == [MemoryItem("q: a", "web", 0.5, {"n": 1}, id="7")]

    async def test_a_bare_callable_serves(self, ctx: Ctx):
        async def search(query: str, limit: int) -> list[str]:
            return [f"{query} {number}" for number in range(limit)]

        found = await ToolMemory(search).query("q", k=2, ctx=ctx)
        assert found == [MemoryItem("q 0", "tool"), MemoryItem("q 1", "tool")]

    def test_anything_else_is_refused(self):
        with pytest.raises(TypeError, match="callable") as raised:
            ToolMemory("search")
        assert isinstance(raised.value, RecalldError)

    @pytest.mark.parametrize("k", [0, -1])
    async def test_asks_nobody_for_nothing_or_with_an_unknown_operator(self, ctx: Ctx, k: int):
        tool = Search(["a"])
        assert await ToolMemory(tool).query("q", k=k, ctx=ctx) == []
        with pytest.raises(InvalidFilter):
            await ToolMemory(tool).query("q", k=1, ctx=ctx, where={"page": {"$near": 1}})
        assert tool.calls == []

    async def test_the_tool_s_error_is_the_query_s(self, ctx: Ctx):
        def broken(**_: Any) -> None:
            raise OSError("offline")

        with pytest.raises(OSError, match="offline"):
            await ToolMemory(broken).query("q", k=1, ctx=ctx)

    async def test_is_read_only(self, ctx: Ctx):
        tool = Search()
        await ToolMemory(tool).write([MemoryItem("x", "s")], ctx=ctx)
        assert tool.calls == []
        assert not accepts_writes(ToolMemory(tool))


def parsed(result: Any) -> list[tuple[Any, ...]]:
    return [(item.content, item.score, dict(item.metadata)) for item in default_parse(result, "ignored")]


class TestDefaultParse:
    @pytest.mark.parametrize(
        ("result", "expected"),
        [
            ("one", [("one", None, {})]),
            ("one\n\ntwo\nlines\n \n\nthree\n", [("one", None, {}), ("two\nlines", None, {}), ("three", None, {})]),
            ("", []),
            (" \n\n ", []),
            (["a", "b"], [("a", None, {}), ("b", None, {})]),
            (["a\n\nb"], [("a\n\nb", None, {})]),
            ([], []),
            ({"results": ["a"]}, [("a", None, {})]),
            ({"results": {"results": "a\n\nb"}, "total": 9}, [("a", None, {}), ("b", None, {})]),
            ([{"content": "a", "score": 1, "metadata": {"p": 3}}], [("a", 1.0, {"p": 3})]),
            ([{"text": "a", "url": "u"}, {"snippet": "b"}], [("a", None, {"url": "u"}), ("b", None, {})]),
            ([{"content": "a", "text": "t"}], [("a", None, {"text": "t"})]),
            ([{"content": None, "text": "t"}], [("t", None, {"content": None})]),
            ([{"content": "a", "p": 1, "metadata": {"p": 3}}], [("a", None, {"p": 3})]),
            ([{"content": "a", "score": "high"}], [("a", None, {"score": "high"})]),
            ([{"content": "a", "score": True}], [("a", None, {"score": True})]),
            ([{"content": "a", "metadata": "m"}], [("a", None, {"metadata": "m"})]),
            ([{"title": "t"}], [("{'title': 't'}", None, {"title": "t"})]),
            ({"content": "a", "score": 0}, [("a", 0.0, {})]),
            (["a", {"text": "b"}, 3], [("a", None, {}), ("b", None, {}), ("3", None, {})]),
            (("a", "b"), [("a", None, {}), ("b", None, {})]),
            (42, [("42", None, {})]),
            (None, [("None", None, {})]),
        ],
    )  # fmt: skip
    def test_reads(self, result: Any, expected: list[Any]):
        assert parsed(result) == expected

    def test_items_stay_items(self):
        item = MemoryItem("a", "s", 0.5, id="1")
        assert default_parse([item], "q") == default_parse(item, "q") == [item]
