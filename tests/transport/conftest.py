"""A real server and a real channel on loopback, over the real use cases and a source that keeps its items in a dict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from recalld.errors import ItemNotFound
from recalld.filters import Filter, matches
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld.v1 import admin_service_pb2_grpc, item_pb2, memory_service_pb2, memory_service_pb2_grpc
from recalld_server.application import Application, ServerDescription, SourceDescription
from recalld_server.application.change import ChangeMemories
from recalld_server.application.composition import Composition
from recalld_server.application.query import QueryMemories
from recalld_server.application.read import ReadMemories
from recalld_server.application.write import WriteMemories
from recalld_server.ports import (
    Batch,
    Committed,
    Degradation,
    Deleted,
    Fusion,
    Hit,
    ModelIdentity,
    Page,
    QuerySpec,
    Ranked,
    Source,
)
from recalld_server.transport.server import RunningServer, TransportConfig, serve


class Pause:
    """Holds whoever passes until it is opened, and tells how many came."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self._came: asyncio.Queue[object] = asyncio.Queue()

    def close(self) -> None:
        self.opened.clear()

    def open(self) -> None:
        self.opened.set()

    async def passed(self, what: object) -> None:
        self._came.put_nowait(what)
        await self.opened.wait()

    async def next(self) -> Any:
        """What came next; waits for it."""
        async with asyncio.timeout(20):
            return await self._came.get()

    @property
    def nobody_else(self) -> bool:
        return self._came.empty()


@dataclass
class Notebook:
    """A source in memory. `writes` and `reads` can be paused; `error` is raised by whatever is asked next."""

    name: str = "memory"
    kind: str = "notebook"
    accepts_writes: bool = True
    items: dict[tuple[Scope, str], MemoryItem] = field(default_factory=dict)
    error: Exception | None = None
    specs: list[QuerySpec] = field(default_factory=list)
    degradations: Sequence[Degradation] = ()
    writes: Pause = field(default_factory=Pause)
    reads: Pause = field(default_factory=Pause)
    batches: list[Batch] = field(default_factory=list)
    masks: list[Sequence[tuple[str, ...]]] = field(default_factory=list)
    listings: list[int] = field(default_factory=list)

    def _fail_if_told(self) -> None:
        if self.error is not None:
            raise self.error

    def add(self, scope: Scope, *items: MemoryItem) -> None:
        for item in items:
            self.items[scope, item.id or ""] = replace(item, source=self.name)

    def _of(self, scope: Scope, where: Filter | None) -> list[MemoryItem]:
        found = [item for (tenant, _), item in self.items.items() if tenant == scope]
        return [item for item in found if where is None or matches(where, item)]

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        self.specs.append(spec)
        await self.reads.passed(spec.text)
        self._fail_if_told()
        hits = [
            Hit(replace(item, score=1 / rank), lexical_rank=rank, lexical_score=2.0 / rank)
            for rank, item in enumerate(self._of(scope, spec.where)[: spec.k], 1)
        ]
        return Ranked(hits, self.degradations, "seen", Fusion(10, 0.25, 0.75))

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        await self.writes.passed(batch.items[0].content)
        self._fail_if_told()
        self.batches.append(batch)
        self.add(scope, *batch.items)
        return Committed([item.id or "" for item in batch.items], "wrote")

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[MemoryItem]:
        self._fail_if_told()
        return [item for item in self._of(scope, None) if item.id in ids]

    async def list(self, scope: Scope, where: Filter | None, *, limit: int, cursor: str | None) -> Page:
        await self.reads.passed("list")
        self._fail_if_told()
        self.listings.append(limit)
        found = self._of(scope, where)[::-1]
        start = int(cursor or 0)
        more = start + limit < len(found)
        return Page(found[start : start + limit], str(start + limit) if more else None)

    async def update(
        self, scope: Scope, item: MemoryItem, mask: Sequence[tuple[str, ...]], *, if_revision: int | None
    ) -> tuple[MemoryItem, str]:
        self._fail_if_told()
        self.masks.append(mask)
        if (scope, item.id) not in self.items:
            raise ItemNotFound(f"no item {item.id!r}", details={"id": item.id or ""})
        self.add(scope, item)
        return self.items[scope, item.id or ""], "changed"

    async def delete(self, scope: Scope, selected: Sequence[str] | Filter, *, dry_run: bool) -> Deleted:
        self._fail_if_told()
        by_id = isinstance(selected, (list, tuple))
        found = [item for item in self._of(scope, None) if (item.id in selected if by_id else matches(selected, item))]
        if not dry_run:
            for item in found:
                del self.items[scope, item.id or ""]
        return Deleted(len(found), "deleted")

    async def close(self) -> None: ...


