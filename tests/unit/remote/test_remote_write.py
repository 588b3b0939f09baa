"""RemoteMemory.write against a scripted server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from recalld.errors import (
    CompositeWriteError,
    DeadlineExceeded,
    IdempotencyKeyReused,
    InternalFailure,
    InvalidField,
    MemoryWriteRefused,
    Overloaded,
    PermissionDenied,
    RecalldError,
    SourceUnavailable,
    StorageCorrupt,
    StreamProtocol,
    WrongType,
)
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory
from recalld.v1 import memory_service_pb2
from recalld.wire import encode_write_error

CTX = Ctx(Scope("acme", "support"))

Request = memory_service_pb2.WriteRequest
Response = memory_service_pb2.WriteResponse


def _items(count: int) -> list[MemoryItem]:
    return [MemoryItem(f"fact {number}", "me", id=f"i{number}") for number in range(count)]


def _contents(batches: list[Request]) -> list[list[str]]:
    return [[item.content for item in batch.items] for batch in batches]


def _in_order(batches: list[Request]) -> list[str]:
    return [item.content for batch in batches for item in batch.items]


def _failing(peer: Any, error: RecalldError) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return peer.refusal(request, error)

    return answer


def _deciding(peer: Any, **outcome: Any) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return peer.outcome(request, **outcome)

    return answer


def _failure(source: str, error: RecalldError) -> memory_service_pb2.SourceFailure:
    return memory_service_pb2.SourceFailure(source=source, error=encode_write_error(error))


async def test_a_large_write_goes_in_batches_over_one_stream(peer: Any) -> None:
    async with RemoteMemory(peer.target, sources=["memory"]) as remote:
        await remote.write((item for item in _items(10)), ctx=CTX)
    assert [len(batch.items) for batch in peer.batches] == [4, 4, 2]
    assert _in_order(peer.batches) == [item.content for item in _items(10)]
    assert [batch.sequence for batch in peer.batches] == [1, 2, 3]
    assert peer.streams == 1
    assert len({batch.idempotency_key for batch in peer.batches}) == 3
    assert all(batch.scope.org_id == "acme" and list(batch.sources) == ["memory"] for batch in peer.batches)


async def test_two_writes_never_share_an_idempotency_key(peer: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        for _ in range(2):
            await remote.write(_items(1), ctx=CTX)
    assert len({batch.idempotency_key for batch in peer.batches}) == 2


async def test_batches_keep_the_byte_limit(peer: Any) -> None:
    peer.info.limits.max_message_bytes = 2200
    async with RemoteMemory(peer.target) as remote:
        await remote.write([MemoryItem("x" * 900, "me") for _ in range(5)], ctx=CTX)
    assert [len(batch.items) for batch in peer.batches] == [2, 2, 1]
    assert all(batch.ByteSize() <= 2200 for batch in peer.batches)


async def test_no_more_batches_are_sent_than_the_window_holds(peer: Any) -> None:
    release = asyncio.Event()

    async def first(request: Request) -> Response:
        await release.wait()
        return peer.outcome(request)

    peer.acknowledge = [first]
    async with RemoteMemory(peer.target) as remote:
        task = asyncio.create_task(remote.write(_items(40), ctx=CTX))
        await peer.received(2)
        # A third batch would have come before this query, over the same connection.
        await remote.query("words", k=1, ctx=CTX)
        assert len(peer.batches) == 2
        release.set()
        await task
    assert [batch.sequence for batch in peer.batches] == list(range(1, 11))


@pytest.mark.parametrize("error", [PermissionDenied("not yours"), StreamProtocol("a gap in sequence")])
async def test_a_stream_that_the_server_aborts_while_we_send_raises_the_servers_error(
    peer: Any, error: RecalldError
) -> None:
    # More than flow control lets through unread, so that the send is still going on when the call ends.
    peer.info.limits.max_content_bytes = 65_536
    peer.abort_write = error
    items = [MemoryItem("x" * 60_000, "me") for _ in range(30)]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(type(error), match=error.message):
            await remote.write(items, ctx=CTX)


async def test_ids_and_what_a_caller_may_set_are_kept_and_output_only_fields_are_not_sent(peer: Any) -> None:
    time = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    attributes = MemoryAttributes(
        user_id="ada", event_time=time, status=MemoryStatus.ARCHIVED, revision=9, origin="elsewhere"
    )
    item = MemoryItem("fact", "another source", 0.5, {"n": 1}, id="keep", attributes=attributes)
    async with RemoteMemory(peer.target) as remote:
        await remote.write([item], ctx=CTX)
    (sent,) = peer.batches[0].items
    assert (sent.id, sent.content, sent.metadata["n"].integer_value) == ("keep", "fact", 1)
    assert (sent.attributes.user_id, sent.attributes.event_time.nanos) == ("ada", 123_456_000)
    assert (sent.source, sent.HasField("score"), sent.attributes.revision, sent.attributes.origin) == ("", False, 0, "")


async def test_an_empty_write_sends_nothing(peer: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        await remote.write([], ctx=CTX)
    assert (peer.infos, peer.streams) == (0, 0)


@pytest.mark.parametrize("items", ["hello", b"hello", MemoryItem("hello", "me")])
async def test_what_is_no_list_of_items_is_one_error(peer: Any, items: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(WrongType, match=f"not {type(items).__name__}$") as caught:
            await remote.write(items, ctx=CTX)
    assert not caught.value.violations
    assert (peer.infos, peer.streams) == (0, 0)


async def test_one_bad_item_keeps_every_item_from_being_sent(peer: Any) -> None:
    items = [*_items(9), MemoryItem("bad", "me", metadata={"tags": [1, math.nan]})]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.write(items, ctx=CTX)
    assert list(caught.value.violations) == ["items[9].metadata.tags[1]"]
    assert (peer.infos, peer.batches) == (0, [])


async def test_what_any_server_would_refuse_is_refused_before_anything_is_sent(peer: Any) -> None:
    items = [
        *_items(200),
        MemoryItem("", "me"),
        MemoryItem("x", "me", id="i" * 257),
        MemoryItem("again", "me", id="i1"),
        MemoryItem("x", "me", attributes=MemoryAttributes(namespace="n" * 257, importance=1.5)),
    ]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.write(items, ctx=CTX)
    assert set(caught.value.violations) == {
        "items[200].content",
        "items[201].id",
        "items[202].id",
        "items[203].attributes.namespace",
        "items[203].attributes.importance",
    }
    assert "items[1].id" in caught.value.violations["items[202].id"]
    assert (peer.infos, peer.batches) == (0, [])


async def test_what_this_server_has_no_room_for_is_refused_before_anything_is_sent(peer: Any) -> None:
    peer.info.limits.max_message_bytes = 3000
    items = [*_items(5), MemoryItem("é" * 501, "me"), MemoryItem("x", "me", metadata={"big": "x" * 3000})]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.write(items, ctx=CTX)
    assert set(caught.value.violations) == {"items[5].content", "items[6]"}
    assert peer.batches == []


async def test_after_a_lost_connection_only_unacknowledged_batches_are_sent_again_with_their_keys(
    peer: Any, relay: Any
) -> None:
    peer.info.limits.max_unacked_batches = 1

    async def lose(_request: Request) -> None:
        relay.cut()

    accept = _deciding(peer, accepted=["memory"])
    peer.acknowledge = [accept, lose]
    async with RemoteMemory(relay.target) as remote:
        await remote.write(_items(10), ctx=CTX)
    first, lost, again, last = peer.batches
    assert (lost.idempotency_key, _contents([lost])) == (again.idempotency_key, _contents([again]))
    assert [batch.sequence for batch in (first, lost, again, last)] == [1, 2, 1, 2]
    assert _in_order([first, again, last]) == [item.content for item in _items(10)]


async def test_a_stream_that_ends_early_is_taken_up_again(peer: Any) -> None:
    async def hang_up(_request: Request) -> None:
        return None

    peer.acknowledge = [_deciding(peer, accepted=["memory"]), hang_up]
    async with RemoteMemory(peer.target) as remote:
        await remote.write(_items(10), ctx=CTX)
    assert peer.streams == 2
    assert len({batch.idempotency_key for batch in peer.batches}) == 3


async def test_a_batch_that_is_turned_away_for_now_is_sent_again_with_its_key(peer: Any) -> None:
    peer.acknowledge = [_failing(peer, Overloaded("busy"))]
    async with RemoteMemory(peer.target) as remote:
        await remote.write(_items(6), ctx=CTX)
    first, second, again = peer.batches
    assert again.idempotency_key == first.idempotency_key != second.idempotency_key
    assert _contents([again]) == _contents([first])


async def test_a_partial_commit_raises_the_servers_own_split(peer: Any) -> None:
    away = SourceUnavailable("notes cannot be reached", details={"source": "notes"})
    peer.acknowledge = [
        _deciding(peer, accepted=["memory"], refused=["files"], failed=[_failure("notes", away)], ids=["i0"])
    ]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(CompositeWriteError) as caught:
            await remote.write(_items(1), ctx=CTX)
    assert (caught.value.accepted, caught.value.refused) == (["memory"], ["files"])
    assert list(caught.value.failed) == ["notes"]
    failure = caught.value.failed["notes"]
    assert isinstance(failure, SourceUnavailable)
    assert failure.message == away.message


async def test_a_source_that_failed_in_one_batch_has_failed_and_the_others_get_every_batch(peer: Any) -> None:
    refusal = MemoryWriteRefused(source="notes", n=1)
    peer.acknowledge = [
        _deciding(peer, accepted=["memory", "notes"]),
        _deciding(peer, accepted=["memory"], failed=[_failure("notes", refusal)]),
        _deciding(peer, accepted=["memory", "notes"]),
    ]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(CompositeWriteError) as caught:
            await remote.write(_items(10), ctx=CTX)
    assert len(peer.batches) == 3
    assert caught.value.accepted == ["memory"]
    failure = caught.value.failed["notes"]
    assert isinstance(failure, MemoryWriteRefused)
    assert failure.n == 10


async def test_a_refused_batch_raises_its_error_and_says_what_is_stored(peer: Any) -> None:
    peer.info.limits.max_unacked_batches = 1
    wrong = InvalidField(violations={"items[1].metadata": "is too large", "items[3].id": "repeats items[2].id"})
    peer.acknowledge = [_deciding(peer, accepted=["memory"]), _failing(peer, wrong)]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.write(_items(10), ctx=CTX)
    assert caught.value.violations == {
        "items[5].metadata": "is too large",
        "items[7].id": "repeats items[6].id",
    }
    assert "items[5].metadata" in str(caught.value)
    assert len(peer.batches) == 2
    assert caught.value.__notes__ == [
        "4 of 10 items were acknowledged before; not acknowledged: items[4:8], items[8:10]"
    ]


@pytest.mark.parametrize(
    "error",
    [
        IdempotencyKeyReused("used"),
        StorageCorrupt("unreadable"),
        InternalFailure("bug"),
        DeadlineExceeded("the model took too long"),
    ],
)
async def test_an_error_of_a_batch_is_raised_as_what_it_is(peer: Any, error: RecalldError) -> None:
    peer.acknowledge = [_failing(peer, error)]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(type(error), match=error.message):
            await remote.write(_items(1), ctx=CTX)
    assert len(peer.batches) == 1


async def test_a_server_that_is_read_only_refuses_with_the_number_of_items(peer: Any) -> None:
    peer.acknowledge = [_failing(peer, MemoryWriteRefused(source="memory", n=1))]
    async with RemoteMemory(peer.target, name="far") as remote:
        with pytest.raises(MemoryWriteRefused) as caught:
            await remote.write(_items(3), ctx=CTX)
    assert (caught.value.source, caught.value.n) == ("far", 3)


async def test_a_server_that_ignores_writes_shows_in_accepts_writes_and_is_observed(peer: Any, observed: Any) -> None:
    peer.accepts(memory=False)
    peer.acknowledge = [_deciding(peer, refused=["memory"])]
    ctx = Ctx(CTX.scope, observe=lambda event, fields: observed.append((event, dict(fields))))
    async with RemoteMemory(peer.target) as remote:
        assert remote.accepts_writes
        await remote.write(_items(3), ctx=ctx)
        assert not remote.accepts_writes
    assert observed == [("memory.write_refused", {"source": "memory", "count": 3})]


async def test_a_write_that_lands_nowhere_although_the_server_takes_writes_is_an_error(peer: Any) -> None:
    peer.acknowledge = [_deciding(peer, refused=["memory"])]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(MemoryWriteRefused):
            await remote.write(_items(3), ctx=CTX)


async def test_accepts_writes_mirrors_the_selected_sources(peer: Any) -> None:
    peer.accepts(memory=True, files=False)
    for sources, accepts in (((), True), (("memory",), True), (("files",), False)):
        async with RemoteMemory(peer.target, sources=sources) as remote:
            await remote.query("words", k=1, ctx=CTX)
            assert remote.accepts_writes is accepts


async def test_a_write_that_makes_no_progress_runs_into_the_timeout(peer: Any) -> None:
    async def hang(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    peer.acknowledge = [hang]
    async with RemoteMemory(peer.target, timeout=0.3) as remote:
        with pytest.raises(DeadlineExceeded):
            await remote.write(_items(1), ctx=CTX)
    await asyncio.wait_for(peer.ended.wait(), 5)


async def test_cancelling_the_caller_cancels_the_stream(peer: Any) -> None:
    began = asyncio.Event()

    async def hang(_request: Request) -> Response:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    peer.acknowledge = [hang]
    async with RemoteMemory(peer.target) as remote:
        task = asyncio.create_task(remote.write(_items(40), ctx=CTX))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(peer.ended.wait(), 5)


async def test_a_server_that_dies_for_good_is_source_unavailable_with_what_was_stored(peer: Any, relay: Any) -> None:
    peer.info.limits.max_unacked_batches = 1

    async def die(_request: Request) -> None:
        await relay.stop()

    peer.acknowledge = [_deciding(peer, accepted=["memory"]), die]
    async with RemoteMemory(relay.target, timeout=0.5) as remote:
        with pytest.raises(SourceUnavailable) as caught:
            await remote.write(_items(10), ctx=CTX)
    assert caught.value.__notes__[0].startswith("4 of 10 items were acknowledged")


async def test_an_acknowledgement_out_of_order_breaks_the_protocol(peer: Any) -> None:
    async def wrong(request: Request) -> Response:
        response = peer.outcome(request)
        response.sequence = 7
        return response

    peer.acknowledge = [wrong]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(StreamProtocol):
            await remote.write(_items(1), ctx=CTX)
