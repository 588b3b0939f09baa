"""What the server takes on at once, and for how long."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recalld.v1 import admin_service_pb2
from recalld.v1 import memory_service_pb2 as pb


def list_request(scope):
    return pb.ListRequest(scope=scope)


async def test_calls_over_the_limit_wait_and_those_over_that_are_refused(start, notebook, scope, fails):
    client = await start(max_concurrent_reads=1)
    notebook.reads.close()
    held = [asyncio.ensure_future(client.memory.List(list_request(scope)))]
    await notebook.reads.next()
    # One runs and four may wait; which of these six are refused is not promised, only how many.
    held += [asyncio.ensure_future(client.memory.List(list_request(scope))) for _ in range(6)]
    refused: set[asyncio.Future] = set()
    async with asyncio.timeout(20):
        while len(refused) < 2:
            done, _ = await asyncio.wait(set(held) - refused, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
    for each in refused:
        fault = await fails(each)
        assert (fault.code.name, fault.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
        assert fault.retry_after
    # Other work is not held up by it, and health least of all.
    await client.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    await client.memory.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[{"content": "x"}]))
    health = health_pb2_grpc.HealthStub(client.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    notebook.reads.open()
    answered = await asyncio.gather(*(each for each in held if each not in refused))
    assert len(answered) == 5


async def test_a_call_that_waits_too_long_is_refused(start, notebook, scope, fails):
    client = await start(max_concurrent_reads=1, patience=0.05)
    notebook.reads.close()
    held = asyncio.ensure_future(client.memory.List(list_request(scope)))
    await notebook.reads.next()
    fault = await fails(client.memory.List(list_request(scope)))
    assert fault.reason == "OVERLOADED"
    notebook.reads.open()
    await held


async def test_a_place_is_given_back_however_a_call_ends(start, notebook, scope, fails):
    client = await start(max_concurrent_reads=1, patience=20.0)
    notebook.error = RuntimeError("broken")
    await fails(client.memory.List(list_request(scope)))
    notebook.error = None
    notebook.reads.close()
    cancelled = asyncio.ensure_future(client.memory.List(list_request(scope)))
    assert await notebook.reads.next() == "list"  # of the call that failed
    assert await notebook.reads.next() == "list"
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    notebook.reads.open()
    async with asyncio.timeout(20):
        await client.memory.List(list_request(scope))


async def test_a_stream_whose_batches_find_no_place_waits_for_one(start, notebook, scope):
    client = await start(max_concurrent_writes=1, patience=0.01)
    notebook.writes.close()
    requests = [pb.WriteRequest(scope=scope, sequence=n, items=[{"content": f"c{n}"}]) for n in (1, 2, 3)]
    stream = client.memory.Write(iter(requests))
    await notebook.writes.next()
    assert notebook.writes.nobody_else
    notebook.writes.open()
    answers = [answer async for answer in stream]
    assert [answer.WhichOneof("result") for answer in answers] == ["outcome"] * 3


@pytest.mark.parametrize("rpc", ["List", "BatchWrite"])
async def test_work_stops_at_the_deadline_and_the_client_is_told_where(client, notebook, scope, fails, rpc):
    notebook.reads.close()
    notebook.writes.close()
    request = {
        "List": list_request(scope),
        "BatchWrite": pb.BatchWriteRequest(scope=scope, items=[{"content": "x"}]),
    }[rpc]
    fault = await fails(getattr(client.memory, rpc)(request, timeout=0.5))
    assert (fault.code.name, fault.reason) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    assert fault.metadata == {"stage": rpc.lower()}


async def test_waiting_for_a_place_counts_against_the_deadline(start, notebook, scope, fails):
    client = await start(max_concurrent_reads=1, patience=20.0)
    notebook.reads.close()
    held = asyncio.ensure_future(client.memory.List(list_request(scope)))
    await notebook.reads.next()
    fault = await fails(client.memory.List(list_request(scope), timeout=0.5))
    assert fault.metadata == {"stage": "admission"}
    notebook.reads.open()
    await held


async def test_a_source_is_told_how_much_time_is_left(client, notebook, scope, query):
    async for _ in client.memory.Query(pb.QueryRequest(scope=scope, query="x"), timeout=8):
        pass
    ((_, ctx),) = notebook.searches
    assert 4 < ctx.deadline - time.monotonic() < 8


async def test_a_source_that_lets_the_time_pass_does_not_hide_that_from_the_client(client, notebook, scope):
    notebook.reads.close()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in client.memory.Query(pb.QueryRequest(scope=scope, query="x"), timeout=0.5):
            pass
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_cancelled_call_stops_working(client, notebook, scope):
    stopped = asyncio.Event()

    class Reads(type(notebook.reads)):
        async def passed(self, what):
            try:
                await super().passed(what)
            except asyncio.CancelledError:
                stopped.set()
                raise

    notebook.reads = Reads()
    notebook.reads.close()
    call = client.memory.List(list_request(scope))
    await notebook.reads.next()
    call.cancel()
    async with asyncio.timeout(20):
        await stopped.wait()
