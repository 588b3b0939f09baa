"""What clients that do not read, or that send much at once, may hold of the server."""

from __future__ import annotations

import asyncio

import grpc.aio

from recalld.v1 import memory_service_pb2 as pb
from recalld.v1.error_reason_pb2 import ERROR_REASON_OVERLOADED

#: More than gRPC's flow control takes off the server's hands for a client that does not read.
LARGE = "word " * 8_000
MANY = 400


async def fill(client, scope) -> None:
    for _ in range(MANY // 50):
        await client.memory.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[{"content": LARGE}] * 50))


def ask(client, scope, k: int = MANY):
    return client.memory.Query(pb.QueryRequest(scope=scope, query="word", k=k))


async def test_a_client_that_reads_nothing_holds_no_place(start, scope):
    client = await start(max_concurrent_queries=2)
    await fill(client, scope)
    silent = [ask(client, scope) for _ in range(2)]
    for each in silent:
        assert (await each.read()).WhichOneof("frame") == "hits"  # the answer is on its way, and nobody reads on
    async with asyncio.timeout(20):
        frames = [frame async for frame in ask(client, scope, k=1)]
    assert frames[-1].summary.hit_count == 1
    for each in silent:
        each.cancel()


async def test_an_answer_that_nobody_reads_ends(start, scope, fails):
    client = await start(max_concurrent_queries=1, stall_seconds=0.1)
    await fill(client, scope)
    # As many as may be sent at once; another is answered only once these have ended.
    silent = [ask(client, scope) for _ in range(4)]
    for each in silent:
        await each.read()
    async with asyncio.timeout(20):
        assert [frame async for frame in ask(client, scope, k=1)]

    async def read_on(call) -> None:
        while (await call.read()) is not grpc.aio.EOF:
            pass

    for each in silent:
        fault = await fails(read_on(each))
        assert (fault.code.name, fault.reason) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
        assert "read nothing for 0.1 s" in fault.message


async def test_what_waits_for_a_place_is_bounded_over_all_streams(start, notebook, scope):
    client = await start(max_concurrent_writes=1, max_waiting_bytes=300_000, patience=20.0)
    notebook.writes.close()
    request = pb.WriteRequest(scope=scope, sequence=1, items=[{"content": "x" * 25_000}] * 4)
    streams = [client.memory.Write() for _ in range(8)]
    for each in streams:
        await each.write(request)
    answers = [asyncio.ensure_future(each.read()) for each in streams]
    refused: set[asyncio.Future[pb.WriteResponse]] = set()
    async with asyncio.timeout(20):
        # One is at work and two more have room to wait in.
        while len(refused) < 5:
            done, _ = await asyncio.wait(set(answers) - refused, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert {each.result().error.reason for each in refused} == {ERROR_REASON_OVERLOADED}
        notebook.writes.open()
        stored = [await each for each in answers if each not in refused]
    assert all(each.WhichOneof("result") == "outcome" for each in stored)
    assert len(stored) == 3
    for each in streams:
        each.cancel()


async def test_large_and_small_batches_of_a_stream_keep_their_order(start, notebook, scope):
    client = await start()
    stream = client.memory.Write()
    texts = ["a" * 50_000, "b", "c" * 40_000, "d"]
    for number, text in enumerate(texts, 1):
        await stream.write(pb.WriteRequest(scope=scope, sequence=number, items=[{"id": "same", "content": text}]))
    await stream.done_writing()
    answers = [answer async for answer in stream]
    assert [answer.sequence for answer in answers] == [1, 2, 3, 4]
    assert [batch.items[0].content[0] for batch, _ in notebook.batches] == ["a", "b", "c", "d"]
