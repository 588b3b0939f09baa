"""What a RemoteMemory is made of, what it is called, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from recalld.errors import (
    DeadlineExceeded,
    InvalidField,
    SourceUnavailable,
)
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld.source import MemorySource
from recalld.sources.composite import CompositeMemory
from recalld.sources.remote import RemoteMemory, TLSConfig
from recalld.store import SearchQuery, WriteBatch

CTX = Ctx(Scope("acme", "support"))


async def test_without_a_name_it_has_the_servers_own(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    async with RemoteMemory(peer.target) as remote:
        (item, _) = await remote.query("words", k=5, ctx=CTX)
        assert (remote.name, item.source) == ("upstream", "upstream")
        peer.info.name = "renamed"
        await peer.stop()
        await peer.start(peer.port)
        (item, _) = await remote.query("words", k=5, ctx=CTX)
        assert (remote.name, item.source) == ("upstream", "upstream")
        assert isinstance(remote, MemorySource)


async def test_a_name_that_was_asked_for_before_the_first_call_stays(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    async with RemoteMemory(peer.target) as remote:
        assert remote.name == peer.target
        for _ in range(2):
            (item, _) = await remote.query("words", k=5, ctx=CTX)
            assert (remote.name, item.source) == (peer.target, peer.target)


async def test_two_without_a_name_compose_for_any_number_of_calls(peer: Any, relay: Any, recalled: Any) -> None:
    # Both servers call themselves the same.
    peer.items = recalled
    targets = [peer.target, relay.target]
    async with CompositeMemory([RemoteMemory(target) for target in targets], dedupe=None) as both:
        for number in range(3):
            await both.write([MemoryItem(f"fact {number}", "me")], ctx=CTX)
            outcome = await both.commit(WriteBatch([MemoryItem("fact", "me", id="i")]), ctx=CTX)
            assert list(outcome.accepted) == targets
            assert {item.source for item in await both.query("words", k=9, ctx=CTX)} == set(targets)


async def test_two_that_have_learnt_one_name_are_told_apart_at_construction(peer: Any, relay: Any) -> None:
    first, second = RemoteMemory(peer.target), RemoteMemory(relay.target)
    for each in (first, second):
        await each.query("words", k=1, ctx=CTX)
    with pytest.raises(InvalidField, match="upstream"):
        CompositeMemory([first, second])
    await first.close()
    await second.close()


async def test_closing_under_a_call_fails_that_call_and_cancels_nobody(peer: Any) -> None:
    began = asyncio.Event()

    async def hang(_context: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    peer.query = [hang]
    remote = RemoteMemory(peer.target)
    task = asyncio.create_task(remote.query("words", k=5, ctx=CTX))
    await began.wait()
    await remote.close()
    with pytest.raises(SourceUnavailable, match="closed"):
        await task


@pytest.mark.parametrize("own_channel", [True, False])
async def test_a_closed_memory_says_so_and_does_not_connect_again(peer: Any, own_channel: bool) -> None:
    async with grpc.aio.insecure_channel(peer.target) as channel:
        async with RemoteMemory(peer.target, channel=None if own_channel else channel) as remote:
            await remote.query("words", k=5, ctx=CTX)
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: remote.query("words", k=5, ctx=CTX),
            lambda: remote.search(SearchQuery("words"), ctx=CTX),
            lambda: remote.write([MemoryItem("x", "me")], ctx=CTX),
            lambda: remote.commit(WriteBatch([MemoryItem("x", "me")]), ctx=CTX),
            lambda: remote.get(["a"], ctx=CTX),
            lambda: remote.list_page(ctx=CTX),
            lambda: remote.update("a", ctx=CTX, content="x"),
            lambda: remote.delete(["a"], ctx=CTX),
            lambda: remote.commit_token(ctx=CTX),
        ]
        for call in calls:
            with pytest.raises(SourceUnavailable, match="is closed"):
                await call()
        await remote.close()
    assert (peer.infos, len(peer.queries), peer.batches, peer.requests) == (1, 1, [], [])


async def test_closing_waits_for_the_changes_under_way(peer: Any) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        began.set()
        await release.wait()
        return peer.outcome(request)

    peer.acknowledge = [slow]
    remote = RemoteMemory(peer.target)
    writing = asyncio.create_task(remote.write([MemoryItem("x", "me")], ctx=CTX))
    await began.wait()
    closing = asyncio.create_task(remote.close())
    await asyncio.sleep(0)
    assert not closing.done()
    with pytest.raises(SourceUnavailable, match="is closed"):
        await remote.query("words", k=1, ctx=CTX)
    release.set()
    await writing
    await closing


async def test_a_given_channel_is_used_and_left_open(peer: Any, recalled: Any) -> None:
    peer.items = recalled
    async with grpc.aio.insecure_channel(peer.target) as channel:
        for _ in range(2):
            async with RemoteMemory("a label", channel=channel) as remote:
                assert len(await remote.query("words", k=5, ctx=CTX)) == 2


async def test_a_given_channel_that_is_closed_is_no_grpc_error(peer: Any) -> None:
    channel = grpc.aio.insecure_channel(peer.target)
    await channel.close()
    with pytest.raises(SourceUnavailable, match="closed"):
        await RemoteMemory("a label", channel=channel).query("words", k=5, ctx=CTX)


@pytest.mark.parametrize(
    "target",
    [
        "",
        "localhost",
        "http://host:1",
        "https://host:1/path",
        "host:",
        ":1",
        "host:port",
        "host:0",
        "host:65536",
        "::1",
    ],
)
def test_a_target_without_host_or_port_says_so_at_once(target: str) -> None:
    with pytest.raises(InvalidField, match="HOST:PORT") as caught:
        RemoteMemory(target)
    assert list(caught.value.violations) == ["target"]


@pytest.mark.parametrize(
    "target",
    [
        *("host:1", "a.b-c_d:65535", "127.0.0.1:1", "[::1]:1", "[fe80::1%eth0]:1"),
        *("dns:///x:1", "dns://8.8.8.8/x", "dns:x", "xds:///x", "unix:/path", "unix:///path", "unix-abstract:x"),
        *("ipv4:1.2.3.4:5,1.2.3.5:5", "ipv6:[::1]:5"),
    ],
)
def test_every_other_target_is_grpcs_to_read(target: str) -> None:
    assert RemoteMemory(target).name == target


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_cannot_be_is_a_value_error(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        RemoteMemory("127.0.0.1:1", timeout=timeout)


@pytest.mark.parametrize("token", ["", "new\nline", " padded", "schlüssel"])
def test_a_token_that_a_header_cannot_carry_is_a_value_error(token: str) -> None:
    with pytest.raises(InvalidField, match="token"):
        RemoteMemory("127.0.0.1:1", token=token)


def test_sources_given_as_one_string_are_a_value_error() -> None:
    with pytest.raises(InvalidField, match="sources"):
        RemoteMemory("127.0.0.1:1", sources="memory")


def test_half_an_identity_is_a_value_error() -> None:
    with pytest.raises(InvalidField, match="tls"):
        TLSConfig(cert=b"pem")


async def test_a_tls_file_that_is_not_there_is_named(tmp_path: Any) -> None:
    remote = RemoteMemory("127.0.0.1:1", tls=TLSConfig(ca=tmp_path / "none.pem"))
    with pytest.raises(InvalidField, match=r"tls\.ca"):
        await remote.query("words", k=5, ctx=CTX)


async def test_after_a_lost_connection_the_server_is_asked_again_what_it_is(peer: Any) -> None:
    async with RemoteMemory(peer.target) as remote:
        await remote.query("words", k=1, ctx=CTX)
        await remote.query("words", k=1, ctx=CTX)
        assert (peer.infos, remote.accepts_writes) == (1, True)
        await peer.stop()
        peer.accepts(memory=False)
        with pytest.raises((SourceUnavailable, DeadlineExceeded)):
            await remote.query("words", k=1, ctx=Ctx(CTX.scope, deadline=time.monotonic() + 0.2))
        await peer.start(peer.port)
        await remote.query("words", k=1, ctx=CTX)
        assert not remote.accepts_writes
