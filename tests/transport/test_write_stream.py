"""A Write stream: in order, pipelined within the window, never ended OK with a batch unacknowledged."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from recalld.errors import SourceUnavailable
from recalld.limits import Limits
from recalld.v1 import error_reason_pb2, item_pb2
from recalld.v1 import memory_service_pb2 as pb

WINDOW = Limits().max_unacked_batches


def batch(scope, sequence, content="x", *, id="", key=""):
    item = item_pb2.MemoryItem(id=id, content=content)
    return pb.WriteRequest(scope=scope, sequence=sequence, items=[item], idempotency_key=key)


async def rest(stream):
    """What the stream still answers."""
    return [answer async for answer in stream]


async def test_batches_are_acknowledged_in_order_and_the_stream_ends_ok(client, notebook, scope):
    stream = client.memory.Write(batch(scope, number, f"c{number}") for number in range(1, 30))
    answers = await rest(stream)
    assert [answer.sequence for answer in answers] == list(range(1, 30))
    assert all(list(answer.outcome.accepted) == ["memory"] for answer in answers)
    assert await stream.code() == grpc.StatusCode.OK
    assert len(notebook.batches) == 29


async def test_a_stream_without_batches_ends_ok(client):
    stream = client.memory.Write(iter(()))
    assert await rest(stream) == []
    assert await stream.code() == grpc.StatusCode.OK


async def test_batches_of_one_stream_may_have_different_scopes(client, notebook, scope):
    other = item_pb2.Scope(org_id="other", domain_id="support")
    await rest(client.memory.Write(iter([batch(scope, 1, id="a"), batch(other, 2, id="a")])))
    assert len(notebook.items) == 2


async def test_an_invalid_batch_is_answered_and_the_stream_goes_on(client, notebook, scope):
    requests = [batch(scope, 1), batch(scope, 2, ""), batch(item_pb2.Scope(), 3), batch(scope, 4)]
    answers = await rest(client.memory.Write(iter(requests)))
    assert [answer.WhichOneof("result") for answer in answers] == ["outcome", "error", "error", "outcome"]
    assert answers[1].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert answers[1].error.reason == error_reason_pb2.ERROR_REASON_INVALID_FIELD
    assert not answers[1].error.retryable
    assert dict(answers[1].error.field_violations) == {"items[0].content": "is empty"}
    assert answers[2].error.reason == error_reason_pb2.ERROR_REASON_SCOPE_REQUIRED
    assert len(notebook.batches) == 2


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (SourceUnavailable("is down"), "ERROR_REASON_SOURCE_UNAVAILABLE", True),
        (RuntimeError("secret"), "ERROR_REASON_INTERNAL", False),
    ],
)
async def test_a_batch_that_fails_is_answered_and_the_stream_goes_on(client, notebook, scope, error, reason, retryable):
    stream = client.memory.Write()
    notebook.error = error
    await stream.write(batch(scope, 1))
    failed = (await stream.read()).error
    assert (error_reason_pb2.ErrorReason.Name(failed.reason), failed.retryable) == (reason, retryable)
    assert "secret" not in failed.message
    notebook.error = None
    await stream.write(batch(scope, 2))
    assert (await stream.read()).HasField("outcome")
    await stream.done_writing()
    assert await stream.code() == grpc.StatusCode.OK


@pytest.mark.parametrize("numbers", [[0], [2], [1, 1], [1, 2, 4], [-1]])
async def test_a_gap_in_the_numbers_ends_the_stream_after_what_came_before(client, notebook, scope, fails, numbers):
    answers = []

    async def run():
        async for answer in client.memory.Write(batch(scope, number) for number in numbers):
            answers.append(answer)

    fault = await fails(run())
    assert (fault.code.name, fault.reason) == ("FAILED_PRECONDITION", "STREAM_PROTOCOL")
    assert "sequence" in fault.message
    assert [answer.sequence for answer in answers] == numbers[:-1]
    assert len(notebook.batches) == len(numbers) - 1


async def test_bytes_that_are_no_batch_end_the_stream_after_what_came_before(client, scope, fails):
    write = client.channel.stream_stream("/recalld.v1.MemoryService/Write")
    answers = []

    async def run():
        async for answer in write(iter([batch(scope, 1).SerializeToString(), b"\xff\xff\xff"])):
            answers.append(pb.WriteResponse.FromString(answer))

    fault = await fails(run())
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert [answer.sequence for answer in answers] == [1]


async def test_batches_run_at_the_same_time_up_to_the_window(client, notebook, scope):
    notebook.writes.close()
    stream = client.memory.Write(batch(scope, number, f"c{number}") for number in range(1, WINDOW + 10))
    running = {await notebook.writes.next() for _ in range(WINDOW)}
    assert running == {f"c{number}" for number in range(1, WINDOW + 1)}
    # The server took a whole window and works on it; the next one is not even read, so nobody can pass.
    other = client.memory.Write(iter([batch(scope, 1, "other stream")]))
    assert await notebook.writes.next() == "other stream"
    assert notebook.writes.nobody_else
    notebook.writes.open()
    assert [answer.sequence for answer in await rest(stream)] == list(range(1, WINDOW + 10))
    assert len(await rest(other)) == 1


async def test_acknowledgements_keep_their_order_when_a_later_batch_is_done_first(start, notebook, scope):
    class Uneven(type(notebook)):
        async def commit(self, batch, *, ctx):
            if batch.items[0].content == "slow":
                await self.reads.passed("slow")
            done = await super().commit(batch, ctx=ctx)
            await self.reads.passed(batch.items[0].content) if batch.items[0].content == "quick" else None
            return done

    uneven = Uneven()
    uneven.reads.close()
    client = await start(uneven)
    other = item_pb2.Scope(org_id="other", domain_id="support")
    stream = client.memory.Write(iter([batch(scope, 1, "slow"), batch(other, 2, "quick")]))
    assert {await uneven.reads.next(), await uneven.reads.next()} == {"slow", "quick"}
    assert [each.items[0].content for each, _ in uneven.batches] == ["quick"]
    uneven.reads.open()
    assert [answer.sequence for answer in await rest(stream)] == [1, 2]


@pytest.mark.parametrize("shared", [{"id": "a"}, {"key": "k"}, {}])
async def test_the_batches_of_a_scope_are_stored_in_their_order(client, notebook, scope, shared):
    """Also where the second has to wait for the first and the third could go on: nobody overtakes."""
    notebook.writes.close()
    requests = [batch(scope, 1, "first", **shared), batch(scope, 2, "second", **shared), batch(scope, 3, "apart")]
    stream = client.memory.Write(iter(requests))
    assert {await notebook.writes.next() for _ in range(3)} == {"first", "second", "apart"}
    notebook.writes.open()
    assert len(await rest(stream)) == 3
    assert [each.items[0].content for each, _ in notebook.batches] == ["first", "second", "apart"]


async def test_batches_that_find_no_place_at_first_keep_their_order(start, notebook, scope):
    client = await start(max_concurrent_writes=2)
    notebook.writes.close()
    stream = client.memory.Write(iter([batch(scope, number, f"c{number}") for number in range(1, 7)]))
    assert {await notebook.writes.next() for _ in range(2)} == {"c1", "c2"}
    notebook.writes.open()
    assert len(await rest(stream)) == 6
    assert [each.items[0].content for each, _ in notebook.batches] == [f"c{number}" for number in range(1, 7)]


async def test_one_id_in_two_scopes_does_not_wait(client, notebook, scope):
    notebook.writes.close()
    other = item_pb2.Scope(org_id="other", domain_id="support")
    stream = client.memory.Write(iter([batch(scope, 1, "first", id="a"), batch(other, 2, "second", id="a")]))
    assert {await notebook.writes.next(), await notebook.writes.next()} == {"first", "second"}
    notebook.writes.open()
    assert len(await rest(stream)) == 2


async def test_a_cancelled_stream_stops_its_batches(client, notebook, scope):
    cancelled = asyncio.Event()
    passed = notebook.writes.passed

    async def telling(what):
        try:
            await passed(what)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    notebook.writes.passed = telling
    notebook.writes.close()
    stream = client.memory.Write(iter([batch(scope, 1)]))
    reading = asyncio.create_task(stream.read())
    await notebook.writes.next()
    stream.cancel()
    async with asyncio.timeout(20):
        await cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert not notebook.batches
