"""However a call fails, its client gets one status with one ErrorInfo, and nothing of the inside."""

from __future__ import annotations

import json
import logging

import grpc
import pytest

from recalld import errors
from recalld.item import MemoryItem
from recalld.v1 import error_reason_pb2
from recalld.v1 import memory_service_pb2 as pb


@pytest.mark.parametrize("cls", errors.BY_REASON.values(), ids=errors.BY_REASON)
async def test_every_error_has_its_reason_and_code_on_the_wire(client, notebook, scope, fails, cls):
    error = cls(source="memory", n=1) if cls is errors.MemoryWriteRefused else cls("went wrong")
    notebook.error = error
    fault = await fails(client.memory.BatchGet(pb.BatchGetRequest(scope=scope, ids=["a"])))
    assert (fault.reason, fault.code.name) == (cls.reason, cls.code)
    assert (fault.retry_after is not None) == (cls in (errors.Overloaded, errors.SourceUnavailable))


def test_every_reason_of_the_contract_has_an_error():
    names = {name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name}
    assert names - {"UNSPECIFIED"} == errors.BY_REASON.keys()


@pytest.mark.parametrize("rpc", ["Query", "BatchGet", "List"])
async def test_a_defect_tells_the_client_a_request_id_and_the_log_the_rest(client, notebook, scope, fails, caplog, rpc):
    notebook.error = ZeroDivisionError("/secret/path")
    request = getattr(pb, f"{rpc}Request")(scope=scope, **({"ids": ["a"]} if rpc == "BatchGet" else {}))
    call = getattr(client.memory, rpc)(request, metadata=[("x-request-id", "r-1")])
    fault = await fails(call.read() if rpc == "Query" else call)
    assert (fault.code.name, fault.reason) == ("INTERNAL", "INTERNAL")
    assert "secret" not in fault.message
    assert fault.request_id == "r-1"
    assert "/secret/path" in caplog.text
    assert fault.metadata["requestId"] == "r-1"


async def test_a_stored_item_that_cannot_travel_is_data_loss(client, notebook, scope, tenant, fails):
    notebook.add(tenant, MemoryItem("lone \ud800 surrogate", "", id="a"))
    fault = await fails(client.memory.BatchGet(pb.BatchGetRequest(scope=scope, ids=["a"])))
    assert (fault.code.name, fault.reason) == ("DATA_LOSS", "STORAGE_CORRUPT")


async def test_a_message_with_newlines_and_other_scripts_arrives_whole(client, notebook, scope, fails):
    notebook.error = errors.InvalidField("line\none é 漢 100%")
    fault = await fails(client.memory.BatchGet(pb.BatchGetRequest(scope=scope, ids=["a"])))
    assert fault.message == "line\none é 漢 100%"


async def test_an_unknown_method_is_unimplemented(client):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.channel.unary_unary("/recalld.v1.MemoryService/Supersede")(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_the_request_id_of_the_caller_comes_back(client, scope):
    call = client.memory.List(pb.ListRequest(scope=scope), metadata=[("x-request-id", "abc-1.2_3")])
    await call
    assert dict(await call.trailing_metadata())["x-request-id"] == "abc-1.2_3"


@pytest.mark.parametrize("given", [None, "", "with space", "x" * 65, 'quote"', "slash/"])
async def test_without_a_sane_request_id_a_fresh_one_comes_back(client, scope, given):
    ids = []
    for _ in range(2):
        call = client.memory.List(
            pb.ListRequest(scope=scope), metadata=None if given is None else [("x-request-id", given)]
        )
        await call
        ids.append(dict(await call.trailing_metadata())["x-request-id"])
    assert len(set(ids)) == 2
    assert given not in ids
    assert all(len(each) == 32 for each in ids)


async def test_each_call_is_one_line_of_log_without_content(client, notebook, scope, fails, caplog):
    caplog.set_level(logging.INFO)
    items = [{"content": "a very private sentence", "id": "private-id"}]
    request = pb.BatchWriteRequest(scope=scope, items=items)
    await client.memory.BatchWrite(request, metadata=[("x-request-id", "r-1")])
    await fails(client.memory.BatchGet(pb.BatchGetRequest(scope=scope), metadata=[("x-request-id", "r-2")]))
    lines = [vars(record) for record in caplog.records if record.getMessage() == "rpc"]
    assert [(line["method"], line["code"]) for line in lines] == [
        ("recalld.v1.MemoryService/BatchWrite", "OK"),
        ("recalld.v1.MemoryService/BatchGet", "INVALID_ARGUMENT"),
    ]
    assert lines[1]["reason"] == "INVALID_FIELD"
    assert all(line["elapsed_ms"] > 0 and line["peer"].startswith("ipv4:") for line in lines)
    assert "private" not in str(lines)


def test_log_lines_are_json_with_every_extra_field():
    from recalld_server.logs import REQUEST_ID, JsonLines

    record = logging.LogRecord("recalld", logging.WARNING, "", 0, "rpc %s", ("done",), None)
    record.code = "OK"
    token = REQUEST_ID.set("r-9")
    try:
        line = json.loads(JsonLines().format(record))
    finally:
        REQUEST_ID.reset(token)
    assert line["ts"].endswith("+00:00")
    assert {key: line[key] for key in ("level", "event", "code", "request_id", "logger")} == {
        "level": "warning",
        "event": "rpc done",
        "code": "OK",
        "request_id": "r-9",
        "logger": "recalld",
    }
