"""A store in a directory of its own, and short ways to make what goes in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb import LanceConfig, LanceStore, open_store
from recalld_server.ports import ModelIdentity, Row

MODEL = ModelIdentity("tiny", 8, "0" * 64, 16)


@pytest.fixture
def now() -> datetime:
    return datetime(2025, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def scope() -> Scope:
    return Scope("acme", "support")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def opened(root: Path) -> AsyncIterator[Callable[..., Any]]:
    """Opens a store at `root`; keywords override the configuration. Closes what it opened."""
    async with AsyncExitStack() as stack:

        async def open_(**overrides: Any) -> LanceStore:
            settings = {"name": "memory", "root": root, "model": MODEL, "durability": "commit", **overrides}
            store = await open_store(LanceConfig(**settings))
            stack.push_async_callback(store.close)
            return store

        yield open_


@pytest.fixture
def row() -> Callable[..., Row]:
    """A row with a vector that its id fixes; `metadata` goes to the item, other keywords are attributes."""

    def make(id: str, content: str = "a note", *, metadata: dict[str, Any] | None = None, **given: Any) -> Row:
        vector = np.random.default_rng(list(id.encode())).standard_normal(8).astype(np.float32)
        attributes = MemoryAttributes(**given) if given else None
        item = MemoryItem(content, "caller", metadata=metadata or {}, id=id, attributes=attributes)
        return Row(item, vector / np.linalg.norm(vector))

    return make
