"""A real gRPC server whose answers a test scripts, and a relay in front of it whose connections a test can cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from recalld.errors import RecalldError
from recalld.item import MemoryAttributes, MemoryItem
from recalld.v1 import admin_service_pb2, admin_service_pb2_grpc, memory_service_pb2, memory_service_pb2_grpc
from recalld.wire import STATUS_DETAILS, encode_item, encode_write_error, status_bytes

Pb = memory_service_pb2


class Peer(memory_service_pb2_grpc.MemoryServiceServicer, admin_service_pb2_grpc.AdminServiceServicer):
    """Records what it is sent and answers as scripted.

    query, acknowledge: what the next calls and batches do instead of the default, first come first served. The default
    is to stream `items` with a summary, and to accept a batch in the source `memory`. unary: what the other calls
    answer, or a list of it, first come first served; without it `answers` by the type of the request. BatchWrite does
    without both.
    """

    def __init__(self) -> None:
        self.info = admin_service_pb2.GetServerInfoResponse(
            version="0",
            name="upstream",
            sources=[admin_service_pb2.SourceInfo(name="memory", kind="lancedb", accepts_writes=True)],
            limits=admin_service_pb2.ServerLimits(
                max_batch_items=4,
                max_message_bytes=1024 * 1024,
                max_unacked_batches=2,
                max_content_bytes=1000,
                max_k=50,
            ),
        )
        self.items: list[MemoryItem] = []
        self.summary = Pb.QuerySummary()
        self.query: list[Callable[[Any], Awaitable[Any]]] = []
        self.acknowledge: list[Callable[[Pb.WriteRequest], Awaitable[Pb.WriteResponse | None]]] = []
        self.abort_write: RecalldError | None = None
        self.unary: Any = None
        self.answers: dict[type, Any] = {}
        self.queries: list[Pb.QueryRequest] = []
        self.batches: list[Pb.WriteRequest] = []
        self.requests: list[Any] = []
        self.streams = 0
        self.infos = 0
        self.metadata: dict[str, str] = {}
        self.remaining: float | None = None
        self.ended = asyncio.Event()
        self._arrived = asyncio.Event()
        self.target = ""
        self._server: grpc.aio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        memory_service_pb2_grpc.add_MemoryServiceServicer_to_server(self, self._server)
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{port}')}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    @property
    def port(self) -> int:
        return int(self.target.rpartition(":")[2])

    def accepts(self, **sources: bool) -> None:
        del self.info.sources[:]
        for name, accepts in sources.items():
            self.info.sources.add(name=name, kind="lancedb", accepts_writes=accepts)

    @staticmethod
    async def fail(context: Any, error: RecalldError) -> None:
        code, message, details = status_bytes(error)
        context.set_trailing_metadata([(STATUS_DETAILS, details)])
        await context.abort(code, message)

    def outcome(self, request: Pb.WriteRequest, **fields: Any) -> Pb.WriteResponse:
        fields = fields or {"accepted": ["memory"], "ids": [item.id or "fresh" for item in request.items]}
        return Pb.WriteResponse(sequence=request.sequence, outcome=Pb.WriteOutcome(**fields))

    def refusal(self, request: Pb.WriteRequest, error: RecalldError) -> Pb.WriteResponse:
        return Pb.WriteResponse(sequence=request.sequence, error=encode_write_error(error))

    def hits(self) -> Pb.QueryResponse:
        frame = Pb.QueryResponse()
        for rank, item in enumerate(self.items, 1):
            hit = frame.hits.hits.add()
            hit.item.CopyFrom(encode_item(item, "item", {}))
            hit.explanation.lexical_rank = rank
            hit.explanation.lexical_score = 2.5
        return frame

    async def GetServerInfo(self, request: Any, context: Any) -> admin_service_pb2.GetServerInfoResponse:
        self.infos += 1
        self.metadata = dict(context.invocation_metadata())
        return self.info

    async def Query(self, request: Pb.QueryRequest, context: Any) -> AsyncIterator[Pb.QueryResponse]:
        self.queries.append(request)
        self.metadata = dict(context.invocation_metadata())
        self.remaining = context.time_remaining()
        try:
            if self.query:
                await self.query.pop(0)(context)
            if self.items:
                yield self.hits()
            if self.summary is not None:
                yield Pb.QueryResponse(summary=self.summary)
        finally:
            self.ended.set()

    async def Write(self, requests: Any, context: Any) -> AsyncIterator[Pb.WriteResponse]:
        self.streams += 1
        self.metadata = dict(context.invocation_metadata())
        self.remaining = context.time_remaining()
        if self.abort_write is not None:
            await self.fail(context, self.abort_write)
        waiting: asyncio.Queue[Pb.WriteRequest | None] = asyncio.Queue()

        async def read() -> None:
            # Reads ahead of the answers, so that the queue shows what the client dares to send.
            async for request in requests:
                self.batches.append(request)
                self._arrived.set()
                waiting.put_nowait(request)
            waiting.put_nowait(None)

        reader = asyncio.create_task(read())
        try:
            while (request := await waiting.get()) is not None:
                script = self.acknowledge.pop(0) if self.acknowledge else None
                response = await script(request) if script else self.outcome(request)
                if response is None:
                    return
                yield response
        finally:
            reader.cancel()
            self.ended.set()

    async def received(self, count: int) -> None:
        """Waits until that many batches have arrived."""
        while len(self.batches) < count:
            self._arrived.clear()
            await self._arrived.wait()

    async def _answer(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata = dict(context.invocation_metadata())
        self.remaining = context.time_remaining()
        answer = self.unary.pop(0) if isinstance(self.unary, list) else self.unary or self.answers.get(type(request))
        if isinstance(answer, RecalldError):
            await self.fail(context, answer)
        return answer

    async def BatchWrite(self, request: Any, context: Any) -> Any:
        answer = await self._answer(request, context)
        accepted = self.outcome(Pb.WriteRequest(items=request.items)).outcome
        return answer or Pb.BatchWriteResponse(outcome=accepted)

    async def BatchGet(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context)

    async def List(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context)

    async def Update(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context)

    async def Delete(self, request: Any, context: Any) -> Any:
        return await self._answer(request, context)


class Relay:
    """Forwards bytes to a port; `cut` resets every connection, as a crashed host or a broken network does."""

    def __init__(self) -> None:
        self.target = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            self._writers |= {writer, up_writer}
            for source, sink in ((reader, up_writer), (up_reader, writer)):
                task = asyncio.create_task(self._pump(source, sink))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        self._server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class OneHit(memory_service_pb2_grpc.MemoryServiceServicer, admin_service_pb2_grpc.AdminServiceServicer):
    """Finds the words of the query themselves."""

    def GetServerInfo(self, request: Any, context: Any) -> admin_service_pb2.GetServerInfoResponse:
        return admin_service_pb2.GetServerInfoResponse(name="upstream")

    def Query(self, request: Any, context: Any) -> Iterator[Pb.QueryResponse]:
        response = Pb.QueryResponse()
        response.hits.hits.add().item.content = request.query
        yield response
        yield Pb.QueryResponse(summary=Pb.QuerySummary())


@pytest.fixture
def threaded() -> Iterator[Callable[..., str]]:
    """Starts a server with threads of its own, for tests that have several event loops or none; gives its target."""
    servers: list[grpc.Server] = []

    def serve(credentials: grpc.ServerCredentials | None = None) -> str:
        server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        servers.append(server)
        memory_service_pb2_grpc.add_MemoryServiceServicer_to_server(OneHit(), server)
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(OneHit(), server)
        address = "127.0.0.1:0"
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        server.start()
        return f"127.0.0.1:{port}"

    yield serve
    for server in servers:
        server.stop(None)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.fixture
async def relay(peer: Peer) -> AsyncIterator[Relay]:
    relay = Relay()
    await relay.start(peer.port)
    yield relay
    await relay.stop()


@pytest.fixture
def observed() -> list[tuple[str, dict[str, Any]]]:
    return []


@pytest.fixture
def recalled() -> Sequence[MemoryItem]:
    """Two items as the upstream's source `memory` returns them."""
    return [
        MemoryItem("first", "memory", 0.5, {"n": 1}, id="a", attributes=MemoryAttributes(origin="memory", revision=3)),
        MemoryItem("second", "memory", 0.25, {"n": 1.0}, id="b"),
    ]
