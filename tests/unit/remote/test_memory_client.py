"""MemoryClient: what goes with every call, and what a server says of itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from recalld import MemoryClient
from recalld.client import EmbeddingModelInfo, HealthStatus, QueryDefaults, SourceInfo
from recalld.errors import (
    CompositeWriteError,
    DeadlineExceeded,
    InvalidField,
    ItemNotFound,
    Overloaded,
    SourceUnavailable,
)
from recalld.item import MemoryItem
from recalld.limits import LIMITS
from recalld.scope import Ctx, Scope
from recalld.store import RankFusion, SearchQuery
from recalld.v1 import admin_service_pb2, memory_service_pb2
from recalld.wire import encode_item, encode_write_error

Pb = memory_service_pb2
SCOPE = Scope("acme", "support")
CTX = Ctx(SCOPE)
ITEMS = [MemoryItem("fact", "me")]

Call = Callable[..., Awaitable[Any]]

#: Every call of a tenant, by name.
CALLS: dict[str, Callable[[MemoryClient], Call]] = {
    "search": lambda client: lambda **more: client.search(SearchQuery("words"), **more),
    "write": lambda client: lambda **more: client.write(ITEMS, **more),
    "batch_write": lambda client: lambda **more: client.batch_write(ITEMS, **more),
    "get": lambda client: lambda **more: client.get(["a"], **more),
    "list_page": lambda client: client.list_page,
    "update": lambda client: lambda **more: client.update("a", content="x", **more),
    "delete": lambda client: lambda **more: client.delete(["a"], **more),
}


@pytest.fixture
def answering(peer: Any, recalled: Any) -> Any:
    """A peer that has an answer for every call."""
    item = encode_item(recalled[0], "item", {})
    answers = {
        Pb.BatchWriteRequest: None,
        Pb.BatchGetRequest: Pb.BatchGetResponse(items=[item], missing_ids=["gone"]),
        Pb.ListRequest: Pb.ListResponse(items=[item]),
        Pb.UpdateRequest: Pb.UpdateResponse(item=item, commit_token="t"),  # noqa: S106 - a commit token
        Pb.DeleteRequest: Pb.DeleteResponse(deleted_count=1, commit_token="t"),  # noqa: S106
    }
    peer.answers = answers
    return peer


@pytest.fixture
async def client(peer: Any) -> AsyncIterator[MemoryClient]:
    async with MemoryClient(peer.target, token="s3cret", metadata=[("x-team", "red")]) as client:  # noqa: S106 - made up
        yield client


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_carries_credentials_and_what_hops_carry_on(
    answering: Any, client: MemoryClient, name: str
) -> None:
    ctx = Ctx(SCOPE, user_id="ada", request_id="r-1", trace="00-ab-cd-01", via=("one", "two"), hops=2)
    await CALLS[name](client)(ctx=ctx)
    sent = answering.metadata
    assert sent["authorization"] == "Bearer s3cret"
    assert (sent["x-team"], sent["x-request-id"], sent["traceparent"]) == ("red", "r-1", "00-ab-cd-01")
    assert sent["x-recalld-via"] == "one,two"
    (request,) = [*answering.requests, *answering.queries, *answering.batches]
    assert (request.on_behalf_of_user_id, request.scope.org_id) == ("ada", "acme")
    await CALLS[name](client)(ctx=CTX, call_metadata=[("authorization", "Basic x"), ("trace-bin", b"\x00")])
    sent = answering.metadata
    assert (sent["authorization"], sent["trace-bin"], sent["x-team"]) == ("Basic x", b"\x00", "red")
    assert not {"x-request-id", "traceparent", "x-recalld-via"} & set(sent)


@pytest.mark.parametrize("name", CALLS)
async def test_the_deadline_of_the_context_bounds_every_call(answering: Any, client: MemoryClient, name: str) -> None:
    call = CALLS[name](client)
    await call(ctx=Ctx(SCOPE, deadline=time.monotonic() + 3))
    assert 0 < answering.remaining < 4  # gRPC rounds up
    # Over before it began: nothing is sent.
    before = (len(answering.requests), len(answering.queries), answering.streams, answering.infos)
    with pytest.raises(DeadlineExceeded):
        await call(ctx=Ctx(SCOPE, deadline=time.monotonic() - 1))
    assert (len(answering.requests), len(answering.queries), answering.streams, answering.infos) == before


@pytest.mark.parametrize("name", CALLS)
async def test_the_deadline_bounds_the_pauses_between_attempts(answering: Any, name: str) -> None:
    async with MemoryClient(answering.target, timeout=60) as client:
        await client.search(SearchQuery("words"), ctx=CTX)
        await answering.stop()
        async with asyncio.timeout(20):
            with pytest.raises((SourceUnavailable, DeadlineExceeded)):
                await CALLS[name](client)(ctx=Ctx(SCOPE, deadline=time.monotonic() + 0.4))


async def test_a_deadline_ends_a_long_write_that_makes_progress(peer: Any) -> None:
    async def slow(request: Any) -> Any:
        await asyncio.sleep(0.1)
        return peer.outcome(request)

    peer.acknowledge = [slow] * 100
    items = [MemoryItem(f"fact {number}", "me") for number in range(400)]
    async with MemoryClient(peer.target, timeout=60) as client:
        async with asyncio.timeout(20):
            with pytest.raises(DeadlineExceeded) as caught:
                await client.write(items, ctx=Ctx(SCOPE, deadline=time.monotonic() + 0.5))
    assert "of 400 items were acknowledged before" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("fields", "path"),
    [({"request_id": "new\nline"}, "request_id"), ({"trace": "schlüssel"}, "trace"), ({"via": ("a\tb",)}, "via")],
)
async def test_what_no_header_can_carry_is_named(client: MemoryClient, fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidField) as caught:
        await client.get(["a"], ctx=Ctx(SCOPE, **fields))
    assert list(caught.value.violations) == [path]


@pytest.mark.parametrize(
    "metadata", ["x", [("x",)], [("X-Upper", "y")], [("x", "new\nline")], [("x", b"y")], [("x-bin", "y")], [("", "y")]]
)
async def test_metadata_that_cannot_be_is_a_value_error(client: MemoryClient, metadata: Any) -> None:
    with pytest.raises(ValueError, match="metadata"):
        MemoryClient("127.0.0.1:1", metadata=metadata)
    with pytest.raises(ValueError, match="call_metadata"):
        await client.get(["a"], ctx=CTX, call_metadata=metadata)


async def test_a_call_may_name_other_sources(answering: Any) -> None:
    async with MemoryClient(answering.target, sources=["memory"]) as client:
        await client.search(SearchQuery("words"), ctx=CTX, sources=["notes"])
        await client.write(ITEMS, ctx=CTX, sources=["notes"])
        await client.batch_write(ITEMS, ctx=CTX, sources=[])
        await client.get(["a"], ctx=CTX, source="notes")
        await client.list_page(ctx=CTX, source="")
        await client.delete(["a"], ctx=CTX, sources=["one", "two"])
    assert [list(answering.queries[0].sources), list(answering.batches[0].sources)] == [["notes"], ["notes"]]
    batch, get, listed, *deletes = answering.requests
    assert (list(batch.sources), get.source, listed.source) == ([], "notes", "")
    assert [request.source for request in deletes] == ["one", "two"]


async def test_answers_are_told_with_their_tokens(answering: Any, client: MemoryClient) -> None:
    found = await client.get(["a", "gone"], ctx=CTX)
    assert ([item.source for item in found.items], list(found.missing_ids)) == (["memory"], ["gone"])
    updated = await client.update("a", ctx=CTX, content="x")
    assert (updated.item.content, updated.commit_token) == ("first", "t")
    deleted = await client.delete(["a"], ctx=CTX)
    assert (deleted.count, deleted.commit_token) == (1, "t")


async def test_a_write_tells_its_split_and_raises_none_of_it(peer: Any, client: MemoryClient) -> None:
    failed = [Pb.SourceFailure(source="notes", error=encode_write_error(SourceUnavailable("away")))]

    async def partly(request: Any) -> Any:
        return peer.outcome(request, accepted=["memory"], failed=failed, ids=["x"])

    peer.acknowledge = [partly]
    outcome = await client.write(ITEMS, ctx=CTX)
    assert (list(outcome.accepted), list(outcome.failed)) == (["memory"], ["notes"])
    with pytest.raises(CompositeWriteError):
        outcome.raise_for_failures()


async def test_hits_are_explained_unless_asked_otherwise(peer: Any, client: MemoryClient) -> None:
    await client.search(SearchQuery("words"), ctx=CTX)
    await client.search(SearchQuery("words"), ctx=CTX, explain=False)
    assert [request.explain for request in peer.queries] == [True, False]


async def test_a_turned_away_call_is_tried_as_often_as_it_may(peer: Any, client: MemoryClient) -> None:
    peer.query = [lambda context: peer.fail(context, Overloaded("busy", retry_after=0.01))] * 3
    with pytest.raises(Overloaded):
        await client.search(SearchQuery("words"), ctx=CTX, attempts=3)
    assert len(peer.queries) == 3


async def test_the_server_says_what_it_is(peer: Any, client: MemoryClient) -> None:
    assert client.known is None
    peer.accepts(memory=True, files=False)
    peer.info.embedding_model.CopyFrom(
        admin_service_pb2.EmbeddingModelInfo(name="mini", dimensions=384, sha256="ab", max_tokens=256)
    )
    peer.info.query_defaults.CopyFrom(
        admin_service_pb2.QueryDefaults(rank_fusion_k=2, lexical_weight=0.5, semantic_weight=0.25, candidates=100)
    )
    info = await client.server_info(ctx=Ctx(request_id="r-2"))
    assert (info.version, info.name) == ("0", "upstream")
    assert list(info.sources) == [SourceInfo("memory", "lancedb", True), SourceInfo("files", "lancedb", False)]
    assert info.embedding_model == EmbeddingModelInfo("mini", 384, "ab", 256)
    assert info.query_defaults == QueryDefaults(RankFusion(2, 0.5, 0.25), 100)
    assert (info.limits.max_batch_items, info.limits.max_k, info.limits.max_id_bytes) == (4, 50, LIMITS.max_id_bytes)
    assert peer.metadata["x-request-id"] == "r-2"
    assert client.known == info


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (health_pb2.HealthCheckResponse.SERVING, HealthStatus.SERVING),
        (health_pb2.HealthCheckResponse.NOT_SERVING, HealthStatus.NOT_SERVING),
        (17, HealthStatus.UNKNOWN),
        (None, HealthStatus.SERVICE_UNKNOWN),
    ],
)
async def test_health_is_asked_of_a_service(status: Any, expected: HealthStatus) -> None:
    asked: list[str] = []

    async def check(request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        asked.append(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health_pb2.HealthCheckResponse(status=status)

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        check,
        request_deserializer=health_pb2.HealthCheckRequest.FromString,
        response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with MemoryClient(f"127.0.0.1:{port}") as client:
            assert await client.health("recalld.v1.MemoryService") is expected
    finally:
        await server.stop(None)
    assert asked == ["recalld.v1.MemoryService"]


async def test_the_health_of_nobody_is_told_at_once(peer: Any) -> None:
    await peer.stop()
    async with MemoryClient(peer.target, timeout=60, label="far") as client, asyncio.timeout(20):
        with pytest.raises(SourceUnavailable, match="far: "):
            await client.health()


async def test_missing_items_are_no_error_and_missing_updates_are(peer: Any, client: MemoryClient) -> None:
    peer.unary = [Pb.BatchGetResponse(missing_ids=["a"]), ItemNotFound("there is no item 'a'", details={"id": "a"})]
    assert list((await client.get(["a"], ctx=CTX)).items) == []
    with pytest.raises(ItemNotFound):
        await client.update("a", ctx=CTX, content="x")
