from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from recalld import Chunk, CompositeMemory, Ctx, JournalMemory, MemoryItem, MutationJournal, Scope, VectorMemory
from recalld.errors import InvalidFilter
from recalld.testing import InMemoryVectors

ACME = Scope("acme", "support")


class Recording(InMemoryVectors):
    def __init__(self) -> None:
        super().__init__()
        self.searches: list[dict[str, Any]] = []
        self.upserts = 0

    async def search(self, query: str, *, k: int, scope: Scope, where: dict[str, Any] | None) -> Any:
        self.searches.append({"query": query, "k": k, "scope": scope, "where": where})
        return await super().search(query, k=k, scope=scope, where=where)

    async def upsert(self, chunks: Any, *, scope: Scope) -> None:
        self.upserts += 1
        await super().upsert(chunks, scope=scope)


@pytest.fixture
def port() -> Recording:
    return Recording()


async def test_items_carry_id_text_score_metadata_and_the_source_s_name(ctx: Ctx, port: Recording):
    await port.upsert([Chunk("7", "black coffee", {"page": 3})], scope=ACME)
    (found,) = await VectorMemory(port, name="notes").query("coffee", k=3, ctx=ctx)
    assert found == MemoryItem("black coffee", "notes", 0.5, {"page": 3}, id="7")


async def test_asks_in_the_scope_of_the_context(port: Recording):
    bare = SimpleNamespace(scope=SimpleNamespace(org_id="acme", domain_id=""))
    await VectorMemory(port).query("q", k=3, ctx=bare)
    assert port.searches == [{"query": "q", "k": 3, "scope": Scope("acme", None), "where": None}]


class TestWhere:
    async def test_the_call_s_where_is_laid_over_the_default(self, ctx: Ctx, port: Recording):
        memory = VectorMemory(port, where={"kind": "note", "page": 1})
        await memory.query("q", k=3, ctx=ctx)
        await memory.query("q", k=3, ctx=ctx, where={"page": {"$gte": 2}, "tag": "x"})
        assert [search["where"] for search in port.searches] == [
            {"kind": "note", "page": 1},
            {"kind": "note", "page": {"$gte": 2}, "tag": "x"},
        ]
        assert memory.where == {"kind": "note", "page": 1}

    async def test_a_wrong_filter_never_reaches_the_store(self, ctx: Ctx, port: Recording):
        with pytest.raises(InvalidFilter):
            await VectorMemory(port).query("q", k=3, ctx=ctx, where={"page": {"$near": 1}})
        with pytest.raises(InvalidFilter):
            VectorMemory(port, where={"$near": 1})
        assert port.searches == []

    async def test_the_default_is_not_written(self, ctx: Ctx, port: Recording):
        await VectorMemory(port, where={"kind": "note"}).write([MemoryItem("x", "caller")], ctx=ctx)
        assert port.chunks(ACME)[0].metadata == {}


@pytest.mark.parametrize("k", [0, -1])
async def test_asks_nobody_for_nothing(ctx: Ctx, port: Recording, k: int):
    assert await VectorMemory(port).query("q", k=k, ctx=ctx) == []
    assert port.searches == []


async def test_a_store_that_returns_too_much_is_cut(ctx: Ctx):
    class Generous(InMemoryVectors):
        async def search(self, query: str, *, k: int, scope: Scope, where: Any) -> list[tuple[float, Chunk]]:
            return [(1.0, Chunk(str(number), "x", {})) for number in range(9)]

    assert len(await VectorMemory(Generous()).query("q", k=2, ctx=ctx)) == 2


