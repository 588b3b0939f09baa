"""The embedded engine and remote servers keep the contract that every local source keeps."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from running import Running, Start, servers

from recalld import (
    CompositeMemory,
    CompositeWriteError,
    Ctx,
    MemoryAttributes,
    MemoryItem,
    MemorySource,
    RemoteMemory,
    Scope,
    VectorMemory,
    Visibility,
)
from recalld.scope import CtxLike
from recalld.testing import InMemoryVectors, MemorySourceContract
from recalld_server import embedded

PAGES = [
    MemoryItem(text, "seed", metadata={"page": page})
    for page, text in enumerate(["coffee at nine in the kitchen", "coffee after six", "coffee coffee is out"])
]
TYPES = {**MemorySourceContract.metadata, "when": datetime(2026, 5, 17, 12, 30, 0, 123456, tzinfo=UTC)}


class OverTheEngine(MemorySourceContract):
    """In tenants that no other test uses, since the tests share servers."""

    scoped = True
    keeps_metadata = True
    metadata = TYPES
    wheres = ({"page": 1}, {"page": {"$gte": 1}}, {"$or": [{"page": 0}, {"page": {"$in": [2, 9]}}]})
    tenant: str

    def ctx(self, scope: Scope | None = None) -> CtxLike:
        asked = scope or Scope("acme", "support")
        return Ctx(scope=Scope(f"{self.tenant}-{asked.org_id}" if asked.org_id else None, asked.domain_id))

    async def seeded(self, source: MemorySource) -> MemorySource:
        self.tenant = uuid.uuid4().hex
        await source.write(PAGES, ctx=self.ctx())
        return source


class TestEmbedded(OverTheEngine):
    @pytest.fixture(autouse=True)
    def _data(self, tmp_path: Path) -> None:
        self.data = tmp_path / "data"

    async def make_source(self) -> MemorySource:
        return await self.seeded(embedded(self.data))


class TestEmbeddedVectors(OverTheEngine):
    """The engine's VectorPort, behind VectorMemory."""

    @pytest.fixture(autouse=True)
    def _data(self, tmp_path: Path) -> None:
        self.engine = embedded(tmp_path / "data")

    async def make_source(self) -> MemorySource:
        return await self.seeded(VectorMemory(self.engine.vectors))

    async def close_source(self, source: MemorySource) -> None:
        await self.engine.close()


class TestRemote(OverTheEngine):
    @pytest.fixture(autouse=True)
    def _server(self, shared: Running) -> None:
        self.target = shared.target

    async def make_source(self) -> MemorySource:
        return await self.seeded(RemoteMemory(self.target))


