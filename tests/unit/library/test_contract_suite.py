"""The contract suite itself: each of its tests fails on a source that breaks just that."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from recalld import Ctx, MemoryItem, MemorySource, Scope
from recalld.source import accepts_writes
from recalld.testing import ListMemory, MemorySourceContract

ITEMS = [MemoryItem(f"coffee {page}", "list", 1.0 - page / 10, {"page": page}) for page in range(3)]


class Good(ListMemory):
    """Keeps tenants apart, best first; each breaking source below changes one thing."""

    def __init__(self, items: list[MemoryItem] = ITEMS) -> None:
        super().__init__(list(items))
        self.owners = [Scope("acme", "support")] * len(items)

    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        kept = self.items
        self.items = [item for item, owner in zip(kept, self.owners, strict=True) if owner == scope(ctx)]
        try:
            return await super().query(query, k=k, ctx=ctx, where=where)
        finally:
            self.items = kept

    async def write(self, items: Any, *, ctx: Any) -> None:
        await super().write(items, ctx=ctx)
        self.owners += [scope(ctx)] * (len(self.items) - len(self.owners))


def scope(ctx: Any) -> Scope:
    return Scope(ctx.scope.org_id, ctx.scope.domain_id)


class Suite(MemorySourceContract):
    scoped = keeps_metadata = True
    wheres = ({"page": {"$gte": 1}},)

    def __init__(self, source: type[Good]) -> None:
        self.source = source

    async def make_source(self) -> MemorySource:
        return self.source()

    def calls(self, source: MemorySource) -> int | None:
        assert isinstance(source, ListMemory)
        return len(source.queries)


class Nameless(Good):
    def __init__(self) -> None:
        super().__init__()
        self.name = ""


class Sparse(Good):
    def __init__(self) -> None:
        super().__init__(ITEMS[:2])


class Unstamped(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return [dataclasses.replace(i, source="x") for i in await super().query(query, k=k, ctx=ctx, where=where)]


class Generous(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return await super().query(query, k=k + 1 if k > 0 else k, ctx=ctx, where=where)


class Eager(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return (await super().query(query, k=max(k, 1), ctx=ctx, where=where))[: max(k, 0)]


class Bountiful(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return await super().query(query, k=k or 1, ctx=ctx, where=where)


class Unsorted(Good):
    def __init__(self) -> None:
        super().__init__(ITEMS[::-1])


class Fickle(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        found = await super().query(query, k=k, ctx=ctx, where=where)
        return found[::-1] if len(self.queries) % 2 else found


class Lending(Good):
    def __init__(self) -> None:
        super().__init__()
        self.lent: dict[str, list[MemoryItem]] = {}

    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        found = await super().query(query, k=k, ctx=ctx, where=where)
        return self.lent.setdefault(repr((query, k, where)), found)


class Demanding(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        assert ctx.run_id is None or ctx.user_id
        return await super().query(query, k=k, ctx=ctx, where=where)


class Lax(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        try:
            return await super().query(query, k=k, ctx=ctx, where=where)
        except ValueError:
            return []


class Unfiltered(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        await super().query(query, k=k, ctx=ctx, where=where)
        return await super().query(query, k=k, ctx=ctx)


class Losing(Good):
    async def write(self, items: Any, *, ctx: Any) -> None: ...


class Rereading(Good):
    async def write(self, items: Any, *, ctx: Any) -> None:
        await super().write(list(items)[:2], ctx=ctx)


class Noting(Good):
    async def write(self, items: Any, *, ctx: Any) -> None:
        await super().write([*items, MemoryItem("coffee: there was a write", "list")], ctx=ctx)


class Lying(Good):
    def __init__(self) -> None:
        super().__init__()
        self.accepts_writes = False

    async def write(self, items: Any, *, ctx: Any) -> None:
        self.accepts_writes = True
        await super().write(items, ctx=ctx)


class Flattening(Good):
    async def write(self, items: Any, *, ctx: Any) -> None:
        flat = [dataclasses.replace(i, metadata={k: str(v) for k, v in i.metadata.items()}) for i in items]
        await super().write(flat, ctx=ctx)


class Forgetful(Good):
    async def write(self, items: Any, *, ctx: Any) -> None:
        await super().write([dataclasses.replace(item, metadata={}) for item in items], ctx=ctx)


class Leaking(Good):
    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return await super().query(query, k=k, ctx=Ctx(Scope("acme", "support")), where=where)


BREAKING = [
    (Nameless, "test_has_a_name"),
    (Sparse, "test_finds_memories"),
    (Unstamped, "test_stamps_its_name"),
    (Generous, "test_keeps_to_k"),
    (Bountiful, "test_asks_nobody_for_nothing"),
    (Eager, "test_spares_its_backend"),
    (Unsorted, "test_puts_the_best_first"),
    (Fickle, "test_answers_alike"),
    (Lending, "test_gives_lists_away"),
    (Demanding, "test_takes_any_context_with_a_scope"),
    (Lax, "test_refuses_unknown_operators"),
    (Unfiltered, "test_filters"),
    (Losing, "test_stores_what_it_accepts"),
    (Rereading, "test_takes_any_iterable"),
    (Noting, "test_an_empty_write_changes_nothing"),
    (Lying, "test_says_when_it_stores_nothing"),
    (Flattening, "test_keeps_metadata"),
    (Forgetful, "test_keeps_metadata"),
    (Leaking, "test_keeps_scopes_apart"),
]
TESTS = [name for name in vars(MemorySourceContract) if name.startswith("test_")]


@pytest.mark.parametrize("name", TESTS)
def test_a_good_source_passes(name: str):
    assert accepts_writes(Good())
    getattr(Suite(Good), name)()


@pytest.mark.parametrize(("source", "name"), BREAKING)
def test_a_source_that_breaks_it_fails(source: type[Good], name: str):
    with pytest.raises((AssertionError, AttributeError)):
        getattr(Suite(source), name)()


def test_every_test_of_the_suite_is_broken_by_one_of_these():
    assert {name for _, name in BREAKING} == set(TESTS)


def test_the_suite_says_what_to_override():
    with pytest.raises(NotImplementedError, match="make_source"):
        MemorySourceContract().test_has_a_name()


def test_a_source_with_a_close_is_closed():
    class Closing(Good):
        closed = False

        async def close(self) -> None:
            type(self).closed = True

    Suite(Closing).test_has_a_name()
    assert Closing.closed
