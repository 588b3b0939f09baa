"""RemoteMemory.query against a scripted server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from recalld.errors import (
    DeadlineExceeded,
    InternalFailure,
    InvalidField,
    InvalidFilter,
    Overloaded,
    RecalldError,
    ScopeRequired,
    SourceUnavailable,
    Unauthenticated,
    UnknownSource,
)
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory
from recalld.v1 import error_reason_pb2

CTX = Ctx(Scope("acme", "support"))


async def test_items_are_stamped_with_the_own_name_and_keep_where_they_came_from(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    async with RemoteMemory(peer.target, name="far") as remote:
        items = await remote.query("words", k=5, ctx=CTX)
    assert [(item.content, item.source, item.score, item.id) for item in items] == [
        ("first", "far", 0.5, "a"),
        ("second", "far", 0.25, "b"),
    ]
    assert [item.attributes.origin for item in items] == ["memory", "memory"]
    assert items[0].attributes.revision == 3
    assert [type(item.metadata["n"]) for item in items] == [int, float]


async def test_the_request_carries_scope_user_filter_and_sources(peer: Any) -> None:
    ctx = Ctx(Scope("acme", "support"), user_id="ada")
    where = {"page": {"$gte": 3}, "attributes.create_time": {"$lt": datetime(2024, 1, 1, tzinfo=UTC)}}
    async with RemoteMemory(peer.target, sources=["memory", "notes"]) as remote:
        await remote.query("words", k=5, ctx=ctx, where=where)
    (request,) = peer.queries
    assert (request.scope.org_id, request.scope.domain_id) == ("acme", "support")
    assert (request.query, request.k, request.on_behalf_of_user_id) == ("words", 5, "ada")
    assert list(request.sources) == ["memory", "notes"]
    assert [member.compare.field for member in request.where.all.filters] == ["metadata.page", "create_time"]


async def test_never_more_than_k_and_never_more_than_the_server_allows(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    async with RemoteMemory(peer.target) as remote:
        assert len(await remote.query("words", k=1, ctx=CTX)) == 1
        await remote.query("words", k=10**12, ctx=CTX)
    assert [request.k for request in peer.queries] == [1, 50]


@pytest.mark.parametrize("k", [0, -1])
async def test_k_below_one_finds_nothing_without_touching_the_server(peer: Any, k: int) -> None:
    async with RemoteMemory(peer.target) as remote:
        assert await remote.query("words", k=k, ctx=CTX) == []
    assert (peer.infos, peer.queries) == (0, [])


@pytest.mark.parametrize("scope", [Scope(), Scope("acme"), Scope(None, "support"), Scope("acme", "")])
async def test_an_incomplete_scope_is_refused_before_anything_is_sent(peer: Any, scope: Scope) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(ScopeRequired):
            await remote.query("words", k=5, ctx=Ctx(scope))
        with pytest.raises(PermissionError):
            await remote.write([MemoryItem("x", "me")], ctx=Ctx(scope))
    assert peer.infos == 0


@pytest.mark.parametrize(
    "where",
    [{"page": {"$near": 1}}, {"attributes.colour": "red"}, {"page": float("nan")}, {"k": "\ud800"}],
)
async def test_a_wrong_where_is_refused_before_anything_is_sent(peer: Any, where: dict[str, Any]) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidFilter):
            await remote.query("words", k=5, ctx=CTX, where=where)
    assert peer.infos == 0


async def test_text_that_cannot_travel_is_named(peer: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.query("\ud800", k=5, ctx=Ctx(CTX.scope, user_id="\ud800"))
    assert set(caught.value.violations) == {"query", "on_behalf_of_user_id"}


async def test_what_the_server_left_out_is_observed(peer: Any, observed: Any) -> None:
    peer.summary.degradations.add(
        component="memory/semantic", reason=error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED, message="too slow"
    )
    ctx = Ctx(CTX.scope, observe=lambda event, fields: observed.append((event, dict(fields))))
    async with RemoteMemory(peer.target, name="far") as remote:
        await remote.query("words", k=5, ctx=ctx)
    assert observed == [
        (
            "memory.source_degraded",
            {
                "source": "far",
                "component": "far/memory/semantic",
                "reason": "DEADLINE_EXCEEDED",
                "message": "too slow",
            },
        )
    ]


async def test_a_stream_without_a_summary_is_an_incomplete_answer(peer: Any, recalled: Any) -> None:
    peer.items, peer.summary = recalled, None
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(SourceUnavailable, match="incomplete"):
            await remote.query("words", k=5, ctx=CTX)


async def test_an_item_that_does_not_read_is_an_error_of_the_server(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    broken = peer.hits()
    broken.hits.hits[1].item.metadata["empty"].SetInParent()
    peer.hits = lambda: broken
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InternalFailure, match=r"metadata\.empty"):
            await remote.query("words", k=5, ctx=CTX)


@pytest.mark.parametrize(
    "error",
    [
        UnknownSource("no source is named 'x'", details={"source": "x"}),
        InvalidField(violations={"query": "is longer than 8192 bytes"}),
        Unauthenticated("who?"),
    ],
)
async def test_the_servers_error_is_raised_as_what_it_is(peer: Any, error: RecalldError) -> None:
    peer.query = [lambda context: peer.fail(context, error)]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(type(error)) as caught:
            await remote.query("words", k=5, ctx=CTX)
    assert caught.value.message == error.message
    assert caught.value.details == error.details
    assert len(peer.queries) == 1


async def test_hundreds_of_violations_still_arrive(peer: Any) -> None:
    error = InvalidField(violations={f"where.all.filters[{n}].compare.field": "is unknown — 未知" for n in range(500)})
    peer.query = [lambda context: peer.fail(context, error)]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(InvalidField) as caught:
            await remote.query("words", k=5, ctx=CTX)
    assert len(caught.value.violations) > 10


async def test_an_overloaded_server_is_asked_again(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    busy = Overloaded("busy", retry_after=0.01)
    peer.query = [lambda context: peer.fail(context, busy), lambda context: peer.fail(context, busy)]
    async with RemoteMemory(peer.target) as remote:
        assert len(await remote.query("words", k=5, ctx=CTX)) == 2
    assert len(peer.queries) == 3


async def test_a_server_that_asks_for_more_patience_than_there_is_gets_no_second_call(peer: Any) -> None:
    peer.query = [lambda context: peer.fail(context, Overloaded("busy", retry_after=60))]
    async with RemoteMemory(peer.target) as remote:
        with pytest.raises(Overloaded):
            await remote.query("words", k=5, ctx=CTX)
    assert len(peer.queries) == 1


async def test_a_lost_connection_is_made_again(peer: Any, relay: Any, recalled: Any) -> None:
    peer.items = recalled

    async def lose(_context: Any) -> None:
        relay.cut()

    peer.query = [lose]
    async with RemoteMemory(relay.target) as remote:
        assert len(await remote.query("words", k=5, ctx=CTX)) == 2
    assert len(peer.queries) == 2


async def test_a_server_that_does_not_answer_runs_into_the_timeout(peer: Any) -> None:
    async def hang(_context: Any) -> None:
        await asyncio.Event().wait()

    peer.query = [hang]
    async with RemoteMemory(peer.target, timeout=0.3) as remote:
        with pytest.raises(DeadlineExceeded) as caught:
            await remote.query("words", k=5, ctx=CTX)
    assert isinstance(caught.value, TimeoutError)


async def test_nobody_there_is_source_unavailable_within_the_timeout(peer: Any) -> None:
    await peer.stop()
    async with RemoteMemory(peer.target, name="far", timeout=0.5) as remote:
        began = asyncio.get_running_loop().time()
        with pytest.raises(SourceUnavailable) as caught:
            await remote.query("words", k=5, ctx=CTX)
        assert asyncio.get_running_loop().time() - began < 5
    assert isinstance(caught.value, ConnectionError)
    assert not isinstance(caught.value, grpc.RpcError)
    assert caught.value.details == {"source": "far"}


async def test_a_server_that_comes_back_is_found(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    async with RemoteMemory(peer.target) as remote:
        await remote.query("words", k=5, ctx=CTX)
        await peer.stop()
        waiting = asyncio.create_task(remote.query("words", k=5, ctx=CTX))
        await asyncio.sleep(0)
        await peer.start(peer.port)
        assert len(await waiting) == 2


async def test_what_does_not_serve_recalld_is_named_at_once() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with RemoteMemory(f"127.0.0.1:{port}", name="far") as remote:
            with pytest.raises(SourceUnavailable, match="far: "):
                await remote.query("words", k=5, ctx=CTX)
    finally:
        await server.stop(None)


async def test_cancelling_the_caller_cancels_the_call(peer: Any) -> None:
    began = asyncio.Event()

    async def hang(_context: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    peer.query = [hang]
    async with RemoteMemory(peer.target) as remote:
        task = asyncio.create_task(remote.query("words", k=5, ctx=CTX))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(peer.ended.wait(), 5)


async def test_a_token_is_sent_with_every_call(peer: Any) -> None:
    async with RemoteMemory(peer.target, token="s3cret") as remote:  # noqa: S106 - made up
        await remote.query("words", k=5, ctx=CTX)
    assert peer.metadata["authorization"] == "Bearer s3cret"
