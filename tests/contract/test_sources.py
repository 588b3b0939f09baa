"""Every local source and every decorator, by the public contract suite."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from recalld import (
    CachedMemory,
    CompactedMemory,
    CompositeMemory,
    Ctx,
    DirectoryFiles,
    FileMemory,
    InMemoryFiles,
    JournalMemory,
    MemoryItem,
    MemorySource,
    Message,
    MutationJournal,
    ReadOnlyMemory,
    Scope,
    ScopedMemory,
    ScratchpadMemory,
    SequentialMemory,
    ToolMemory,
    VectorMemory,
    WrapperMemory,
    rrf_rerank,
)
from recalld.testing import BlockedMemory, InMemoryVectors, ListMemory, MemorySourceContract

CTX = Ctx(Scope("acme", "support"))
TEXTS = ["coffee at nine in the kitchen", "coffee after six", "coffee coffee is out"]
PAGES = [MemoryItem(text, "seed", metadata={"page": page}) for page, text in enumerate(TEXTS)]
BY_PAGE = ({"page": 1}, {"page": {"$gte": 1}}, {"$or": [{"page": 0}, {"page": {"$in": [2, 9]}}]})


async def vectors() -> VectorMemory:
    memory = VectorMemory(CountingVectors())
    await memory.write(PAGES, ctx=CTX)
    return memory


class CountingVectors(InMemoryVectors):
    def __init__(self) -> None:
        super().__init__()
        self.searches = 0

    async def search(self, query: str, *, k: int, scope: Scope, where: Any) -> Any:
        self.searches += 1
        return await super().search(query, k=k, scope=scope, where=where)


def searches(source: Any) -> int:
    while not isinstance(source, VectorMemory):
        source = source.inner if isinstance(source, WrapperMemory) else source.sources[0]
    assert isinstance(source.vector, CountingVectors)
    return source.vector.searches


class OverVectors(MemorySourceContract):
    """For a source around `vectors()`: all of the contract applies."""

    scoped = True
    keeps_metadata = True
    wheres = BY_PAGE

    def calls(self, source: MemorySource) -> int | None:
        return searches(source)


class TestVector(OverVectors):
    async def make_source(self) -> MemorySource:
        return await vectors()


class TestList(MemorySourceContract):
    wheres = BY_PAGE
    keeps_metadata = True

    async def make_source(self) -> MemorySource:
        return ListMemory(PAGES)

    def calls(self, source: MemorySource) -> int | None:
        assert isinstance(source, ListMemory)
        return len(source.queries)


class TestBlocked(MemorySourceContract):
    wheres = BY_PAGE
    keeps_metadata = True

    async def make_source(self) -> MemorySource:
        source = BlockedMemory(PAGES)
        source.release.set()
        return source


class CountingFiles(InMemoryFiles):
    views = 0

    async def view(self, path: str) -> str:
        self.views += 1
        return await super().view(path)


class TestFile(MemorySourceContract):
    wheres: ClassVar[Any] = ({"path": "/1.txt"}, {"path": {"$gt": "/0.txt"}})

    async def make_source(self) -> MemorySource:
        memory = FileMemory(CountingFiles())
        await memory.write(
            [MemoryItem(text, "seed", metadata={"path": f"/{n}.txt"}) for n, text in enumerate(TEXTS)], ctx=CTX
        )
        return memory

    def calls(self, source: MemorySource) -> int | None:
        assert isinstance(source, FileMemory)
        assert isinstance(source.files, CountingFiles)
        return source.files.views


class TestDirectory(MemorySourceContract):
    wheres: ClassVar[Any] = ({"path": "/notes/1.txt"},)

    async def make_source(self) -> MemorySource:
        self.folder = tempfile.TemporaryDirectory()
        memory = FileMemory(DirectoryFiles(Path(self.folder.name)))
        await memory.write(
            [MemoryItem(text, "seed", metadata={"path": f"/notes/{n}.txt"}) for n, text in enumerate(TEXTS)], ctx=CTX
        )
        return memory

    async def close_source(self, source: MemorySource) -> None:
        self.folder.cleanup()


class TestJournal(MemorySourceContract):
    wheres: ClassVar[Any] = ({"role": "user"}, {"role": {"$ne": "user"}})

    async def make_source(self) -> MemorySource:
        roles = ("user", "assistant", "user")
        entries = [SimpleNamespace(text=text, role=role) for text, role in zip(TEXTS, roles, strict=True)]
        return JournalMemory(MutationJournal(entries), lambda entry: entry.text)


class TestScratchpad(MemorySourceContract):
    wheres: ClassVar[Any] = ({"key": "1"},)

    async def make_source(self) -> MemorySource:
        return ScratchpadMemory(SimpleNamespace(scratchpad={str(n): text for n, text in enumerate(TEXTS)}))


class TestTool(MemorySourceContract):
    filters = False

    async def make_source(self) -> MemorySource:
        self.invoked = 0

        def search(query: str, limit: int, **where: Any) -> list[str]:
            self.invoked += 1
            return TEXTS[:limit]

        return ToolMemory(search)

    def calls(self, source: MemorySource) -> int | None:
        return self.invoked


class TestComposite(OverVectors):
    stamps = frozenset({"vector", "tool"})
    filters = False  # the tool hears of the filter and decides for itself
    scoped = False  # the tool has the same answer for all

    async def make_source(self) -> MemorySource:
        return CompositeMemory([await vectors(), ToolMemory(lambda **_: [*TEXTS, "more coffee"])])


class TestCompositeByRank(OverVectors):
    stamps = frozenset({"vector", "list"})
    scoped = False  # ListMemory keeps one list

    async def make_source(self) -> MemorySource:
        return CompositeMemory([await vectors(), ListMemory([PAGES[2], PAGES[0]])], reranker=rrf_rerank())


class TestCompositeOfComposites(OverVectors):
    """What is written lands in both stores and comes back as one fact, with the metadata of the first."""

    stamps = frozenset({"vector"})
    scoped = False  # files are shared by all scopes

    async def make_source(self) -> MemorySource:
        inner = CompositeMemory([await vectors()], name="inner")
        return CompositeMemory([inner, FileMemory(InMemoryFiles())])

    def calls(self, source: MemorySource) -> int | None:
        return None


class TestCompositeThatStoresNothing(MemorySourceContract):
    stamps = frozenset({"list"})

    async def make_source(self) -> MemorySource:
        return CompositeMemory([ReadOnlyMemory(ListMemory(PAGES), "ignore")])


class TestSequential(OverVectors):
    ranked = False
    stamps = frozenset({"vector", "list"})
    scoped = False  # ListMemory keeps one list

    async def make_source(self) -> MemorySource:
        return SequentialMemory([await vectors(), ListMemory([MemoryItem("more coffee", "seed")])])


class TestWrapper(OverVectors):
    async def make_source(self) -> MemorySource:
        return WrapperMemory(await vectors())


class TestScoped(OverVectors):
    async def make_source(self) -> MemorySource:
        return ScopedMemory(await vectors())


class TestCached(OverVectors):
    async def make_source(self) -> MemorySource:
        return CachedMemory(await vectors())


class Unchanged:
    async def compact(self, messages: list[Message]) -> list[Message]:
        return messages


class TestCompacted(OverVectors):
    async def make_source(self) -> MemorySource:
        return CompactedMemory(await vectors(), Unchanged())


class TestReadOnlyRefusing(OverVectors):
    scoped = keeps_metadata = False

    async def make_source(self) -> MemorySource:
        return ReadOnlyMemory(await vectors())


class TestReadOnlyIgnoring(OverVectors):
    scoped = keeps_metadata = False

    async def make_source(self) -> MemorySource:
        return ReadOnlyMemory(await vectors(), "ignore")


class TestAllOfThem(OverVectors):
    """Every decorator around a composite around every decorator."""

    stamps = frozenset({"vector"})

    async def make_source(self) -> MemorySource:
        inner = CompactedMemory(CachedMemory(ScopedMemory(await vectors())), Unchanged())
        return ScopedMemory(CachedMemory(CompactedMemory(CompositeMemory([inner]), Unchanged())))
