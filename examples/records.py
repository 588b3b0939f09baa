"""Get, list, update and delete memories by id: records.py [HOST:PORT]."""

import asyncio
import sys

from recalld import Ctx, MemoryItem, RemoteMemory, Scope
from recalld.client import MemoryClient
from recalld.errors import RevisionMismatch

CTX = Ctx(Scope("acme", "records"), user_id="maya")


async def main(target: str) -> None:
    async with RemoteMemory(target) as memory:
        await memory.write(
            [
                MemoryItem("Maya lives in Bergen.", "chat", id="home"),
                MemoryItem("Maya cycles to work.", "chat", id="bike"),
            ],
            ctx=CTX,
            idempotency_key="moving-in",  # the same write under the same key is applied once
        )

        (home,) = await memory.get(["home", "boat"], ctx=CTX)
        revision = home.attributes.revision if home.attributes else None
        print(f"got {home.content!r} at revision {revision}")

        # Changed only if nobody else changed it since it was read.
        updated = await memory.update("home", ctx=CTX, content="Maya lives in Oslo.", if_revision=revision)
        print(f"updated to {updated.content!r}")
        try:
            await memory.update("home", ctx=CTX, metadata={"moved": True}, if_revision=revision)
        except RevisionMismatch as mismatch:
            print(f"refused: {mismatch}")

        print(f"listed {[item.id async for item in memory.list(ctx=CTX)]}")

    # The client tells what a memory does not: ids that are missing, tokens of states.
    async with MemoryClient(target) as client:
        found = await client.get(["home", "boat"], ctx=CTX)
        print(f"found {[item.id for item in found.items]}, missing {found.missing_ids}")
        deleted = await client.delete(ctx=CTX, where={"attributes.user_id": "maya"})
        print(f"deleted {deleted.count}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
