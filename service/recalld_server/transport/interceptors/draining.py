"""Lets a stopping server finish what it took."""

from __future__ import annotations

import asyncio

from recalld.errors import SourceUnavailable
from recalld_server.transport.call import Call
from recalld_server.transport.pipeline import Proceed


class Draining:
    """Knows the calls in progress; once `stopping` is set it turns new ones away.

    A call that gRPC itself ends shows clients CANCELLED now and then, so the last word is said here: UNAVAILABLE,
    which every client knows to retry.
    """

    def __init__(self, name: str, stopping: asyncio.Event) -> None:
        self._name = name
        self._stopping = stopping
        self._running: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        if self._stopping.is_set():
            raise self._unavailable()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._running.add(limit)
                self._idle.clear()
                try:
                    return await proceed()
                finally:
                    self._running.discard(limit)
                    if not self._running:
                        self._idle.set()
        except TimeoutError:
            if limit.expired():
                raise self._unavailable() from None
            raise

    async def finish(self, grace: float, last: float) -> None:
        """Waits `grace` seconds for the calls in progress, then ends the rest, which get `last` seconds to wind up."""
        if not await self._became_idle(grace):
            now = asyncio.get_running_loop().time()
            for limit in self._running:
                limit.reschedule(now)
            await self._became_idle(last)

    async def _became_idle(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _unavailable(self) -> SourceUnavailable:
        return SourceUnavailable(f"{self._name} is stopping", details={"source": self._name})
