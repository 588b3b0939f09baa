"""grpc.health.v1: whether the server, and each of its services, answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE_NAME: str = health.SERVICE_NAME

# The package's stubs know neither of these.
_AIO: Any = getattr(health, "aio")  # noqa: B009
_ADD: Any = getattr(health_pb2_grpc, "add_HealthServicer_to_server")  # noqa: B009


class Health:
    """Says SERVING for `""` and each service, from the start until `stop`."""

    def __init__(self) -> None:
        self._servicer: Any = _AIO.HealthServicer()

    async def add_to(self, server: grpc.aio.Server, services: Sequence[str]) -> None:
        """Serves health on a server that is not started yet."""
        for name in ("", *services):
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        _ADD(self._servicer, server)

    async def stop(self) -> None:
        """Says NOT_SERVING from now on; those who watch are told."""
        await self._servicer.enter_graceful_shutdown()
