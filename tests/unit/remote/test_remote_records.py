"""RemoteMemory as a store, against a scripted server: searches and records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recalld import commit_tokens
from recalld.client import MemoryClient
from recalld.errors import (
    InvalidField,
    InvalidRequest,
    ItemNotFound,
    RecalldError,
    RevisionMismatch,
    SourceUnavailable,
    StorageCorrupt,
    WrongType,
)
from recalld.filters import Compare, Field, Op
from recalld.item import MemoryAttributes, Visibility
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory
from recalld.store import (
    UNSET,
    Degradation,
    MemoryStore,
    RankFusion,
    RetrievalMode,
    SearchQuery,
)
from recalld.v1 import error_reason_pb2, memory_service_pb2
from recalld.wire import encode_filter, encode_item

SCOPE = Scope("acme", "support")
CTX = Ctx(SCOPE)
ADA = Compare(Field("user_id"), Op.EQ, "ada")

Pb = memory_service_pb2


def test_it_is_a_store_that_keeps_records() -> None:
    store: MemoryStore = RemoteMemory("127.0.0.1:1", name="far")
    assert (store.name, store.accepts_writes, store.keeps_records) == ("far", True, True)


# Searches


async def test_a_search_forwards_everything_that_the_caller_said(peer: Any) -> None:
    query = SearchQuery(
        "words",
        7,
        ADA,
        RetrievalMode.LEXICAL,
        RankFusion(30, 0.5, 2.0),
        candidates=90,
        min_commit_token="token",  # noqa: S106 - a commit token
    )
    async with RemoteMemory(peer.target, sources=["memory"]) as remote:
        await remote.search(query, ctx=Ctx(SCOPE, user_id="ada"))
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
    async with RemoteMemory(peer.target) as remote:
        await remote.search(SearchQuery("words", 7), ctx=CTX)
    (request,) = peer.queries
    assert not request.HasField("fusion")
    assert (request.HasField("where"), request.candidates) == (False, 0)


async def test_an_answer_keeps_explanations_fusion_token_and_origin(peer: Any, recalled: Any, observed: Any) -> None:
    peer.items = recalled
    peer.summary = Pb.QuerySummary(
        commit_token="seen",  # noqa: S106 - a commit token
        fusion=Pb.RankFusion(k=60, lexical_weight=1.0, semantic_weight=0.5),
        degradations=[
            Pb.Degradation(component="memory/semantic", reason=error_reason_pb2.ERROR_REASON_OVERLOADED, message="busy")
        ],
    )
    ctx = Ctx(SCOPE, observe=lambda event, fields: observed.append(event))
    async with RemoteMemory(peer.target, name="far") as remote:
        result = await remote.search(SearchQuery("words", 7), ctx=ctx)
    assert [(hit.item.id, hit.item.source, hit.item.score) for hit in result.hits] == [
        ("a", "far", 0.5),
        ("b", "far", 0.25),
    ]
    assert {hit.item.attributes.origin for hit in result.hits if hit.item.attributes} == {"memory"}
    first = result.hits[0]
    assert (first.lexical_rank, first.lexical_score, first.semantic_rank, first.semantic_score) == (1, 2.5, 0, None)
    assert result.fusion == RankFusion(60, 1.0, 0.5)
    assert result.commit_token == "seen"  # noqa: S105
    assert list(result.degradations) == [Degradation("far/memory/semantic", "OVERLOADED", "busy")]
    assert observed == ["memory.source_degraded"]


async def test_a_search_for_more_than_there_ever_is_is_refused(peer: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.search(SearchQuery("words", 1001), ctx=CTX)
        assert (await remote.search(SearchQuery("words", 0), ctx=CTX)).items == []
    assert list(caught.value.violations) == ["k"]
    assert peer.infos == 0


async def test_a_dead_server_holds_up_a_search_no_longer_than_its_attempts(peer: Any) -> None:
    await peer.stop()
    async with RemoteMemory(peer.target, timeout=60, search_attempts=2) as remote:
        async with asyncio.timeout(20):
            with pytest.raises(SourceUnavailable):
                await remote.search(SearchQuery("words"), ctx=CTX)


async def test_the_state_of_now_is_what_a_search_sees(peer: Any) -> None:
    peer.summary = Pb.QuerySummary(commit_token="now")  # noqa: S106 - a commit token
    async with RemoteMemory(peer.target) as remote:
        assert await remote.commit_token(ctx=CTX) == "now"
    assert (peer.queries[0].query, peer.queries[0].k) == ("", 1)


# Records


async def test_records_are_read_in_the_first_source_used(peer: Any, recalled: Any) -> None:
    encoded = [encode_item(item, "item", {}) for item in recalled]
    peer.unary = [
        Pb.BatchGetResponse(items=encoded[:1], missing_ids=["gone"]),
        Pb.ListResponse(items=encoded, next_page_token="next"),  # noqa: S106 - a page token
        Pb.ListResponse(),
    ]
    async with RemoteMemory(peer.target, name="far", sources=["memory", "notes"]) as remote:
        (item,) = await remote.get(["a", "gone"], ctx=Ctx(SCOPE, user_id="ada"))
        listed = [item async for item in remote.list(ctx=CTX, where=ADA, page_size=20)]
    assert (item.id, item.source, item.attributes and item.attributes.origin) == ("a", "far", "memory")
    assert [(each.id, each.source) for each in listed] == [("a", "far"), ("b", "far")]
    get, first, second = peer.requests
    assert (list(get.ids), get.source, get.on_behalf_of_user_id) == (["a", "gone"], "memory", "ada")
    assert (first.where, first.page_size, first.page_token, first.source) == (encode_filter(ADA), 20, "", "memory")
    assert (second.where, second.page_token) == (encode_filter(ADA), "next")


async def test_an_item_that_does_not_read_is_an_error_of_the_server(peer: Any, recalled: Any) -> None:
    broken = encode_item(recalled[0], "item", {})
    broken.metadata["empty"].SetInParent()
    peer.unary = Pb.BatchGetResponse(items=[broken])
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(RecalldError, match=r"items\[0\]\.metadata\.empty"):
            await remote.get(["a"], ctx=CTX)


async def test_an_update_says_what_is_set_and_what_is_cleared(peer: Any, recalled: Any) -> None:
    peer.unary = Pb.UpdateResponse(item=encode_item(recalled[0], "item", {}), commit_token="t")  # noqa: S106
    async with RemoteMemory(peer.target, name="far") as remote:
        updated = await remote.update(
            "a",
            ctx=Ctx(SCOPE, user_id="ada"),
            content="new",
            metadata_changes={"a.b": 1, "gone": UNSET, "none": None},
            attributes={"user_id": "ada", "importance": None, "visibility": Visibility.ORG},
            if_revision=3,
        )
    assert (updated.source, updated.content) == ("far", "first")
    (request,) = peer.requests
    assert set(request.update_mask.paths) == {
        "content",
        "metadata.a\\.b",
        "metadata.gone",
        "metadata.none",
        "attributes.user_id",
        "attributes.importance",
        "attributes.visibility",
    }
    assert (request.item.id, request.item.content, sorted(request.item.metadata)) == ("a", "new", ["a.b", "none"])
    assert (request.item.attributes.user_id, request.item.attributes.HasField("importance")) == ("ada", False)
    assert (request.if_revision, request.on_behalf_of_user_id) == (3, "ada")


async def test_changes_by_key_are_laid_over_new_metadata(peer: Any, recalled: Any) -> None:
    peer.unary = Pb.UpdateResponse(item=encode_item(recalled[0], "item", {}))
    changes = {"b": UNSET, "c": 3}
    async with RemoteMemory(peer.target) as remote:
        await remote.update("a", ctx=CTX, metadata={"a": 1, "b": 2}, metadata_changes=changes)
        await remote.update("a", ctx=CTX, attributes=MemoryAttributes(namespace="ops", revision=9))
    first, second = peer.requests
    assert (list(first.update_mask.paths), sorted(first.item.metadata)) == (["metadata"], ["a", "c"])
    assert list(second.update_mask.paths) == ["attributes.namespace"]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"content": ""}, "item.content"),
        ({"content": 3}, "item.content"),
        ({"metadata": "x"}, "item.metadata"),
        ({"metadata_changes": ["x"]}, "metadata_changes"),
        ({"metadata_changes": {1: 2}}, "metadata_changes.1"),
        ({"attributes": {"colour": "red"}}, "item.attributes.colour"),
        ({"attributes": {"revision": 3}}, "item.attributes.revision"),
        ({"attributes": {"importance": 2}}, "item.attributes.importance"),
        ({"attributes": 3}, "attributes"),
        ({"content": "x", "if_revision": 0}, "if_revision"),
        ({"content": "x", "if_revision": "3"}, "if_revision"),
    ],
)
async def test_a_wrong_update_is_refused_before_anything_is_sent(
    peer: Any, arguments: dict[str, Any], path: str
) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.update("a", ctx=CTX, **arguments)
    assert list(caught.value.violations) == [path]
    assert (peer.infos, peer.requests) == (0, [])


@pytest.mark.parametrize(("revision", "calls"), [(3, 1), (None, 2)])
async def test_an_update_of_a_certain_revision_is_not_repeated_after_a_lost_call(
    peer: Any, recalled: Any, revision: int | None, calls: int
) -> None:
    answer = Pb.UpdateResponse(item=encode_item(recalled[0], "item", {}))
    peer.unary = [SourceUnavailable("lost", retry_after=0.01), answer]
    async with RemoteMemory(peer.target) as remote:
        try:
            await remote.update("a", ctx=CTX, content="new", if_revision=revision)
            repeated = True
        except SourceUnavailable:
            repeated = False
    assert (repeated, len(peer.requests)) == (revision is None, calls)


async def test_a_delete_reaches_every_source_used_and_its_token_covers_them(peer: Any) -> None:
    made = [
        commit_tokens.join({name: commit_tokens.encode(SCOPE, revision)})
        for name, revision in (("memory", 7), ("notes", 3))
    ]
    peer.unary = [Pb.DeleteResponse(deleted_count=2, commit_token=token) for token in made]
    async with MemoryClient(peer.target, sources=["memory", "notes", "memory"]) as client:
        deleted = await client.delete(["a", "b"], ctx=Ctx(SCOPE, user_id="ada"), dry_run=True)
    assert deleted.count == 4
    assert commit_tokens.split(deleted.commit_token) == {
        "memory": commit_tokens.encode(SCOPE, 7),
        "notes": commit_tokens.encode(SCOPE, 3),
    }
    assert [request.source for request in peer.requests] == ["memory", "notes"]
    assert all(list(request.ids) == ["a", "b"] and request.dry_run for request in peer.requests)
    assert peer.requests[0].on_behalf_of_user_id == "ada"


async def test_a_delete_goes_on_to_the_other_sources_after_a_failure(peer: Any) -> None:
    peer.unary = [InvalidField("no"), StorageCorrupt("unreadable"), Pb.DeleteResponse(deleted_count=1)]
    async with RemoteMemory(peer.target, sources=["memory", "notes"]) as remote:
        with pytest.raises(InvalidField):
            await remote.delete(["a"], ctx=CTX)
        with pytest.raises(StorageCorrupt):
            await remote.delete(["a"], ctx=CTX)
    assert [request.source for request in peer.requests] == ["memory", "memory", "notes"]


async def test_a_delete_by_condition_leaves_the_source_to_the_server(peer: Any) -> None:
    peer.unary = Pb.DeleteResponse(deleted_count=2)
    async with RemoteMemory(peer.target) as remote:
        assert await remote.delete(ctx=CTX, where={"attributes.user_id": "ada"}) == 2
    (request,) = peer.requests
    assert (request.where, request.source, request.dry_run) == (encode_filter(ADA), "", False)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"where": {}}, {"ids": []}, {"ids": "abc"}, {"ids": 3}, {"ids": ["a"], "where": {"x": 1}}, {"where": "x"}],
)
async def test_a_delete_of_nothing_or_of_too_much_is_refused_before_anything_is_sent(
    peer: Any, arguments: dict[str, Any]
) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidRequest):
            await remote.delete(ctx=CTX, **arguments)
    assert (peer.infos, peer.requests) == (0, [])


@pytest.mark.parametrize("ids", [[], "abc", None, [3], [""]])
async def test_ids_that_cannot_be_are_refused_before_anything_is_sent(peer: Any, ids: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField):
            await remote.get(ids, ctx=CTX)
        with pytest.raises(InvalidField):
            await remote.list_page(ctx=CTX, page_size=0)
        with pytest.raises(InvalidField):
            await remote.list_page(ctx=CTX, page_token=3)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="scope"):
            await remote.get(["a"], ctx=None)  # type: ignore[arg-type]
    assert (peer.infos, peer.requests) == (0, [])


@pytest.mark.parametrize(
    "error",
    [
        RevisionMismatch("changed", details={"id": "a"}),
        ItemNotFound("none", details={"id": "a"}),
        InvalidField(violations={"ids": "are too many"}),
    ],
)
async def test_the_servers_error_is_raised_as_what_it_is(peer: Any, error: RecalldError) -> None:
    peer.unary = error
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(type(error)) as caught:
            await remote.get(["a"], ctx=CTX)
    assert (caught.value.message, caught.value.details) == (error.message, error.details)
