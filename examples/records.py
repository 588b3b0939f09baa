"""Get, list, update and delete records by id, with the generated stubs: records.py [HOST:PORT]."""

import asyncio
import sys

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from recalld.v1 import filter_pb2, item_pb2, memory_service_pb2
from recalld.v1.memory_service_pb2_grpc import MemoryServiceStub

SCOPE = item_pb2.Scope(org_id="acme", domain_id="records")


async def main(target: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        memory = MemoryServiceStub(channel)
        items = [
            item_pb2.MemoryItem(id="home", content="Maya lives in Bergen.", attributes={"user_id": "maya"}),
            item_pb2.MemoryItem(id="bike", content="Maya cycles to work.", attributes={"user_id": "maya"}),
        ]
        await memory.BatchWrite(memory_service_pb2.BatchWriteRequest(scope=SCOPE, items=items))

        got = await memory.BatchGet(memory_service_pb2.BatchGetRequest(scope=SCOPE, ids=["home", "boat"]))
        home = got.items[0]
        print(f"got {home.content!r} at revision {home.attributes.revision}; missing {list(got.missing_ids)}")

        # Changed only if nobody else changed it since it was read.
        updated = await memory.Update(
            memory_service_pb2.UpdateRequest(
                scope=SCOPE,
                item=item_pb2.MemoryItem(id="home", content="Maya lives in Oslo."),
                update_mask=FieldMask(paths=["content"]),
                if_revision=home.attributes.revision,
            )
        )
        print(f"updated to {updated.item.content!r}")

        listed = await memory.List(memory_service_pb2.ListRequest(scope=SCOPE, page_size=10))
        print(f"listed {[item.id for item in listed.items]}")

        of_maya = filter_pb2.Comparison(field="user_id", value=item_pb2.Value(string_value="maya"))
        deleted = await memory.Delete(
            memory_service_pb2.DeleteRequest(scope=SCOPE, where=filter_pb2.Filter(compare=of_maya))
        )
        print(f"deleted {deleted.deleted_count}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
