"""No bytes that a client may send make an INTERNAL or UNKNOWN, or stop the server."""

from __future__ import annotations

import random

import grpc
import grpc.aio
import pytest

from recalld.item import MemoryItem
from recalld.v1 import admin_service_pb2, filter_pb2, item_pb2
from recalld.v1 import memory_service_pb2 as pb

REQUESTS = {
    "MemoryService/Query": pb.QueryRequest(query="tea", k=3, where={"exists": "id"}, fusion={"k": 3}),
    "MemoryService/Write": pb.WriteRequest(sequence=1, items=[{"content": "tea"}], idempotency_key="k"),
    "MemoryService/BatchWrite": pb.BatchWriteRequest(
        items=[{"id": "a", "content": "tea", "metadata": {"k": {"integer_value": 3}}, "attributes": {"user_id": "m"}}]
    ),
    "MemoryService/BatchGet": pb.BatchGetRequest(ids=["a"]),
    "MemoryService/List": pb.ListRequest(
        page_size=2, where={"compare": {"field": "id", "value": {"string_value": "a"}}}
    ),
    "MemoryService/Update": pb.UpdateRequest(item={"id": "a", "content": "x"}, update_mask={"paths": ["content"]}),
    "MemoryService/Delete": pb.DeleteRequest(ids=["a"]),
    "AdminService/GetServerInfo": admin_service_pb2.GetServerInfoRequest(),
}
ROUNDS = 150


def mutated(data: bytes, generator: random.Random) -> bytes:
    """Random bytes, or a valid request in which some are changed, cut, doubled or put in."""
    kind = generator.randrange(4)
    if kind == 0 or not data:
        return generator.randbytes(generator.randrange(60))
    at = generator.randrange(len(data))
    if kind == 1:
        return data[:at] + generator.randbytes(1) + data[at + 1 :]
    if kind == 2:
        return data[:at] + generator.randbytes(generator.randrange(1, 9)) + data[at:]
    return data[:at] + data[generator.randrange(len(data)) :]


async def send(client, path: str, data: bytes) -> grpc.aio.AioRpcError | None:
    try:
        if path.endswith("/Query"):
            async for _ in client.channel.unary_stream(f"/recalld.v1.{path}")(data):
                pass
        elif path.endswith("/Write"):
            async for _ in client.channel.stream_stream(f"/recalld.v1.{path}")(iter([data])):
                pass
        else:
            await client.channel.unary_unary(f"/recalld.v1.{path}")(data)
    except grpc.aio.AioRpcError as error:
        return error
    return None


@pytest.mark.parametrize("path", REQUESTS)
async def test_changed_bytes_are_answered_or_refused_with_details(client, notebook, scope, tenant, fails, path):
    notebook.add(tenant, MemoryItem("tea", "", id="a"))
    generator = random.Random(path)
    request = REQUESTS[path]
    if "scope" in request.DESCRIPTOR.fields_by_name:
        request.scope.CopyFrom(scope)
    valid = request.SerializeToString()
    assert await send(client, path, valid) is None
    refused = 0
    for _ in range(ROUNDS):
        data = mutated(valid, generator)
        error = await send(client, path, data)
        if error is None:
            continue
        refused += 1

        async def raising(error=error):
            raise error

        fault = await fails(raising())
        assert fault.code.name not in ("INTERNAL", "UNKNOWN"), data
    assert refused > 10 or path.endswith("GetServerInfo")
    assert await send(client, path, valid) is None


def deep_filter(levels: int) -> bytes:
    """Conditions nested far deeper than any parser follows."""
    data = filter_pb2.Filter(exists="id").SerializeToString()
    tag = bytes([3 << 3 | 2])  # Filter.not
    for _ in range(levels):
        size, length = len(data), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        data = tag + length + bytes([size]) + data
    return data


@pytest.mark.parametrize("levels", [40, 90, 110, 5000])
async def test_filters_nested_without_end_are_refused(client, scope, fails, levels):
    where = deep_filter(levels)
    prefix = pb.ListRequest(scope=scope).SerializeToString()
    size, length = len(where), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    data = prefix + bytes([2 << 3 | 2]) + length + bytes([size]) + where
    error = await send(client, "MemoryService/List", data)

    async def raising():
        raise error

    fault = await fails(raising())
    assert (fault.code.name, fault.reason in ("INVALID_FIELD", "INVALID_FILTER")) == ("INVALID_ARGUMENT", True)


async def test_metadata_nested_without_end_is_refused(client, scope, fails):
    value = item_pb2.Value(bool_value=True)
    for _ in range(45):
        value = item_pb2.Value(list_value={"values": [value]})
    items = [item_pb2.MemoryItem(content="x", metadata={"k": value})]
    request = pb.BatchWriteRequest(scope=scope, items=items)
    fault = await fails(client.memory.BatchWrite(request))
    assert fault.reason == "INVALID_FIELD"
