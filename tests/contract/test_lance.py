"""LanceDB as a record store, and the engine over it, by the published suites."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from recalld import MemoryItem, MemorySource
from recalld.engine import LocalMemory
from recalld.engine.ports import Embedding, ModelIdentity, RecordStore
from recalld.testing import MemoryStoreContract, RecordStoreContract
from recalld_server.adapters.lancedb import LanceConfig, open_records

MODEL = ModelIdentity("tiny", 8, "0" * 64, 16, "tiny")
TEXTS = ["coffee at nine in the kitchen", "coffee after six", "coffee coffee is out"]


async def opened(root: str) -> RecordStore:
    return await open_records(LanceConfig(name="memory", root=root, model=MODEL, durability="commit"))


class TestLanceRecords(RecordStoreContract):
    async def make_records(self) -> RecordStore:
        self.folder = tempfile.TemporaryDirectory()
        self.root = str(Path(self.folder.name) / "data")
        return await opened(self.root)

    async def make_second(self, records: RecordStore) -> RecordStore | None:
        return await opened(self.root)

    async def close_subject(self, subject: RecordStore) -> None:
        await super().close_subject(subject)
        self.folder.cleanup()

    def vector(self, *numbers: float) -> Any:
        return np.asarray(super().vector(*numbers), np.float32)


class TestLanceRecordsOnAnObjectStore(TestLanceRecords):
    """Through LanceDB's object store path, where nothing can be locked."""

    async def make_records(self) -> RecordStore:
        self.folder = tempfile.TemporaryDirectory()
        self.root = f"file-object-store://{self.folder.name}"
        return await opened(self.root)


class DigestEmbedder:
    """Vectors of words, fixed by their digests: texts that share words are near."""

    identity = MODEL

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        return [self._embed(text) for text in texts]

    async def embed_query(self, text: str) -> Embedding:
        return self._embed(text)

    def _embed(self, text: str) -> Embedding:
        vector = np.full(8, 1e-3, np.float32)
        for word in text.casefold().split():
            digest = blake2b(word.encode(), digest_size=8).digest()
            vector += np.frombuffer(digest, np.uint8).astype(np.float32) - 128
        return Embedding(vector / np.linalg.norm(vector))


class TestLocalMemoryOnLance(MemoryStoreContract):
    semantic = True
    wheres = ({"page": 1}, {"page": {"$gte": 1}}, {"$or": [{"page": 0}, {"page": {"$in": [2, 9]}}]})

    async def make_source(self) -> MemorySource:
        self.folder = tempfile.TemporaryDirectory()
        memory = LocalMemory(await opened(self.folder.name), DigestEmbedder())
        items = [MemoryItem(text, "seed", metadata={"page": page}) for page, text in enumerate(TEXTS)]
        await memory.write(items, ctx=self.ctx())
        return memory

    async def close_source(self, source: MemorySource) -> None:
        await super().close_source(source)
        self.folder.cleanup()