def compose(*sources: Source) -> Application:
    composition = Composition("recalld", sources)

    def describe() -> ServerDescription:
        return ServerDescription(
            version="1.2.3",
            name="recalld",
            sources=[SourceDescription(each.name, each.kind, each.accepts_writes) for each in sources],
            model=ModelIdentity("tiny", 8, "ab" * 32, 16),
            rank_fusion_k=10,
            lexical_weight=0.25,
            semantic_weight=0.75,
            candidates=40,
        )

    return Application(
        name="recalld",
        query=QueryMemories(composition),
        write=WriteMemories(composition),
        read=ReadMemories(composition),
        change=ChangeMemories(composition),
        describe=describe,
    )


@dataclass
class Client:
    """A server with a channel to it."""

    server: RunningServer
    channel: grpc.aio.Channel

    @property
    def memory(self) -> Any:
        return memory_service_pb2_grpc.MemoryServiceStub(self.channel)

    @property
    def admin(self) -> Any:
        return admin_service_pb2_grpc.AdminServiceStub(self.channel)


@dataclass
class Fault:
    """A failed call, read with Google's own classes. Every status of ours has exactly one ErrorInfo."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    violations: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    request_id: str = ""


def read_fault(error: grpc.aio.AioRpcError) -> Fault:
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.message == error.details()
    assert status.code == error.code().value[0]
    infos = [each for each in status.details if each.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(infos) == 1
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    infos[0].Unpack(info)
    assert info.domain == "recalld"
    fault = Fault(error.code(), error.details(), info.reason.removeprefix("ERROR_REASON_"), dict(info.metadata))
    assert fault.reason != info.reason, "the reason is the full name of the enum value"
    for each in status.details:
        if each.Unpack(bad):
            fault.violations = {violation.field: violation.description for violation in bad.field_violations}
        if each.Unpack(retry):
            fault.retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    fault.request_id = trailers["x-request-id"]
    return fault


Fails = Callable[[Awaitable[Any]], Awaitable[Fault]]


@pytest.fixture
def fails() -> Fails:
    """Awaits a call that must fail, and reads how."""

    async def failing(call: Awaitable[Any]) -> Fault:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return read_fault(caught.value)

    return failing


@pytest.fixture
async def notebook() -> Notebook:
    return Notebook()


@pytest.fixture
async def start(notebook: Notebook) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Starts a server over sources (the notebook, unless others are given), with any setting of TransportConfig."""
    clients: list[Client] = []

    async def begin(*sources: Source, **settings: Any) -> Client:
        config = TransportConfig(**{"listen": "127.0.0.1:0", "grace": 5.0, "linger": 0.0, **settings})
        server = await serve(compose(*(sources or (notebook,))), config)
        clients.append(Client(server, grpc.aio.insecure_channel(server.address)))
        return clients[-1]

    yield begin
    for client in clients:
        await client.channel.close()
    notebook.writes.open()
    notebook.reads.open()
    await asyncio.gather(*(client.server.stop() for client in clients))


@pytest.fixture
async def client(start: Callable[..., Awaitable[Client]]) -> Client:
    return await start()


@pytest.fixture
def scope() -> item_pb2.Scope:
    return item_pb2.Scope(org_id="acme", domain_id="support")


@pytest.fixture
def tenant() -> Scope:
    return Scope("acme", "support")


@pytest.fixture
def new_notebook() -> type[Notebook]:
    return Notebook


@pytest.fixture
def query() -> Callable[..., Awaitable[tuple[list[Any], Any]]]:
    """Runs a query to its end; gives hits and summary, and checks that frames come as the contract says."""

    async def run(client: Client, **fields: Any) -> tuple[list[Any], Any]:
        frames = [frame async for frame in client.memory.Query(memory_service_pb2.QueryRequest(**fields))]
        assert [each.WhichOneof("frame") for each in frames] == ["hits"] * (len(frames) - 1) + ["summary"]
        hits = [hit for frame in frames[:-1] for hit in frame.hits.hits]
        assert frames[-1].summary.hit_count == len(hits)
        return hits, frames[-1].summary

    return run
