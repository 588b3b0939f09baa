"""RemoteMemory against a real door: batches whole, repeats applied once, names apart, circles cut."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from serving import served

from recalld import CompositeMemory, Ctx, MemoryItem, ReadOnlyMemory, RemoteMemory, Scope
from recalld.client import HealthStatus, MemoryClient, TLSConfig
from recalld.engine import InMemoryRecords, LocalMemory
from recalld.errors import InvalidField, MemoryWriteRefused, SourceUnavailable
from recalld.limits import LIMITS
from recalld.store import SearchQuery, WriteBatch

CTX = Ctx(Scope("acme", "support"))

Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves memories on a free port, gives the target, and stops all in the end, the last one first."""
    servers: list[Any] = []

    async def begin(*sources: Any, **more: Any) -> str:
        servers.append(await served(*sources, **more))
        return servers[-1].address

    yield begin
    for server in reversed(servers):
        await server.stop()


def _local(name: str = "memory") -> LocalMemory:
    return LocalMemory(InMemoryRecords(name))


async def _count(memory: Any) -> int:
    return len([item async for item in memory.list(ctx=CTX, page_size=1000)])


async def test_the_largest_batch_reaches_a_source_behind_a_server_whole(serve: Serve) -> None:
    far = _local("far")
    async with (
        RemoteMemory(await serve(far), name="remote") as remote,
        RemoteMemory(await serve(_local(), remote)) as front,
    ):
        items = [MemoryItem(f"fact {number}", "me") for number in range(500)]
        outcome = await front.commit(WriteBatch(items), ctx=CTX)
        assert (list(outcome.accepted), len(outcome.ids)) == (["memory", "remote"], 500)
        assert await _count(far) == 500
        with pytest.raises(InvalidField) as caught:
            await front.commit(WriteBatch([*items, MemoryItem("one more", "me")]), ctx=CTX)
        assert list(caught.value.violations) == ["items"]
        large = [MemoryItem("x" * 65_536, "me") for _ in range(70)]
        with pytest.raises(InvalidField) as caught:
            await front.commit(WriteBatch(large), ctx=CTX)
        assert list(caught.value.violations) == ["items"]
        assert await _count(far) == 500


async def test_a_source_that_takes_less_at_once_has_failed_whole(serve: Serve) -> None:
    far = _local("far")
    async with (
        RemoteMemory(await serve(far, limits=replace(LIMITS, max_batch_items=10)), name="remote") as remote,
        RemoteMemory(await serve(_local(), remote)) as front,
    ):
        items = [MemoryItem(f"fact {number}", "me") for number in range(11)]
        outcome = await front.commit(WriteBatch(items), ctx=CTX)
        assert (list(outcome.accepted), list(outcome.failed)) == (["memory"], ["remote"])
        assert await _count(far) == 0


async def test_a_long_write_that_is_made_again_applies_nothing_twice(serve: Serve) -> None:
    local = _local()
    async with RemoteMemory(await serve(local)) as remote:
        items = [MemoryItem(f"fact {number}", "me") for number in range(700)]
        await remote.write(items, ctx=CTX, idempotency_key="import")
        token = await remote.commit_token(ctx=CTX)
        await remote.write(items, ctx=CTX, idempotency_key="import")
        assert await _count(local) == 700
        assert await remote.commit_token(ctx=CTX) == token
        await remote.write(items, ctx=CTX, idempotency_key="another")
        assert await _count(local) == 1400


async def test_two_without_a_name_compose_for_any_number_of_calls(serve: Serve) -> None:
    targets = [await serve(_local()), await serve(_local())]
    async with CompositeMemory([RemoteMemory(target) for target in targets], dedupe=None) as both:
        for number in range(3):
            await both.write([MemoryItem(f"fact {number}", "me")], ctx=CTX)
        found = await both.query("fact", k=10, ctx=CTX)
        assert {item.source for item in found} == set(targets)
        assert len(found) == 6


async def test_servers_that_name_each_other_are_told_at_once(serve: Serve) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first = RemoteMemory(f"127.0.0.1:{port}", name="first")
    second = RemoteMemory(await serve(_local("b"), first), name="second")
    target = await serve(_local("a"), second, listen=f"127.0.0.1:{port}")
    async with first, second, RemoteMemory(target) as front:
        began = time.monotonic()
        with pytest.raises(InvalidField) as caught:
            await front.search(SearchQuery("fact"), ctx=CTX)
        assert list(caught.value.violations) == ["x-recalld-via"]
        assert time.monotonic() - began < 5


async def test_a_refusal_of_the_one_source_is_raised_and_of_several_is_told(serve: Serve) -> None:
    guarded = ReadOnlyMemory(_local("guarded"), on_write="refuse")
    target = await serve(_local(), guarded)
    batch = WriteBatch([MemoryItem("fact", "me")])
    async with RemoteMemory(target) as every, RemoteMemory(target, sources=["guarded"]) as one:
        outcome = await every.commit(batch, ctx=CTX)
        assert (list(outcome.accepted), list(outcome.failed)) == (["memory"], ["guarded"])
        with pytest.raises(MemoryWriteRefused):
            await one.commit(batch, ctx=CTX)


async def test_the_client_asks_the_server_what_it_is_and_how_it_does(serve: Serve) -> None:
    async with MemoryClient(await serve(_local(), name="house")) as client:
        info = await client.server_info()
        assert (info.name, [source.name for source in info.sources]) == ("house", ["memory"])
        assert info.limits.max_batch_items == 500
        assert await client.health() is HealthStatus.SERVING
        assert await client.health("recalld.v1.MemoryService") is HealthStatus.SERVING
        assert await client.health("nothing") is HealthStatus.SERVICE_UNKNOWN


async def test_a_connection_that_does_not_come_about_says_why(serve: Serve) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{closed.getsockname()[1]}"
        async with RemoteMemory(target, name="far", timeout=0.3) as remote:
            with pytest.raises(SourceUnavailable, match=r"far: cannot reach 127.* the connection is refused"):
                await remote.query("x", k=1, ctx=CTX)
    async with RemoteMemory(await serve(_local()), name="far", timeout=0.3, tls=TLSConfig()) as remote:
        with pytest.raises(SourceUnavailable, match="over TLS: the server does not speak TLS"):
            await remote.query("x", k=1, ctx=CTX)