class TestWrite:
    async def write(self, port: Recording, ctx: Ctx, *items: MemoryItem) -> list[Chunk]:
        await VectorMemory(port).write(iter(items), ctx=ctx)
        return port.chunks(ACME)

    async def test_text_and_metadata_are_kept(self, ctx: Ctx, port: Recording):
        (chunk,) = await self.write(port, ctx, MemoryItem("x", "caller", 0.3, {"tag": ["a"]}))
        assert (chunk.text, chunk.metadata) == ("x", {"tag": ["a"]})

    async def test_what_was_recalled_here_updates_its_record(self, ctx: Ctx, port: Recording):
        await port.upsert([Chunk("7", "old coffee", {})], scope=ACME)
        memory = VectorMemory(port)
        (found,) = await memory.query("coffee", k=1, ctx=ctx)
        await memory.write([MemoryItem("new coffee", found.source, id=found.id)], ctx=ctx)
        assert [(chunk.id, chunk.text) for chunk in port.chunks(ACME)] == [("7", "new coffee")]

    async def test_an_id_from_elsewhere_is_not_trusted(self, ctx: Ctx, port: Recording):
        await port.upsert([Chunk("3", "unrelated", {})], scope=ACME)
        chunks = await self.write(port, ctx, MemoryItem("from the journal", "journal", id="3"))
        assert [chunk.text for chunk in chunks] == ["unrelated", "from the journal"]
        assert uuid.UUID(chunks[1].id).version == 4

    async def test_nor_when_a_composite_broadcasts_what_a_journal_recalled(self, ctx: Ctx, port: Recording):
        await port.upsert([Chunk("3", "unrelated", {})], scope=ACME)
        journal = JournalMemory(MutationJournal([SimpleNamespace(id=3, text="entry")]), lambda entry: entry.text)
        recalled = await journal.query("", k=1, ctx=ctx)
        assert recalled[0].id == "3"
        await CompositeMemory([VectorMemory(port), journal]).write(recalled, ctx=ctx)
        assert [chunk.text for chunk in port.chunks(ACME)] == ["unrelated", "entry"]

    async def test_the_id_in_metadata_tells_which_record_to_write(self, ctx: Ctx, port: Recording):
        chunks = await self.write(port, ctx, MemoryItem("x", "journal", metadata={"id": "3", "a": 1}, id="9"))
        assert chunks == [Chunk("3", "x", {"a": 1})]

    async def test_the_item_s_own_id_outranks_it_and_it_is_popped_either_way(self, ctx: Ctx, port: Recording):
        chunks = await self.write(port, ctx, MemoryItem("x", "vector", metadata={"id": "3", "a": 1}, id="9"))
        assert chunks == [Chunk("9", "x", {"a": 1})]

    async def test_ids_in_metadata_are_text(self, ctx: Ctx, port: Recording):
        assert [chunk.id for chunk in await self.write(port, ctx, MemoryItem("x", "s", metadata={"id": 0}))] == ["0"]

    @pytest.mark.parametrize("unset", [None, ""])
    async def test_an_unset_id_in_metadata_makes_a_new_record(self, ctx: Ctx, port: Recording, unset: Any):
        (chunk,) = await self.write(port, ctx, MemoryItem("x", "s", metadata={"id": unset}))
        assert uuid.UUID(chunk.id)
        assert chunk.metadata == {}

    async def test_new_records_have_keys_of_their_own(self, ctx: Ctx, port: Recording):
        assert len(await self.write(port, ctx, *(MemoryItem("same", "s") for _ in range(3)))) == 3

    async def test_one_write_is_one_call_and_an_empty_one_is_none(self, ctx: Ctx, port: Recording):
        await self.write(port, ctx)
        assert port.upserts == 0
        await self.write(port, ctx, MemoryItem("x", "s"), MemoryItem("y", "s"))
        assert port.upserts == 1


async def test_id_and_content_are_filtered_as_the_chunks_own(ctx: Ctx):
    memory = VectorMemory(InMemoryVectors())
    await memory.write(
        [MemoryItem(f"burr {n}", "me", metadata={"id": f"k{n}", "content": "x"}) for n in range(3)], ctx=ctx
    )
    for where in ({"id": "k1"}, {"content": "burr 1"}, {"id": {"$in": ["k1", "k9"]}, "metadata.content": "x"}):
        assert [item.id for item in await memory.query("burr", k=9, ctx=ctx, where=where)] == ["k1"]
