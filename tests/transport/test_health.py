"""Health says whether the memory is still there, and not only whether the port answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.transport.conftest import Notebook, compose

from recalld.errors import SourceUnavailable
from recalld_server.transport.server import TransportConfig, serve

STATUS = health_pb2.HealthCheckResponse


async def next_status(watch: Any) -> int:
    return (await watch.read()).status


@pytest.mark.parametrize("service", ["", "recalld.v1.MemoryService"])
async def test_health_follows_the_memory(service: str) -> None:
    there = True

    async def check() -> None:
        if not there:
            raise SourceUnavailable("the data directory is gone")

    served = replace(compose(Notebook("notes")), check=check)
    config = TransportConfig(listen="127.0.0.1:0", grace=0.1, linger=0, health_seconds=0.02)
    server = await serve(served, config)
    try:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=20)
            assert await next_status(watch) == STATUS.SERVING
            there = False
            assert await next_status(watch) == STATUS.NOT_SERVING
            there = True
            assert await next_status(watch) == STATUS.SERVING
            watch.cancel()
    finally:
        await server.stop()
