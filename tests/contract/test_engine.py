"""The engine in memory, by the published suites."""

from __future__ import annotations

from recalld import MemoryItem, MemorySource
from recalld.engine import InMemoryRecords, LocalMemory
from recalld.engine.ports import RecordStore
from recalld.testing import MemoryStoreContract, RecordStoreContract

TEXTS = ["coffee at nine in the kitchen", "coffee after six", "coffee coffee is out"]


class TestInMemoryRecords(RecordStoreContract):
    async def make_records(self) -> RecordStore:
        return InMemoryRecords()


class TestLocalMemory(MemoryStoreContract):
    wheres = ({"page": 1}, {"page": {"$gte": 1}}, {"$or": [{"page": 0}, {"page": {"$in": [2, 9]}}]})

    async def make_source(self) -> MemorySource:
        memory = LocalMemory()
        items = [MemoryItem(text, "seed", metadata={"page": page}) for page, text in enumerate(TEXTS)]
        await memory.write(items, ctx=self.ctx())
        return memory
