"""Several memories as one, and what a partial commit looks like: compose.py [HOST:PORT]."""

import asyncio
import sys
from types import SimpleNamespace

from recalld import (
    CachedMemory,
    CompositeMemory,
    CompositeWriteError,
    Ctx,
    FileMemory,
    InMemoryFiles,
    MemoryItem,
    ReadOnlyMemory,
    RemoteMemory,
    Scope,
    ScopedMemory,
    ScratchpadMemory,
    rrf_rerank,
)


async def main(target: str) -> None:
    ctx = Ctx(scope=Scope("acme", "travel"), observe=lambda event, fields: print(f"  [{event}] {dict(fields)}"))
    files = InMemoryFiles()
    await files.create("/handbook/trains.md", "Trains are booked a week ahead.")
    async with RemoteMemory(target, name="server") as remote:
        memory = ScopedMemory(
            CompositeMemory(
                [
                    CachedMemory(remote, ttl_seconds=30),
                    ReadOnlyMemory(FileMemory(files, name="handbook"), on_write="ignore"),
                    ScratchpadMemory(SimpleNamespace(scratchpad={"trip": "Maya travels to Oslo by train on Friday"})),
                ],
                reranker=rrf_rerank(),
            )
        )
        await memory.write([MemoryItem("Maya gets motion sick on ferries.", "chat", id="ferries")], ctx=ctx)
        for item in await memory.query("train", k=4, ctx=ctx):
            print(f"{item.source:10} {item.content}")

        # One member is down: the others keep what they took, and the error says which is which.
        down = RemoteMemory("127.0.0.1:1", name="down", timeout=0.5)
        try:
            await CompositeMemory([remote, down]).write([MemoryItem("Maya likes window seats.", "chat")], ctx=ctx)
        except CompositeWriteError as split:
            print(f"accepted by {split.accepted}, failed in {list(split.failed)}")
        finally:
            await down.close()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
