"""The same code in a notebook and against a server; one line differs: local_then_remote.py [HOST:PORT]."""

import asyncio
import sys
import tempfile

from recalld import Ctx, MemoryItem, MemorySource, RemoteMemory, Scope
from recalld_server import embedded

CTX = Ctx(scope=Scope("me", "notebook"))


async def remember_and_ask(memory: MemorySource) -> None:
    await memory.write([MemoryItem("The kiln reaches 1240 degrees after six hours.", "notes", id="kiln")], ctx=CTX)
    for item in await memory.query("how hot does the oven for pottery get?", k=1, ctx=CTX):
        print(f"{memory.name}: {item.content}")


async def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(f"{folder}/data") as memory:
            await remember_and_ask(memory)
    async with RemoteMemory(target) as memory:
        await remember_and_ask(memory)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
