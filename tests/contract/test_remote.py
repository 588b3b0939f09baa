"""A memory over the wire, by the public contract suite of stores: the whole door of a server in between."""

from __future__ import annotations

from typing import Any

from serving import served

from recalld import Ctx, MemoryItem, MemorySource, RemoteMemory, Scope
from recalld.engine import InMemoryRecords, LocalMemory
from recalld.testing import MemoryStoreContract

CTX = Ctx(Scope("acme", "support"))
TEXTS = ["coffee at nine in the kitchen", "coffee after six", "coffee coffee is out"]
PAGES = [MemoryItem(text, "seed", metadata={"page": page}) for page, text in enumerate(TEXTS)]


class TestRemote(MemoryStoreContract):
    wheres = ({"page": 1}, {"page": {"$gte": 1}}, {"$or": [{"page": 0}, {"page": {"$in": [2, 9]}}]})
    writers = frozenset({"memory"})

    async def make_source(self) -> MemorySource:
        local = LocalMemory(InMemoryRecords("memory"))
        await local.write(PAGES, ctx=CTX)
        self.servers = [await served(local)]
        return RemoteMemory(self.servers[0].address, name="far")

    async def close_source(self, source: Any) -> None:
        await super().close_source(source)
        for server in self.servers:
            await server.stop()


class TestRemoteOfRemote(TestRemote):
    """A server whose memory is another server."""

    writers = frozenset({"middle"})

    async def make_source(self) -> MemorySource:
        await super().make_source()
        middle = RemoteMemory(self.servers[0].address, name="middle")
        self.servers.insert(0, await served(middle))
        return RemoteMemory(self.servers[0].address, name="far")
