"""grpc.health.v1: whether the server, and each of its services, answers and still has its memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE_NAME: str = health.SERVICE_NAME

# The package's stubs know neither of these.
_AIO: Any = getattr(health, "aio")  # noqa: B009
_ADD: Any = getattr(health_pb2_grpc, "add_HealthServicer_to_server")  # noqa: B009


_LOG = logging.getLogger(__name__)


class Health:
    """Says SERVING for `""` and each service while the memory's check passes, until `stop`.

    check: raises when what the memory is kept in is gone or does not answer. every: seconds between two checks, and how
    long one may take.
    """

    def __init__(self, check: Callable[[], Awaitable[None]], *, every: float) -> None:
        self._servicer: Any = _AIO.HealthServicer()
        self._check = check
        self._every = every
        self._names: Sequence[str] = ()
        self._serving = True
        self._watch: asyncio.Task[None] | None = None

    async def add_to(self, server: grpc.aio.Server, services: Sequence[str]) -> None:
        """Serves health on a server that is not started yet."""
        self._names = ("", *services)
        await self._say(health_pb2.HealthCheckResponse.SERVING)
        _ADD(self._servicer, server)
        self._watch = asyncio.create_task(self._keep_checking())

    async def stop(self) -> None:
        """Says NOT_SERVING from now on; those who watch are told."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._servicer.enter_graceful_shutdown()

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            serving = await self._passes()
            if serving != self._serving:
                self._serving = serving
                status = health_pb2.HealthCheckResponse
                await self._say(status.SERVING if serving else status.NOT_SERVING)
                _LOG.warning("health_changed", extra={"serving": serving})

    async def _passes(self) -> bool:
        try:
            await asyncio.wait_for(self._check(), self._every)
        except Exception:  # noqa: BLE001 - whatever goes wrong here, the memory cannot be counted on
            if self._serving:
                _LOG.exception("health_check_failed")
            return False
        return True

    async def _say(self, status: Any) -> None:
        for name in self._names:
            await self._servicer.set(name, status)
