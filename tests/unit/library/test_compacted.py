from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recalld import (
    CompactedMemory,
    Ctx,
    Degradation,
    MemoryItem,
    Message,
    RankFusion,
    RecalldError,
    SearchHit,
    SearchQuery,
    WriteBatch,
)
from recalld.engine import LocalMemory
from recalld.testing import ListMemory, ScriptedStore


class Compactor:
    """Gives what `shorten` makes of the content; remembers what it was given."""

    def __init__(self, shorten: Any = lambda content: [content[:3]]) -> None:
        self.shorten = shorten
        self.seen: list[list[Message]] = []

    async def compact(self, messages: list[Message]) -> list[Message]:
        self.seen.append(messages)
        return [Message("assistant", content) for content in self.shorten(messages[0].content)]


def holding(*contents: str) -> ListMemory:
    return ListMemory([MemoryItem(c, "inner", 0.5, {"a": 1}, id=c) for c in contents], "inner")


async def test_only_the_content_of_an_item_changes(ctx: Ctx):
    compactor = Compactor()
    found = await CompactedMemory(holding("long text"), compactor).query("q", k=3, ctx=ctx)
    assert found == [MemoryItem("lon", "inner", 0.5, {"a": 1}, id="long text")]
    assert compactor.seen == [[Message("user", "long text")]]


async def test_several_messages_are_joined_by_a_blank_line(ctx: Ctx):
    (found,) = await CompactedMemory(holding("a b"), Compactor(str.split)).query("q", k=3, ctx=ctx)
    assert found.content == "a\n\nb"


async def test_none_drops_the_item(ctx: Ctx):
    compactor = Compactor(lambda content: [] if content == "drop" else [content])
    found = await CompactedMemory(holding("a", "drop", "b"), compactor).query("q", k=3, ctx=ctx)
    assert [item.content for item in found] == ["a", "b"]


@pytest.mark.parametrize(("cap", "expected"), [(None, "abcd"), (9, "abcd"), (2, "ab"), (0, "")])
async def test_max_items_caps_the_list(ctx: Ctx, cap: int | None, expected: str):
    found = await CompactedMemory(holding(*"abcd"), Compactor(), cap).query("q", k=9, ctx=ctx)
    assert "".join(item.content for item in found) == expected


async def test_dropped_items_are_made_up_for_and_no_more_is_compacted_than_needed(ctx: Ctx):
    compactor = Compactor(lambda content: [] if content in "ab" else [content])
    found = await CompactedMemory(holding(*"abcdef"), compactor, 2).query("q", k=9, ctx=ctx)
    assert [item.content for item in found] == ["c", "d"]
    assert len(compactor.seen) == 4


async def test_items_are_compacted_at_the_same_time(ctx: Ctx):
    class Together(Compactor):
        both = asyncio.Barrier(2)

        async def compact(self, messages: list[Message]) -> list[Message]:
            await self.both.wait()
            return messages

    async with asyncio.timeout(5):
        assert len(await CompactedMemory(holding("a", "b"), Together()).query("q", k=2, ctx=ctx)) == 2


async def test_the_compactor_s_error_is_the_query_s_and_leaves_nothing_running(ctx: Ctx):
    def shorten(content: str) -> list[str]:
        raise OSError("model gone")

    with pytest.raises(OSError, match="model gone"):
        await CompactedMemory(holding("a", "b"), Compactor(shorten)).query("q", k=2, ctx=ctx)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_negative_cap_is_refused():
    with pytest.raises(ValueError, match="max_items") as raised:
        CompactedMemory(holding(), Compactor(), -1)
    assert isinstance(raised.value, RecalldError)


class TestAsAStore:
    async def test_a_hit_keeps_its_explanation_and_the_answer_the_rest(self, ctx: Ctx):
        items = [MemoryItem(text, "inner", id=text) for text in ("long", "drop", "text")]
        hits = [SearchHit(item, lexical_rank=rank) for rank, item in enumerate(items, 1)]
        degradation = Degradation("inner/semantic", "INTERNAL", "broken")
        inner = ScriptedStore("inner", hits, [], [degradation], RankFusion(2, 1, 0), "token")
        compactor = Compactor(lambda content: [] if content == "drop" else [content[:2]])
        result = await CompactedMemory(inner, compactor).search(SearchQuery("q"), ctx=ctx)
        assert [(hit.item.content, hit.item.id, hit.lexical_rank) for hit in result.hits] == [
            ("lo", "long", 1),
            ("te", "text", 3),
        ]
        assert (result.degradations, result.fusion) == ([degradation], RankFusion(2, 1, 0))
        assert result.commit_token == "token"  # noqa: S105
        capped = await CompactedMemory(inner, compactor, 1).search(SearchQuery("q"), ctx=ctx)
        assert [hit.item.id for hit in capped.hits] == ["long"]

    async def test_records_come_whole(self, ctx: Ctx):
        memory = CompactedMemory(LocalMemory(), Compactor())
        await memory.commit(WriteBatch([MemoryItem("long text", "me", id="1")]), ctx=ctx)
        assert [item.content for item in await memory.get(["1"], ctx=ctx)] == ["long text"]
        assert [item.content async for item in memory.list(ctx=ctx)] == ["long text"]
        assert [hit.item.content for hit in (await memory.search(SearchQuery("long"), ctx=ctx)).hits] == ["lon"]
