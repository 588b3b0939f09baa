"""RemoteSource, the server's adapter for another server, against a scripted one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recalld.errors import (
    CompositeWriteError,
    DeadlineExceeded,
    InvalidField,
    MemoryWriteRefused,
    RecalldError,
    RevisionMismatch,
    SourceUnavailable,
)
from recalld.filters import Compare, Field, Op
from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import Scope
from recalld.v1 import error_reason_pb2, memory_service_pb2
from recalld.wire import encode_filter, encode_item, encode_write_error
from recalld_server.adapters.remote.source import RemoteSource
from recalld_server.application import tokens
from recalld_server.ports import Batch, Degradation, Deleted, Fusion, FusionSpec, Mode, Page, QuerySpec, Records, Source

SCOPE = Scope("acme", "support")
ADA = Compare(Field("user_id"), Op.EQ, "ada")

Pb = memory_service_pb2


def test_it_is_a_source_that_holds_records() -> None:
    source: Source = RemoteSource("far", "127.0.0.1:1")
    records: Records = RemoteSource("far", "127.0.0.1:1")
    assert (source.name, source.kind, source.accepts_writes) == ("far", "remote", True)
    assert records is not None


async def test_a_search_forwards_everything_that_the_caller_said(peer: Any) -> None:
    source = RemoteSource("far", peer.target, sources=["memory"])
    spec = QuerySpec(
        "words",
        7,
        ADA,
        Mode.LEXICAL,
        FusionSpec(30, 0.5, 2.0),
        candidates=90,
        min_commit_token="token",  # noqa: S106 - a commit token
        on_behalf_of="ada",
        timeout=5.0,
    )
    await source.search(SCOPE, spec)
    await source.close()
    (request,) = peer.queries
    assert request == Pb.QueryRequest(
        scope={"org_id": "acme", "domain_id": "support"},
        query="words",
        k=7,
        where=encode_filter(ADA),
        sources=["memory"],
        mode=Pb.RETRIEVAL_MODE_LEXICAL,
        fusion=Pb.RankFusion(k=30, lexical_weight=0.5, semantic_weight=2.0),
        candidates=90,
        explain=True,
        min_commit_token="token",  # noqa: S106
        on_behalf_of_user_id="ada",
    )


async def test_what_the_caller_left_to_the_server_stays_unset(peer: Any) -> None:
    source = RemoteSource("far", peer.target)
    await source.search(SCOPE, QuerySpec("words", 7))
    await source.close()
    (request,) = peer.queries
    assert not request.fusion.HasField("lexical_weight")
    assert (request.HasField("where"), request.fusion.k, request.candidates) == (False, 0, 0)


async def test_an_answer_keeps_explanations_fusion_token_and_origin(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    peer.summary = Pb.QuerySummary(
        commit_token="seen",  # noqa: S106 - a commit token
        fusion=Pb.RankFusion(k=60, lexical_weight=1.0, semantic_weight=0.5),
        degradations=[
            Pb.Degradation(component="memory/semantic", reason=error_reason_pb2.ERROR_REASON_OVERLOADED, message="busy")
        ],
    )
    source = RemoteSource("far", peer.target)
    ranked = await source.search(SCOPE, QuerySpec("words", 7))
    await source.close()
    assert [(hit.item.id, hit.item.source, hit.item.score) for hit in ranked.hits] == [
        ("a", "far", 0.5),
        ("b", "far", 0.25),
    ]
    assert {hit.item.attributes.origin for hit in ranked.hits if hit.item.attributes} == {"memory"}
    first = ranked.hits[0]
    assert (first.lexical_rank, first.lexical_score, first.semantic_rank, first.semantic_score) == (1, 2.5, 0, None)
    assert ranked.fusion == Fusion(60, 1.0, 0.5)
    assert ranked.commit_token == "seen"  # noqa: S105
    assert list(ranked.degradations) == [Degradation("far/memory/semantic", "OVERLOADED", "busy")]


async def test_a_stream_without_a_summary_is_an_incomplete_answer(peer: Any, recalled: Any) -> None:
    peer.items, peer.summary = recalled, None
    source = RemoteSource("far", peer.target)
    with pytest.raises(SourceUnavailable, match=r"far: .*incomplete"):
        await source.search(SCOPE, QuerySpec("words", 7))
    await source.close()


async def test_the_callers_deadline_bounds_a_search(peer: Any) -> None:
    async def hang(_context: Any) -> None:
        await asyncio.Event().wait()

    peer.query = [hang]
    source = RemoteSource("far", peer.target, timeout=60)
    with pytest.raises(DeadlineExceeded):
        await source.search(SCOPE, QuerySpec("words", 7, timeout=0.3))
    await source.close()


async def test_a_write_forwards_items_and_idempotency_key(peer: Any) -> None:
    source = RemoteSource("far", peer.target, sources=["memory"])
    outcome = {"accepted": ["memory"], "ids": ["a", "b"], "commit_token": "t", "replayed": True}

    async def accept(request: Any) -> Any:
        return peer.outcome(request, **outcome)

    peer.acknowledge = [accept]
    items = [MemoryItem("one", "", id="a"), MemoryItem("two", "", id="b")]
    committed = await source.write(SCOPE, Batch(items, "the caller's key"))
    await source.close()
    assert (list(committed.ids), committed.commit_token, committed.replayed) == (["a", "b"], "t", True)
    (batch,) = peer.batches
    assert (batch.idempotency_key, list(batch.sources)) == ("the caller's key", ["memory"])
    assert [item.id for item in batch.items] == ["a", "b"]


async def test_a_batch_that_is_too_large_upstream_is_split_under_keys_that_a_retry_meets_again(peer: Any) -> None:
    source = RemoteSource("far", peer.target)
    items = [MemoryItem(f"fact {number}", "", id=f"i{number}") for number in range(10)]
    for _ in range(2):
        committed = await source.write(SCOPE, Batch(items, "k" * 256))
        assert list(committed.ids) == [item.id for item in items]
    await source.close()
    keys = [batch.idempotency_key for batch in peer.batches]
    assert keys[:3] == keys[3:]
    assert keys[0] == "k" * 256
    assert len(set(keys)) == 3
    assert all(len(key.encode()) <= 256 for key in keys)


async def test_a_write_without_a_key_gets_one_for_its_own_retries(peer: Any, relay: Any) -> None:
    async def lose(_request: Any) -> None:
        relay.cut()

    peer.acknowledge = [lose]
    source = RemoteSource("far", relay.target)
    await source.write(SCOPE, Batch([MemoryItem("one", "", id="a")]))
    await source.close()
    first, second = peer.batches
    assert first.idempotency_key == second.idempotency_key != ""


async def test_a_failed_upstream_source_raises_the_upstream_split(peer: Any) -> None:
    failure = Pb.SourceFailure(source="notes", error=encode_write_error(SourceUnavailable("away")))

    async def partly(request: Any) -> Any:
        return peer.outcome(request, accepted=["memory"], failed=[failure])

    peer.acknowledge = [partly]
    source = RemoteSource("far", peer.target)
    with pytest.raises(CompositeWriteError) as caught:
        await source.write(SCOPE, Batch([MemoryItem("one", "", id="a")]))
    await source.close()
    assert caught.value.accepted == ["memory"]
    assert isinstance(caught.value.failed["notes"], SourceUnavailable)


async def test_an_upstream_that_ignores_writes_stores_nothing_and_says_so(peer: Any) -> None:
    peer.accepts(memory=False)

    async def ignore(request: Any) -> Any:
        return peer.outcome(request, refused=["memory"])

    peer.acknowledge = [ignore]
    source = RemoteSource("far", peer.target)
    assert source.accepts_writes
    committed = await source.write(SCOPE, Batch([MemoryItem("one", "", id="a")]))
    assert (list(committed.ids), source.accepts_writes) == ([], False)
    await source.close()


async def test_an_upstream_that_refuses_raises(peer: Any) -> None:
    async def refuse(request: Any) -> Any:
        return peer.refusal(request, MemoryWriteRefused(source="memory", n=1))

    peer.acknowledge = [refuse]
    source = RemoteSource("far", peer.target)
    with pytest.raises(MemoryWriteRefused):
        await source.write(SCOPE, Batch([MemoryItem("one", "", id="a")]))
    await source.close()


async def test_records_are_read_in_the_first_source_used(peer: Any, recalled: Any) -> None:
    encoded = [encode_item(item, "item", {}) for item in recalled]
    peer.unary = [
        Pb.BatchGetResponse(items=encoded[:1]),
        Pb.ListResponse(items=encoded, next_page_token="next"),  # noqa: S106 - a page token
        Pb.ListResponse(),
    ]
    source = RemoteSource("far", peer.target, sources=["memory", "notes"])
    (item,) = await source.get(SCOPE, ["a", "gone"])
    page = await source.list(SCOPE, ADA, limit=20, cursor=None)
    last = await source.list(SCOPE, None, limit=20, cursor=page.next_cursor)
    await source.close()
    assert (item.id, item.source, item.attributes and item.attributes.origin) == ("a", "far", "memory")
    assert ([each.id for each in page.items], page.next_cursor, last) == (["a", "b"], "next", Page([]))
    get, first, second = peer.requests
    assert (list(get.ids), get.source) == (["a", "gone"], "memory")
    assert (first.where, first.page_size, first.page_token, first.source) == (encode_filter(ADA), 20, "", "memory")
    assert (second.HasField("where"), second.page_token) == (False, "next")


async def test_an_update_forwards_item_mask_and_revision(peer: Any, recalled: Any) -> None:
    peer.unary = Pb.UpdateResponse(item=encode_item(recalled[0], "item", {}), commit_token="t")  # noqa: S106
    source = RemoteSource("far", peer.target)
    item = MemoryItem("new", "", metadata={"a.b": 1}, id="a", attributes=MemoryAttributes(user_id="ada"))
    mask = [("content",), ("metadata", "a.b"), ("attributes", "user_id")]
    updated, token = await source.update(SCOPE, item, mask, if_revision=3)
    await source.close()
    assert (updated.source, updated.content, token) == ("far", "first", "t")
    (request,) = peer.requests
    assert list(request.update_mask.paths) == ["content", "metadata.a\\.b", "attributes.user_id"]
    assert (request.item.id, request.item.attributes.user_id, request.if_revision) == ("a", "ada", 3)


@pytest.mark.parametrize(("revision", "calls"), [(3, 1), (None, 2)])
async def test_an_update_of_a_certain_revision_is_not_repeated_after_a_lost_call(
    peer: Any, recalled: Any, revision: int | None, calls: int
) -> None:
    answer = Pb.UpdateResponse(item=encode_item(recalled[0], "item", {}))
    peer.unary = [SourceUnavailable("lost", retry_after=0.01), answer]
    source = RemoteSource("far", peer.target)
    try:
        await source.update(SCOPE, MemoryItem("new", "", id="a"), [("content",)], if_revision=revision)
        repeated = True
    except SourceUnavailable:
        repeated = False
    await source.close()
    assert (repeated, len(peer.requests)) == (revision is None, calls)


async def test_the_token_of_a_delete_covers_every_source_used(peer: Any) -> None:
    made = [tokens.join({name: tokens.encode(SCOPE, revision)}) for name, revision in (("memory", 7), ("notes", 3))]
    peer.unary = [Pb.DeleteResponse(deleted_count=1, commit_token=token) for token in made]
    source = RemoteSource("far", peer.target, sources=["memory", "notes", "memory"])
    deleted = await source.delete(SCOPE, ["a"], dry_run=False)
    await source.close()
    assert tokens.split(deleted.commit_token) == {
        "memory": tokens.encode(SCOPE, 7),
        "notes": tokens.encode(SCOPE, 3),
    }
    assert deleted.count == 2


async def test_the_token_of_a_write_in_batches_covers_every_commit(peer: Any) -> None:
    def committed(**revisions: int) -> Any:
        token = tokens.join({name: tokens.encode(SCOPE, revision) for name, revision in revisions.items()})

        async def answer(request: Any) -> Any:
            ids = [item.id for item in request.items]
            return peer.outcome(request, accepted=list(revisions), ids=ids, commit_token=token)

        return answer

    async def turned_away(request: Any) -> Any:
        return peer.refusal(request, SourceUnavailable("busy"))

    # The second batch is turned away at first, so it is committed after the third.
    peer.acknowledge = [committed(memory=5, notes=1), turned_away, committed(memory=6, notes=3), committed(memory=7)]
    source = RemoteSource("far", peer.target, timeout=5.0)
    written = await source.write(SCOPE, Batch([MemoryItem("fact", "me", id=f"i{n}") for n in range(12)], "key"))
    await source.close()
    assert tokens.split(written.commit_token) == {
        "memory": tokens.encode(SCOPE, 7),
        "notes": tokens.encode(SCOPE, 3),
    }
    assert len(peer.batches) == 4


async def test_a_delete_reaches_every_source_used(peer: Any) -> None:
    peer.unary = Pb.DeleteResponse(deleted_count=2, commit_token="t")  # noqa: S106 - a commit token
    source = RemoteSource("far", peer.target, sources=["memory", "notes"])
    assert await source.delete(SCOPE, ["a", "b"], dry_run=True) == Deleted(4, "t")
    assert [request.source for request in peer.requests] == ["memory", "notes"]
    assert all(list(request.ids) == ["a", "b"] and request.dry_run for request in peer.requests)
    await source.close()
    everywhere = RemoteSource("far", peer.target)
    assert await everywhere.delete(SCOPE, ADA, dry_run=False) == Deleted(2, "t")
    await everywhere.close()
    assert peer.requests[-1].where == encode_filter(ADA)
    assert peer.requests[-1].source == ""


@pytest.mark.parametrize(
    "error", [RevisionMismatch("changed", details={"id": "a"}), InvalidField(violations={"ids": "are too many"})]
)
async def test_the_upstreams_error_is_raised_as_what_it_is(peer: Any, error: RecalldError) -> None:
    peer.unary = error
    source = RemoteSource("far", peer.target)
    with pytest.raises(type(error)) as caught:
        await source.get(SCOPE, ["a"])
    await source.close()
    assert (caught.value.message, caught.value.details) == (error.message, error.details)
