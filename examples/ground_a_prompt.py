"""Memories as attributed evidence in a prompt: ground_a_prompt.py [HOST:PORT]."""

import asyncio
import sys

from recalld import Ctx, MemoryItem, RemoteMemory, Scope, as_grounder


async def main(target: str) -> None:
    ctx = Ctx(scope=Scope("acme", "kitchen"))
    async with RemoteMemory(target, name="memory") as memory:
        await memory.write(
            [
                MemoryItem("Maya is allergic to peanuts.", "chat", id="peanuts"),
                MemoryItem("Jonas does not like coriander.", "chat", id="coriander"),
            ],
            ctx=ctx,
        )
        task = "Suggest a dinner for Maya."
        evidence = await as_grounder(memory, k=2)(ctx, task)
        print(f"What is known:\n{evidence}\n\nTask: {task}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
