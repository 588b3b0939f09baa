"""A real server and a real channel on loopback, over a real composite of stores that can be paused and told to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from recalld import CompositeMemory, Ctx, MemoryItem, Scope, WriteBatch, WriteOutcome
from recalld.engine.ports import ModelIdentity
from recalld.errors import ItemNotFound
from recalld.filters import matches
from recalld.fusion import rank_across_sources
from recalld.lanes import Lanes
from recalld.source import MemorySource, accepts_writes
from recalld.store import UNSET, Degradation, ItemPage, RankFusion, SearchHit, SearchQuery, SearchResult
from recalld.store_base import StoreBase
from recalld.v1 import admin_service_pb2_grpc, item_pb2, memory_service_pb2, memory_service_pb2_grpc
from recalld.where import parse_where
from recalld_server.transport.served import Served, ServerDescription, SourceDescription
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


@dataclass(eq=False)
class Notebook(StoreBase):
    """A store in memory. `writes` and `reads` can be paused; `error` is raised by whatever is asked next."""

    name: str = "memory"
    accepts_writes: bool = True
    items: dict[tuple[Scope, str], MemoryItem] = field(default_factory=dict)
    error: Exception | None = None
    searches: list[tuple[SearchQuery, Ctx]] = field(default_factory=list)
    degradations: Sequence[Degradation] = ()
    writes: Pause = field(default_factory=Pause)
    reads: Pause = field(default_factory=Pause)
    batches: list[tuple[WriteBatch, Ctx]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    listings: list[int] = field(default_factory=list)
    _lanes: Lanes = field(default_factory=Lanes)

    keeps_records = True

    def _fail_if_told(self) -> None:
        if self.error is not None:
            raise self.error

    def add(self, scope: Scope, *items: MemoryItem) -> None:
        for item in items:
            self.items[scope, item.id or ""] = replace(item, source=self.name)

    def _of(self, ctx: Any, where: Any) -> list[MemoryItem]:
        condition = parse_where(where)
        found = [item for (tenant, _), item in self.items.items() if tenant == ctx.scope]
        return [item for item in found if condition is None or matches(condition, item)]

    async def search(self, query: SearchQuery, *, ctx: Any) -> SearchResult:
        self.searches.append((query, ctx))
        await self.reads.passed(query.text)
        self._fail_if_told()
        hits = [
            SearchHit(replace(item, score=1 / rank), lexical_rank=rank, lexical_score=2.0 / rank)
            for rank, item in enumerate(self._of(ctx, query.where)[: query.k], 1)
        ]
        return SearchResult(hits, self.degradations, "seen", RankFusion(10, 0.25, 0.75))

    async def commit(self, batch: WriteBatch, *, ctx: Any) -> WriteOutcome:
        with self._lanes.enter(batch.lane) as place:
            await self.writes.passed(batch.items[0].content)
            await place.comes()
            return self._stored(batch, ctx)

    def _stored(self, batch: WriteBatch, ctx: Any) -> WriteOutcome:
        self._fail_if_told()
        self.batches.append((batch, ctx))
        ids = [item.id or f"fresh-{len(self.items) + at}" for at, item in enumerate(batch.items)]
        self.add(ctx.scope, *(replace(item, id=id) for item, id in zip(batch.items, ids, strict=True)))
        return WriteOutcome([self.name], ids=ids, commit_token="wrote")  # noqa: S106 - no password

    async def get(self, ids: Sequence[str], *, ctx: Any) -> list[MemoryItem]:
        self._fail_if_told()
        found = {item.id: item for item in self._of(ctx, None)}
        return [found[id] for id in dict.fromkeys(ids) if id in found]

    async def list_page(self, *, ctx: Any, where: Any = None, page_size: int = 100, page_token: str = "") -> ItemPage:
        await self.reads.passed("list")
        self._fail_if_told()
        self.listings.append(page_size)
        found = self._of(ctx, where)[::-1]
        start = int(page_token or 0)
        more = start + page_size < len(found)
        return ItemPage(found[start : start + page_size], str(start + page_size) if more else "")

    async def update(self, id: str, *, ctx: Any, if_revision: int | None = None, **changes: Any) -> MemoryItem:
        self._fail_if_told()
        self.changes.append({name: value for name, value in changes.items() if value not in (UNSET, None)})
        if (ctx.scope, id) not in self.items:
            raise ItemNotFound(f"no item {id!r}", details={"id": id})
        if changes.get("content", UNSET) is not UNSET:
            self.add(ctx.scope, replace(self.items[ctx.scope, id], content=changes["content"]))
        return self.items[ctx.scope, id]

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: Any, where: Any = None, dry_run: bool = False
    ) -> int:
        self._fail_if_told()
        found = [item for item in self._of(ctx, where) if ids is None or item.id in ids]
        if not dry_run:
            for item in found:
                del self.items[ctx.scope, item.id or ""]
        return len(found)

    async def commit_token(self, *, ctx: Any) -> str:
        return "now"

    async def close(self) -> None: ...


def compose(*sources: MemorySource) -> Served:
    memory = CompositeMemory(list(sources), rank_across_sources, "recalld", "origin")

    def describe() -> ServerDescription:
        return ServerDescription(
            version="1.2.3",
            name="recalld",
            sources=[SourceDescription(each.name, "notebook", accepts_writes(each)) for each in sources],
            model=ModelIdentity("tiny", 8, "ab" * 32, 16),
            rank_fusion_k=10,
            lexical_weight=0.25,
            semantic_weight=0.75,
            candidates=40,
        )

    return Served(memory, describe)


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

    async def begin(*sources: MemorySource, **settings: Any) -> Client:
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
