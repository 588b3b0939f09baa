"""Batches and long writes, against a scripted server: whole or not at all, their keys, lanes and tokens."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from recalld import commit_tokens
from recalld.client import MemoryClient
from recalld.errors import (
    DeadlineExceeded,
    InvalidField,
    MemoryWriteRefused,
    SourceUnavailable,
)
from recalld.filters import Compare, Field, Op
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory
from recalld.store import (
    WriteBatch,
)
from recalld.v1 import memory_service_pb2
from recalld.wire import encode_write_error

SCOPE = Scope("acme", "support")
CTX = Ctx(SCOPE)
ADA = Compare(Field("user_id"), Op.EQ, "ada")

Pb = memory_service_pb2


async def test_a_batch_goes_whole_in_one_call_with_its_key(peer: Any) -> None:
    peer.info.limits.max_batch_items = 500
    peer.unary = Pb.BatchWriteResponse(
        outcome=Pb.WriteOutcome(accepted=["memory"], ids=["a", "b"], commit_token="t", replayed=True)  # noqa: S106
    )
    items = [MemoryItem(f"fact {number}", "me", id=f"i{number}") for number in range(500)]
    async with RemoteMemory(peer.target, sources=["memory"]) as remote:
        outcome = await remote.commit(WriteBatch(items, "the caller's key"), ctx=Ctx(SCOPE, user_id="ada"))
    assert (list(outcome.accepted), list(outcome.ids), outcome.commit_token, outcome.replayed) == (
        ["memory"],
        ["a", "b"],
        "t",
        True,
    )
    (request,) = peer.requests
    assert [item.id for item in request.items] == [item.id for item in items]
    assert (request.idempotency_key, list(request.sources)) == ("the caller's key", ["memory"])
    assert request.on_behalf_of_user_id == "ada"
    assert {item.attributes.user_id for item in request.items} == {"ada"}
    assert peer.streams == 0


@pytest.mark.parametrize("count", [0, 5])
async def test_a_batch_of_more_items_than_the_server_takes_is_refused_whole(peer: Any, count: int) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.commit(WriteBatch([MemoryItem("x", "me")] * count), ctx=CTX)
    assert caught.value.violations == {"items": f"must hold 1 to 4 items, not {count}"}
    assert (peer.requests, peer.batches) == ([], [])


async def test_a_batch_that_does_not_fit_a_message_is_refused_whole(peer: Any) -> None:
    peer.info.limits.max_message_bytes = 2200
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.commit(WriteBatch([MemoryItem("x" * 900, "me") for _ in range(3)]), ctx=CTX)
    assert list(caught.value.violations) == ["items"]
    assert (peer.requests, peer.batches) == ([], [])


async def test_a_request_that_grpc_finds_too_large_is_told_by_its_field(peer: Any) -> None:
    # The server says that it takes more than its transport does.
    peer.info.limits.max_message_bytes = 2**30
    peer.info.limits.max_batch_items = 500
    peer.info.limits.max_content_bytes = 65_536
    items = [MemoryItem("x" * 60_000, "me") for _ in range(100)]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.commit(WriteBatch(items), ctx=CTX)
    assert list(caught.value.violations) == ["items"]


async def test_a_batch_without_a_key_gets_one_for_its_own_retries(peer: Any) -> None:
    peer.unary = [SourceUnavailable("lost", retry_after=0.01), None]
    async with RemoteMemory(peer.target) as remote:
        outcome = await remote.commit(WriteBatch([MemoryItem("one", "me", id="a")]), ctx=CTX)
    first, second = peer.requests
    assert first.idempotency_key == second.idempotency_key != ""
    assert list(outcome.accepted) == ["memory"]


async def test_the_servers_split_is_told(peer: Any) -> None:
    failed = [
        Pb.SourceFailure(source="notes", error=encode_write_error(SourceUnavailable("away"))),
        Pb.SourceFailure(source="wiki", error=encode_write_error(MemoryWriteRefused(source="wiki", n=2))),
    ]
    peer.unary = Pb.BatchWriteResponse(
        outcome=Pb.WriteOutcome(accepted=["memory"], refused=["files"], failed=failed, ids=["a", "b"])
    )
    async with RemoteMemory(peer.target) as remote:
        outcome = await remote.commit(WriteBatch([MemoryItem("x", "me"), MemoryItem("y", "me")]), ctx=CTX)
    assert (list(outcome.accepted), list(outcome.refused), list(outcome.failed)) == (
        ["memory"],
        ["files"],
        ["notes", "wiki"],
    )
    assert isinstance(outcome.failed["notes"], SourceUnavailable)
    refusal = outcome.failed["wiki"]
    assert isinstance(refusal, MemoryWriteRefused)
    assert (refusal.source, refusal.n) == ("wiki", 2)


async def test_the_error_of_a_single_source_is_raised(peer: Any) -> None:
    peer.unary = MemoryWriteRefused(source="memory", n=1)
    async with RemoteMemory(peer.target, name="far") as remote:
        with pytest.raises(MemoryWriteRefused) as caught:
            await remote.commit(WriteBatch([MemoryItem("one", "me"), MemoryItem("two", "me")]), ctx=CTX)
    assert caught.value.n == 2


async def test_a_server_that_ignores_a_batch_refuses_it_in_the_split(peer: Any, observed: Any) -> None:
    peer.accepts(memory=False)
    peer.unary = Pb.BatchWriteResponse(outcome=Pb.WriteOutcome(refused=["memory"]))
    ctx = Ctx(SCOPE, observe=lambda event, fields: observed.append((event, dict(fields))))
    async with RemoteMemory(peer.target) as remote:
        outcome = await remote.commit(WriteBatch([MemoryItem("one", "me")]), ctx=ctx)
        assert (list(outcome.refused), remote.accepts_writes) == (["memory"], False)
    assert observed == [("memory.write_refused", {"source": "memory", "count": 1})]


async def test_batches_of_a_lane_are_sent_one_after_another(peer: Any) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def answer(request: Any, context: Any) -> Any:
        peer.requests.append(request)
        if len(peer.requests) == 1:
            entered.set()
            await release.wait()
        return Pb.BatchWriteResponse(outcome=peer.outcome(Pb.WriteRequest(items=request.items)).outcome)

    peer.BatchWrite = answer
    await peer.stop()
    await peer.start(peer.port)
    long = [MemoryItem("word " * 100, "me", id=f"f{number}") for number in range(3)]
    async with RemoteMemory(peer.target) as remote:
        batches = [WriteBatch([*long, MemoryItem("1", "me")], lane="x"), WriteBatch([MemoryItem("2", "me")], lane="x")]
        first, second = (asyncio.create_task(remote.commit(batch, ctx=CTX)) for batch in batches)
        await entered.wait()
        # Another lane does not wait; what it sends arrives after what the second would have sent.
        await remote.commit(WriteBatch([MemoryItem("3", "me")], lane="y"), ctx=CTX)
        assert [request.items[-1].content for request in peer.requests] == ["1", "3"]
        late = Ctx(SCOPE, deadline=time.monotonic() + 0.05)
        with pytest.raises(DeadlineExceeded):
            await remote.commit(WriteBatch([MemoryItem("4", "me")], lane="x"), ctx=late)
        release.set()
        await asyncio.gather(first, second)
    assert [request.items[-1].content for request in peer.requests] == ["1", "3", "2"]


async def test_a_repeat_of_a_long_write_meets_the_same_keys_and_ids(peer: Any) -> None:
    items = [MemoryItem(f"fact {number}", "me") for number in range(10)]
    async with RemoteMemory(peer.target) as remote:
        for key in ("k" * 256, "k" * 256, "another"):
            await remote.write(items, ctx=CTX, idempotency_key=key)
    keys = [batch.idempotency_key for batch in peer.batches]
    assert keys[:3] == keys[3:6]
    assert keys[0] == "k" * 256
    assert len(set(keys)) == 6
    assert all(len(key.encode()) <= 256 for key in keys)
    ids = [[item.id for batch in peer.batches[at : at + 3] for item in batch.items] for at in (0, 3, 6)]
    assert ids[0] == ids[1]
    assert len(set(ids[0] + ids[2])) == 20


async def test_the_token_of_a_long_write_covers_every_commit(peer: Any) -> None:
    def committed(**revisions: int) -> Any:
        token = commit_tokens.join(
            {name: commit_tokens.encode(SCOPE, revision) for name, revision in revisions.items()}
        )

        async def answer(request: Any) -> Any:
            ids = [item.id for item in request.items]
            return peer.outcome(request, accepted=list(revisions), ids=ids, commit_token=token)

        return answer

    async def turned_away(request: Any) -> Any:
        return peer.refusal(request, SourceUnavailable("busy"))

    # The second batch is turned away at first, so it is committed after the third.
    peer.acknowledge = [committed(memory=5, notes=1), turned_away, committed(memory=6, notes=3), committed(memory=7)]
    async with MemoryClient(peer.target, timeout=5.0) as client:
        written = await client.write([MemoryItem("fact", "me", id=f"i{n}") for n in range(12)], ctx=CTX)
    assert commit_tokens.split(written.commit_token) == {
        "memory": commit_tokens.encode(SCOPE, 7),
        "notes": commit_tokens.encode(SCOPE, 3),
    }
    assert list(written.ids) == [f"i{n}" for n in range(12)]
    assert len(peer.batches) == 4
