from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from recalld import Ctx, JournalMemory, MemoryItem, MutationJournal, ScratchpadMemory
from recalld.errors import InvalidFilter
from recalld.source import accepts_writes


class Role(Enum):
    USER = "user"


@dataclass(frozen=True)
class Turn:
    text: str
    role: Any = "user"


def journal(*entries: Any) -> JournalMemory[Any]:
    return JournalMemory(MutationJournal(entries), lambda entry: getattr(entry, "text", str(entry)))


def contents(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


class TestMutationJournal:
    def test_keeps_entries_oldest_first_and_gives_a_snapshot(self):
        record = MutationJournal[int]()
        record.record(1)
        before = record.entries()
        record.record(2)
        assert (list(before), list(record.entries())) == ([1], [1, 2])


class TestJournal:
    async def test_the_newest_come_first_without_a_score(self, ctx: Ctx):
        found = await journal("first", "second", "third").query("", k=2, ctx=ctx)
        assert found == [MemoryItem("third", "journal"), MemoryItem("second", "journal")]

    async def test_sees_what_is_recorded_later(self, ctx: Ctx):
        record = MutationJournal[str]()
        memory = JournalMemory(record, str, name="log")
        record.record("new")
        assert await memory.query("", k=1, ctx=ctx) == [MemoryItem("new", "log")]

    async def test_the_query_is_a_substring_whatever_the_case(self, ctx: Ctx):
        memory = journal("Die STRASSE ist lang", "kurz", "straße.*")
        assert contents(await memory.query("straße", k=9, ctx=ctx)) == ["straße.*", "Die STRASSE ist lang"]
        assert contents(await memory.query("strasse ist", k=9, ctx=ctx)) == ["Die STRASSE ist lang"]
        assert contents(await memory.query(".*", k=9, ctx=ctx)) == ["straße.*"]

    async def test_role_keeps_entries_of_that_role_and_skips_those_without(self, ctx: Ctx):
        memory = journal(Turn("a", "user"), Turn("b", "assistant"), "no role", Turn("c", "user"))
        assert contents(await memory.query("", k=9, ctx=ctx, where={"role": "user"})) == ["c", "a"]
        assert contents(await memory.query("", k=1, ctx=ctx, where={"role": "assistant"})) == ["b"]

    async def test_a_role_may_be_an_object(self, ctx: Ctx):
        memory = journal(Turn("a", Role.USER), Turn("b", "user"))
        assert contents(await memory.query("", k=9, ctx=ctx, where={"role": Role.USER})) == ["a"]

    async def test_other_conditions_are_filters(self, ctx: Ctx):
        memory = journal(Turn("a", "user"), Turn("b", "tool"), "no role")
        assert contents(await memory.query("", k=9, ctx=ctx, where={"role": {"$in": ["tool", "x"]}})) == ["b"]
        assert contents(await memory.query("", k=9, ctx=ctx, where={"role": {"$exists": False}})) == ["no role"]
        assert await memory.query("", k=9, ctx=ctx, where={"page": 3}) == []

    async def test_an_entry_s_id_and_role_are_the_item_s(self, ctx: Ctx):
        (found,) = await journal(SimpleNamespace(id=7, text="x", role="user")).query("", k=1, ctx=ctx)
        assert (found.id, found.metadata) == ("7", {"role": "user"})

    async def test_renders_no_more_than_it_needs(self, ctx: Ctx):
        rendered: list[str] = []

        def render(entry: str) -> str:
            rendered.append(entry)
            return entry

        await JournalMemory(MutationJournal(["a", "b", "c"]), render).query("", k=1, ctx=ctx)
        assert rendered == ["c"]

    @pytest.mark.parametrize("k", [0, -1])
    async def test_asks_nobody_for_nothing_or_with_a_wrong_filter(self, ctx: Ctx, k: int):
        class Untouchable:
            def entries(self) -> Sequence[str]:
                raise AssertionError

        memory = JournalMemory(Untouchable(), str)
        assert await memory.query("", k=k, ctx=ctx) == []
        with pytest.raises(InvalidFilter):
            await memory.query("", k=1, ctx=ctx, where={"role": "user", "x": {"$near": 1}})

    async def test_a_write_changes_nothing(self, ctx: Ctx):
        memory = journal("a")
        await memory.write([MemoryItem("b", "s")], ctx=ctx)
        assert contents(await memory.query("", k=9, ctx=ctx)) == ["a"]
        assert not accepts_writes(memory)


class TestScratchpad:
    def memory(self, **pad: Any) -> ScratchpadMemory:
        return ScratchpadMemory(SimpleNamespace(scratchpad=pad))

    async def test_finds_by_key_and_by_the_text_of_the_value(self, ctx: Ctx):
        memory = self.memory(Plan="buy milk", budget=42, notes=["Milk"], other=None)
        assert await memory.query("milk", k=9, ctx=ctx) == [
            MemoryItem("buy milk", "scratchpad", None, {"key": "Plan"}),
            MemoryItem("['Milk']", "scratchpad", None, {"key": "notes"}),
        ]
        assert contents(await memory.query("plan", k=9, ctx=ctx)) == ["buy milk"]
        assert contents(await memory.query("42", k=9, ctx=ctx)) == ["42"]

    async def test_an_empty_query_finds_all_in_order(self, ctx: Ctx):
        assert contents(await self.memory(b=1, a=2).query("", k=9, ctx=ctx)) == ["1", "2"]
        assert contents(await self.memory(b=1, a=2).query("", k=1, ctx=ctx)) == ["1"]

    async def test_reads_the_scratchpad_of_the_moment(self, ctx: Ctx):
        context = SimpleNamespace(scratchpad={"a": 1})
        memory = ScratchpadMemory(context)
        context.scratchpad = {"b": 2}
        assert contents(await memory.query("", k=9, ctx=ctx)) == ["2"]

    async def test_filters_by_key(self, ctx: Ctx):
        assert contents(await self.memory(a=1, b=2).query("", k=9, ctx=ctx, where={"key": "b"})) == ["2"]
        with pytest.raises(InvalidFilter):
            await self.memory(a=1).query("", k=9, ctx=ctx, where={"key": {"$near": 1}})

    async def test_is_read_only(self, ctx: Ctx):
        memory = self.memory(a=1)
        await memory.write([MemoryItem("b", "s")], ctx=ctx)
        assert contents(await memory.query("", k=9, ctx=ctx)) == ["1"]
        assert not accepts_writes(memory)
        assert await memory.query("", k=0, ctx=ctx) == []