@pytest.fixture(scope="module")
def composite(shared: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose root is a composite: its own memory and another server's."""
    with servers(tmp_path_factory.mktemp("composite")) as begin:
        yield begin(config=f'[[sources]]\ntype = "remote"\nname = "other"\ntarget = "{shared.target}"\n')


class TestRemoteComposite(OverTheEngine):
    @pytest.fixture(autouse=True)
    def _server(self, composite: Running) -> None:
        self.target = composite.target

    async def make_source(self) -> MemorySource:
        return await self.seeded(RemoteMemory(self.target))

    # Both members hold each memory, so it comes back once, with the stamps of a merge in its metadata.
    keeps_metadata = False


def contents(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


async def test_a_remote_composite_merges_copies_as_a_local_one_does(composite: Running):
    ctx = Ctx(scope=Scope("merge", uuid.uuid4().hex))
    local = CompositeMemory([VectorMemory(InMemoryVectors(), name="a"), VectorMemory(InMemoryVectors(), name="b")])
    async with RemoteMemory(composite.target) as remote:
        found: list[MemoryItem] = []
        for memory in (local, remote):
            await memory.write([MemoryItem("tea at five", "me", metadata={"n": 1}, id="tea")], ctx=ctx)
            (item,) = await memory.query("tea", k=5, ctx=ctx)
            found.append(item)
        assert [item.metadata["dedupe_count"] for item in found] == [2, 2]
        assert [len(item.metadata["dedupe_sources"]) for item in found] == [2, 2]
        assert [item.metadata["n"] for item in found] == [1, 1]


async def test_a_server_that_dies_in_mid_write_shows_as_failed_by_name(start: Start):
    server = start()
    ctx = Ctx(scope=Scope("acme", "dies"))
    local = VectorMemory(InMemoryVectors(), name="local")
    remote = RemoteMemory(server.target, name="far", timeout=10.0)
    await remote.query("warm", k=1, ctx=ctx)
    items = [MemoryItem(f"memory number {number}", "me", id=f"m{number}") for number in range(2000)]
    writing = asyncio.create_task(CompositeMemory([local, remote]).write(items, ctx=ctx))
    while not await remote.query("memory number", k=1, ctx=ctx):
        assert not writing.done()
    server.kill()
    with pytest.raises(CompositeWriteError) as split:
        await writing
    assert split.value.accepted == ["local"]
    assert list(split.value.failed) == ["far"]
    await remote.close()


async def test_attributes_travel_and_the_user_is_respected(shared: Running):
    scope = Scope("attributes", uuid.uuid4().hex)
    when = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    said = MemoryAttributes(
        memory_type="episodic", namespace="n", user_id="maya", session_id="s", agent_id="a", run_id="r",
        visibility=Visibility.PRIVATE, importance=0.0, confidence=0.25, event_time=when, supersedes_id="old",
    )  # fmt: skip
    async with RemoteMemory(shared.target, name="far") as memory:
        await memory.write([MemoryItem("a walk by the sea", "me", id="walk", attributes=said)], ctx=Ctx(scope=scope))
        (item,) = await memory.query("sea", k=3, ctx=Ctx(scope=scope, user_id="maya"))
        assert item.source == "far"
        stored: Any = item.attributes
        assert stored.origin == "memory"
        for name in (
            "memory_type",
            "namespace",
            "session_id",
            "importance",
            "confidence",
            "event_time",
            "supersedes_id",
        ):
            assert getattr(stored, name) == getattr(said, name)
        assert await memory.query("sea", k=3, ctx=Ctx(scope=scope, user_id="jonas")) == []


async def test_what_a_user_writes_is_that_user_s(shared: Running, tmp_path: Path):
    scope = Scope("users", uuid.uuid4().hex)
    for memory in (embedded(tmp_path / "data"), RemoteMemory(shared.target)):
        async with memory:
            await memory.write([MemoryItem("a diary", "me", id="d")], ctx=Ctx(scope=scope, user_id="maya"))
            assert await memory.query("diary", k=3, ctx=Ctx(scope=scope, user_id="jonas")) == []
            (item,) = await memory.query("diary", k=3, ctx=Ctx(scope=scope, user_id="maya"))
            assert item.attributes
            assert item.attributes.user_id == "maya"


async def test_what_one_process_embeds_a_server_serves(start: Start, tmp_path: Path):
    ctx = Ctx(scope=Scope("me", "notebook"))
    async with embedded(tmp_path / "data") as memory:
        await memory.write([MemoryItem("The kiln reaches 1240 degrees.", "notes", id="kiln")], ctx=ctx)
        local = await memory.query("how hot is the kiln?", k=1, ctx=ctx)
    async with RemoteMemory(start(data=tmp_path / "data").target, name="memory") as memory:
        assert await memory.query("how hot is the kiln?", k=1, ctx=ctx) == local


@pytest.mark.parametrize(
    "metadata", [{"a": {1, 2}}, {"a": b"x"}, {"a": 2**63}, {"a": float("nan")}, {"a": {"b": [float("inf")]}}]
)
async def test_metadata_that_cannot_travel_is_refused_before_anything_is_stored(metadata, shared, tmp_path):
    ctx = Ctx(scope=Scope("bad", uuid.uuid4().hex))
    for memory in (embedded(tmp_path / "data"), RemoteMemory(shared.target)):
        async with memory:
            with pytest.raises(ValueError, match="metadata"):
                await memory.write([MemoryItem("fine", "me"), MemoryItem("x", "me", metadata=metadata)], ctx=ctx)
            assert await memory.query("fine", k=3, ctx=ctx) == []
