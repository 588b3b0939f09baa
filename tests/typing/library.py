# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What type checkers know of the library. Never run: pyright reads it, and an ignore that is not needed is an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, assert_type

from recalld import (
    UNSET,
    CachedMemory,
    CompactedMemory,
    CompositeMemory,
    Ctx,
    CtxLike,
    DedupeMode,
    DirectoryFiles,
    FileMemory,
    FunctionTool,
    InMemoryFiles,
    JournalMemory,
    MemoryItem,
    MemorySource,
    MemoryStore,
    Message,
    MutationJournal,
    OnWritePolicy,
    ReadOnlyMemory,
    RemoteMemory,
    Reranker,
    Scope,
    ScopedMemory,
    ScratchpadMemory,
    SearchQuery,
    SearchResult,
    SequentialMemory,
    Tool,
    ToolMemory,
    VectorMemory,
    VectorPort,
    WrapperMemory,
    WriteBatch,
    WriteOutcome,
    as_grounder,
    as_grounding_source,
    as_store,
    rrf_rerank,
    score_sort_rerank,
)
from recalld.engine import LocalMemory
from recalld.fusion import rank_across_sources
from recalld.testing import BlockedMemory, FailingMemory, InMemoryVectors, ListMemory


class OwnSource:
    """A source that asks for a Ctx."""

    name = "own"

    async def query(self, query: str, *, k: int, ctx: Ctx, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        return []

    async def write(self, items: Iterable[MemoryItem], *, ctx: Ctx) -> None: ...


class FrameworkContext:
    """Another framework's context; structural, with more to it."""

    scope: Scope = Scope()
    budget: int = 3


class FrameworkSource:
    """A source that asks for its own framework's context, under a name that is a property."""

    @property
    def name(self) -> str:
        return "framework"

    async def query(
        self, query: str, *, k: int, ctx: FrameworkContext, where: dict[str, Any] | None = None
    ) -> list[MemoryItem]:
        return []

    async def write(self, items: Iterable[MemoryItem], *, ctx: FrameworkContext) -> None: ...


class Forgetful:
    """Not a source: it has no write."""

    name = "forgetful"

    async def query(self, query: str, *, k: int, ctx: Ctx, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        return []


class Compactor:
    async def compact(self, messages: list[Message]) -> list[Message]:
        return messages


@dataclass
class Agent:
    scratchpad: dict[str, Any]


async def rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
    return items


# Everything that is a source

own = OwnSource()
sources: list[MemorySource] = [
    own,
    FrameworkSource(),
    CompositeMemory([own]),
    SequentialMemory([own]),
    VectorMemory(InMemoryVectors()),
    FileMemory(InMemoryFiles()),
    FileMemory(DirectoryFiles("notes")),
    JournalMemory(MutationJournal[int](), render=str),
    ScratchpadMemory(Agent({})),
    ToolMemory(print),
    RemoteMemory("localhost:50051"),
    WrapperMemory(own),
    ScopedMemory(own),
    CachedMemory(own),
    CompactedMemory(own, Compactor()),
    ReadOnlyMemory(own),
    ReadOnlyMemory(CachedMemory(ScopedMemory(CompositeMemory([own])))),
    ListMemory(),
    FailingMemory(OSError()),
    BlockedMemory(),
]

# Composites and decorators are stores, whatever they stand around; a plain source becomes one

stores: list[MemoryStore] = [
    as_store(own),
    CompositeMemory([own], records="own"),
    CompositeMemory([own]).select(["own"]),
    SequentialMemory([own]),
    WrapperMemory(own),
    ScopedMemory(own),
    CachedMemory(own),
    CompactedMemory(own, Compactor()),
    ReadOnlyMemory(own),
    LocalMemory(),
]
not_yet: MemoryStore = own  # pyright: ignore[reportAssignmentType]
CompositeMemory([Forgetful()])  # pyright: ignore[reportArgumentType]

# Words are closed

mode: DedupeMode = "content"
policy: OnWritePolicy = "ignore"
CompositeMemory([], dedupe=None)
CompositeMemory([], dedupe="origin", reranker=rank_across_sources)
CompositeMemory([], dedupe="ids")  # pyright: ignore[reportArgumentType]
ReadOnlyMemory(own, "drop")  # pyright: ignore[reportArgumentType]

# Items

item = MemoryItem("content", "source", 0.5, {"page": 3}, id="7")
assert_type(item.metadata, dict[str, Any])
assert_type(item.score, float | None)
MemoryItem("content", "source", 0.5, {}, "7")  # pyright: ignore[reportCallIssue]
item.content = "other"  # pyright: ignore[reportAttributeAccessIssue]

# Rerankers

rerankers: list[Reranker] = [score_sort_rerank, rrf_rerank(), rerank]
CompositeMemory([own], rerank)
CompositeMemory([own], reranker=len)  # pyright: ignore[reportArgumentType]

# Names of decorators are text

assert_type(CachedMemory(own, name="cache").name, str)
CachedMemory(own, name=3)  # pyright: ignore[reportArgumentType]

# A journal knows its entries

JournalMemory(MutationJournal([1, 2]), render=lambda number: f"{number + 1}")
JournalMemory(MutationJournal([1, 2]), render=str.upper)  # pyright: ignore[reportArgumentType]

# Ports and tools

port: VectorPort = InMemoryVectors()
tool: Tool = FunctionTool(print)

# Grounding

assert_type(as_grounder(own), Callable[[CtxLike, str], Awaitable[str]])
assert_type(as_grounding_source(own), Callable[[CtxLike, str], Awaitable[Sequence[MemoryItem]]])


async def calls() -> None:
    memory = CompositeMemory([own])
    assert_type(await memory.query("q", k=3, ctx=Ctx()), list[MemoryItem])
    assert_type(await memory.query("q", k=3, ctx=FrameworkContext(), where={"page": 3}), list[MemoryItem])
    await memory.write((each for each in [item]), ctx=Ctx())
    await memory.write([item], ctx=Ctx(), idempotency_key="again")
    assert_type(await memory.search(SearchQuery("q", where={"page": 3}), ctx=Ctx()), SearchResult)
    assert_type(await memory.commit(WriteBatch([item], lane="stream"), ctx=Ctx()), WriteOutcome)
    assert_type([each async for each in memory.list(ctx=Ctx())], list[MemoryItem])
    assert_type(await memory.update("7", ctx=Ctx(), metadata_changes={"old": UNSET}), MemoryItem)
    await memory.query("q", 3, ctx=Ctx())  # pyright: ignore[reportCallIssue]
    await memory.query("q", k=3, ctx="acme")  # pyright: ignore[reportArgumentType]
    await memory.write(["text"], ctx=Ctx())  # pyright: ignore[reportArgumentType]
