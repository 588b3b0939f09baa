"""A store in a directory of its own, and short ways to make what goes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalld.engine import LocalMemory
from recalld.engine.ports import Embedding, ModelIdentity
from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import Ctx, Scope
from recalld.store import WriteBatch, WriteOutcome
from recalld_server.adapters.lancedb import LanceConfig, LanceRecords, open_records
from recalld_server.adapters.lancedb.upkeep import Upkeep

MODEL = ModelIdentity("tiny", 8, "0" * 64, 16, "f" * 64)


@dataclass
class Clock:
    """Tells the time that it was set to."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


class TextEmbedder:
    """Fixes a vector for each text."""

    identity = MODEL

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        return [Embedding(vector_of(text)) for text in texts]

    async def embed_query(self, text: str) -> Embedding:
        return Embedding(vector_of(text))


def vector_of(text: str) -> Any:
    """The vector that a text has here."""
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
    vector = np.random.default_rng(seed).standard_normal(8).astype(np.float32)
    return vector / np.linalg.norm(vector)


@dataclass
class Opened:
    """A record store, and the engine over it."""

    records: LanceRecords
    memory: LocalMemory

    def vector(self, text: str) -> Any:
        """The vector that items of this text have."""
        return vector_of(text)

    async def put(self, scope: Scope, *items: MemoryItem, key: str = "") -> WriteOutcome:
        return await self.memory.commit(WriteBatch(items, key), ctx=Ctx(scope))

    async def delete(self, scope: Scope, *ids: str) -> int:
        return await self.memory.delete(ids, ctx=Ctx(scope))

    async def items(self, scope: Scope) -> list[MemoryItem]:
        """All of them, newest first."""
        return list((await self.records.newest(scope, None, limit=5000)).items)

    async def ids(self, scope: Scope) -> list[str | None]:
        return [item.id for item in await self.items(scope)]

    async def by_words(self, scope: Scope, text: str, limit: int = 5) -> list[str]:
        return [each.id for each in (await self.records.lexical(scope, text, None, limit=limit)).candidates]

    async def revision(self, scope: Scope) -> int:
        return (await self.records.head(scope)).revision


Open = Callable[..., Any]


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2025, 3, 1, 12, tzinfo=UTC))


@pytest.fixture
def scope() -> Scope:
    return Scope("acme", "support")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def opened(root: Path, clock: Clock) -> AsyncIterator[Open]:
    """Opens a store at `root`; keywords override the configuration. Closes what it opened."""
    async with AsyncExitStack() as stack:

        async def open_(**overrides: Any) -> Opened:
            settings = {
                "name": "memory", "root": root, "model": MODEL, "durability": "commit", "clock": clock, **overrides
            }  # fmt: skip
            records = await open_records(LanceConfig(**settings))
            memory = LocalMemory(records, TextEmbedder(), clock=clock, limits=None)
            stack.push_async_callback(memory.close)
            return Opened(records, memory)

        yield open_


@pytest.fixture
def tidied(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set each time that a table was tidied."""
    event = asyncio.Event()
    tend = Upkeep._tend

    async def watched(self: Upkeep, access: Any) -> None:
        await tend(self, access)
        event.set()

    monkeypatch.setattr(Upkeep, "_tend", watched)
    return event


@pytest.fixture
def note() -> Callable[..., MemoryItem]:
    """Makes an item; `metadata` goes into it, other keywords are attributes."""

    def make(id: str, content: str = "a note", *, metadata: dict[str, Any] | None = None, **given: Any) -> MemoryItem:
        attributes = MemoryAttributes(**given) if given else None
        return MemoryItem(content, "caller", metadata=metadata or {}, id=id, attributes=attributes)

    return make
