from __future__ import annotations

from typing import Any

import pytest

from recalld import Ctx, MemoryItem, as_grounder, as_grounding_source, render_grounding
from recalld.errors import InvalidFilter
from recalld.testing import ListMemory

ITEMS = [MemoryItem("one", "notes", 0.9, {"page": 1}), MemoryItem("two", "notes", 0.5, {"page": 2})]


@pytest.fixture
def memory() -> ListMemory:
    return ListMemory(ITEMS, "notes")


def test_rendering_attributes_each_item():
    assert render_grounding([*ITEMS, MemoryItem("three", "web")]) == "[notes] one\n[notes] two\n[web] three"
    assert render_grounding([]) == ""


async def test_a_grounder_asks_for_the_task_and_renders(memory: ListMemory, ctx: Ctx):
    assert await as_grounder(memory)(ctx, "the task") == "[notes] one\n[notes] two"
    (call,) = memory.queries
    assert (call.query, call.k, call.ctx, call.where) == ("the task", 5, ctx, None)


async def test_k_and_where_are_fixed_at_wiring(memory: ListMemory, ctx: Ctx):
    where: dict[str, Any] = {"page": {"$in": [2]}}
    ground = as_grounder(memory, k=1, where=where)
    where["page"]["$in"].append(1)
    assert await ground(ctx, "task") == "[notes] two"
    assert memory.queries[0].k == 1


async def test_a_format_takes_the_place_of_the_rendering(memory: ListMemory, ctx: Ctx):
    ground = as_grounder(memory, format=lambda items: " / ".join(item.content for item in items))
    assert await ground(ctx, "task") == "one / two"


async def test_a_grounding_source_gives_the_items_themselves(memory: ListMemory, ctx: Ctx):
    found = await as_grounding_source(memory, k=1, where={"page": 2})(ctx, "task")
    assert list(found) == [ITEMS[1]]
    assert memory.queries[0].query == "task"


@pytest.mark.parametrize("adapt", [as_grounder, as_grounding_source])
def test_an_unknown_operator_is_refused_at_wiring(memory: ListMemory, adapt: Any):
    with pytest.raises(InvalidFilter):
        adapt(memory, where={"page": {"$near": 1}})
