"""Every composite and decorator around stores, by the public contract suite of stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recalld import (
    CachedMemory,
    CompactedMemory,
    CompositeMemory,
    Ctx,
    MemoryItem,
    MemorySource,
    Message,
    Scope,
    ScopedMemory,
    SequentialMemory,
    WrapperMemory,
)
from recalld.engine import InMemoryRecords, LocalMemory
from recalld.fusion import rank_across_sources
from recalld.testing import MemoryStoreContract

CTX = Ctx(Scope("acme", "support"))
TEXTS = ["coffee at nine in the kitchen", "coffee after six", "coffee coffee is out"]
PAGES = [MemoryItem(text, "seed", metadata={"page": page}) for page, text in enumerate(TEXTS)]


async def local(name: str = "memory") -> LocalMemory:
    memory = LocalMemory(InMemoryRecords(name))
    await memory.write(PAGES, ctx=CTX)
    return memory


class Unchanged:
    async def compact(self, messages: list[Message]) -> list[Message]:
        return messages


class AroundLocalMemory(MemoryStoreContract):
    wheres = ({"page": 1}, {"page": {"$gte": 1}}, {"$or": [{"page": 0}, {"page": {"$in": [2, 9]}}]})
    stamps = frozenset({"memory"})
    writers = frozenset({"memory"})
    decorate: Callable[[Any], Any] = WrapperMemory

    async def make_source(self) -> MemorySource:
        return type(self).decorate(await local())


class TestWrapper(AroundLocalMemory):
    pass


class TestScoped(AroundLocalMemory):
    decorate = ScopedMemory


class TestCached(AroundLocalMemory):
    decorate = CachedMemory


class TestCompacted(AroundLocalMemory):
    decorate = staticmethod(lambda inner: CompactedMemory(inner, Unchanged()))


class TestComposite(AroundLocalMemory):
    decorate = staticmethod(lambda inner: CompositeMemory([inner]))


class TestCompositeAsTheServerUsesIt(AroundLocalMemory):
    decorate = staticmethod(
        lambda inner: CompositeMemory([inner], reranker=rank_across_sources, dedupe="origin").select(["memory"])
    )


class TestSequential(AroundLocalMemory):
    decorate = staticmethod(lambda inner: SequentialMemory([inner]))


class TestAllOfThem(AroundLocalMemory):
    """Every decorator around a composite around every decorator."""

    decorate = staticmethod(
        lambda inner: ScopedMemory(
            CachedMemory(CompositeMemory([SequentialMemory([ScopedMemory(CompactedMemory(inner, Unchanged()))])]))
        )
    )
    writers = frozenset({"sequential"})


class TestCompositeOfTwoStores(AroundLocalMemory):
    """What is written lands in both under one id, and comes back as one fact."""

    stamps = writers = frozenset({"one", "two"})

    async def make_source(self) -> MemorySource:
        composite = CompositeMemory([LocalMemory(InMemoryRecords("one")), LocalMemory(InMemoryRecords("two"))])
        await composite.write(PAGES, ctx=CTX)
        return composite

    # A delete counts what it took in each of the two.
    test_delete_takes_what_it_is_told = test_expired_memories_are_hidden = None  # type: ignore[assignment]
