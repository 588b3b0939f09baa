"""Write memories and find them: quickstart.py [HOST:PORT]."""

import asyncio
import sys

from recalld import Ctx, MemoryAttributes, MemoryItem, RemoteMemory, Scope


async def main(target: str) -> None:
    ctx = Ctx(scope=Scope("acme", "support"))
    async with RemoteMemory(target) as memory:
        await memory.write(
            [
                MemoryItem("Maya is allergic to peanuts.", "chat", metadata={"turn": 12}, id="peanuts"),
                MemoryItem("Maya cycles to work unless it snows.", "chat", metadata={"turn": 30}, id="bike"),
                MemoryItem(
                    "The order service answers ERR-4271-XK when the tax service is late.",
                    "runbook",
                    id="error",
                    attributes=MemoryAttributes(memory_type="procedural", namespace="ops"),
                ),
            ],
            ctx=ctx,
        )
        for question, where in [
            ("what must she not eat?", None),
            ("how does she get to the office?", {"turn": {"$gte": 20}}),
            ("ERR-4271-XK", {"attributes.namespace": "ops"}),
        ]:
            best = (await memory.query(question, k=1, ctx=ctx, where=where))[0]
            print(f"{question:34} {best.score:.4f}  {best.content}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
