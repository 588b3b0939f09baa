"""Opens the port and closes it again."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection

from recalld.errors import InvalidField, SourceUnavailable
from recalld.limits import Limits
from recalld_server.transport import admin, health, memory
from recalld_server.transport.call import Work
from recalld_server.transport.interceptors import in_order
from recalld_server.transport.interceptors.admission import Admission, Capacity
from recalld_server.transport.interceptors.draining import Draining
from recalld_server.transport.interceptors.hops import Hops
from recalld_server.transport.pipeline import Pipeline
from recalld_server.transport.served import Served

#: Named for reflection, so that grpcurl can print the details of an error; importing the file registers it.
_ERROR_DETAILS = error_details_pb2.DESCRIPTOR

#: gRPC refuses what is larger than this many times our limit, without any details. Up to there we say it ourselves.
_RECEIVE_SLACK = 4

#: What calls get to wind up when the grace is over, in seconds.
_LAST = 1.0


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """How to serve.

    listen: `HOST:PORT`; port 0 takes a free port. grace: seconds that a stop gives to what it has taken.
    linger: seconds for which a stop refuses new calls at least, before it closes the port. A port that closes at once
    ends calls that arrive at that very moment with CANCELLED now and then; after this long, clients went elsewhere.
    max_concurrent_*: calls of a kind at work at once; queries and reads let four times as many wait, writes as many.
    patience: seconds that a call waits for its turn before it is refused as OVERLOADED. max_waiting_bytes: of messages
    that wait for their turn, of all calls and streams together. stall_seconds: how long a client may read nothing of a
    streamed answer before the call ends with DEADLINE_EXCEEDED.
    health_seconds: between two looks at whether the memory is still there, which health tells.
    tls_cert, tls_key: PEM files; given, the port speaks TLS.
    """

    listen: str
    limits: Limits = field(default_factory=Limits)
    grace: float = 10.0
    linger: float = 0.4
    max_concurrent_queries: int = 64
    max_concurrent_reads: int = 64
    max_concurrent_writes: int = 64
    max_write_streams: int = 1000
    patience: float = 5.0
    max_waiting_bytes: int = 64 * 1024 * 1024
    stall_seconds: float = 30.0
    health_seconds: float = 3.0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    reflection: bool = True

    def capacities(self) -> Mapping[Work, Capacity]:
        return {
            Work.QUERY: Capacity(self.max_concurrent_queries, waiting=4 * self.max_concurrent_queries),
            Work.READ: Capacity(self.max_concurrent_reads, waiting=4 * self.max_concurrent_reads),
            # A waiting write holds its message, so fewer may wait.
            Work.WRITE: Capacity(self.max_concurrent_writes, waiting=self.max_concurrent_writes),
            # An idle stream costs next to nothing; its batches are admitted as writes.
            Work.STREAM: Capacity(self.max_write_streams, waiting=0),
        }


class RunningServer:
    """A server that answers. address: `HOST:PORT`, with the port that was taken."""

    def __init__(
        self,
        address: str,
        server: grpc.aio.Server,
        status: health.Health,
        draining: Draining,
        stopping: asyncio.Event,
        config: TransportConfig,
    ) -> None:
        self.address = address
        self._server = server
        self._status = status
        self._draining = draining
        self._stopping = stopping
        self._config = config
        self._stopped: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Refuses new calls, finishes those in progress within the grace, ends the rest with UNAVAILABLE, and closes
        the port. May be called more than once."""
        if self._stopped is None:
            self._stopped = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopped)

    async def _stop(self) -> None:
        await self._status.stop()
        self._stopping.set()
        await asyncio.gather(asyncio.sleep(self._config.linger), self._draining.finish(self._config.grace, _LAST))
        # What is left are health watches and calls whose status is on its way.
        await self._server.stop(_LAST)


async def serve(served: Served, config: TransportConfig) -> RunningServer:
    """Listens and answers. Raises SourceUnavailable when the port cannot be had, InvalidField for a TLS file that
    cannot be read."""
    stopping = asyncio.Event()
    draining = Draining(served.memory.name, stopping)
    admission = Admission(
        config.capacities(),
        config.patience,
        sending=4 * config.max_concurrent_queries,
        max_waiting_bytes=config.max_waiting_bytes,
    )
    methods = [
        *memory.MemoryService(served.memory, config.limits, admission, stopping).methods(),
        *admin.AdminService(served, config.limits).methods(),
    ]
    server = grpc.aio.server(options=_options(config.limits))
    server.add_generic_rpc_handlers(
        (
            Pipeline(
                methods,
                in_order(Hops(uuid.uuid4().hex), draining, admission),
                max_message_bytes=config.limits.max_message_bytes,
                stall_seconds=config.stall_seconds,
            ),
        )
    )
    services = [memory.SERVICE.full_name, admin.SERVICE.full_name]
    status = health.Health(served.check, every=config.health_seconds)
    await status.add_to(server, services)
    if config.reflection:
        names = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server)
    address = _bind(server, config)
    await server.start()
    return RunningServer(address, server, status, draining, stopping, config)


def _options(limits: Limits) -> Sequence[tuple[str, int]]:
    return [
        # Otherwise a second server on the port takes turns with this one, silently.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", _RECEIVE_SLACK * limits.max_message_bytes),
        # Answers keep our own limit; this one would end a call without any details.
        ("grpc.max_send_message_length", -1),
        # One connection cannot take all of the server.
        ("grpc.max_concurrent_streams", 1000),
        # Clients may ping every 10 s, also while idle: gRPC by itself cuts those that do so more often than every 5
        # minutes. A little less, since a ping that is meant for 10 s may come early. And a client that vanished is
        # noticed.
        ("grpc.http2.min_ping_interval_without_data_ms", 9_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


def _bind(server: grpc.aio.Server, config: TransportConfig) -> str:
    host, _, port = config.listen.rpartition(":")
    _check_free(host, int(port), config.listen)
    try:
        if config.tls_cert is not None and config.tls_key is not None:
            taken = server.add_secure_port(config.listen, _credentials(config.tls_cert, config.tls_key))
        else:
            taken = server.add_insecure_port(config.listen)
    except RuntimeError:
        raise SourceUnavailable(f"cannot listen on {config.listen}") from None
    return f"{host}:{taken}"


def _check_free(host: str, port: int, listen: str) -> None:
    """Tries the port with a plain socket: gRPC writes several lines of its own when it cannot have one, and does not
    say why."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise SourceUnavailable(f"cannot listen on {listen}: {error.strerror}") from None


def _credentials(cert: Path, key: Path) -> Any:
    try:
        return grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
    except OSError as error:
        raise InvalidField(f"cannot read {error.filename}: {error.strerror}") from None
