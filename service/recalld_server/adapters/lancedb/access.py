"""One table as its writers share it: one at a time, durable, and tidied in the gaps."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from recalld.errors import RecalldError, SourceUnavailable
from recalld.scope import Scope
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.durability import SyncedFiles
from recalld_server.adapters.lancedb.layout import Layout, table_name
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.maintenance import Maintenance
from recalld_server.adapters.lancedb.tables import OpenTable

log = logging.getLogger("recalld.lancedb")

Find = Callable[[Scope], Awaitable[OpenTable | None]]


class TableAccess:
    """Lets one writer of this process, and on a local disk of this machine, at a table; maintenance takes its turn
    among them when nothing has come for a moment, or when it is overdue."""

    def __init__(self, scope: Scope, config: LanceConfig, layout: Layout, find: Find, locks: TableLocks) -> None:
        self._scope = scope
        self._config = config
        self._find = find
        self._locks = locks
        self._lock_path = layout.lock_path(table_name(scope))
        path = layout.table_path(table_name(scope))
        self._files = SyncedFiles(path) if path is not None and config.durability == "fsync" else None
        self._lock = asyncio.Lock()
        self._inside = 0
        self._arrived = asyncio.Event()
        self._durable: int | None = None
        self._looked = False
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.maintenance = Maintenance(config, self._start_upkeep)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs or is scheduled, so that this object can be forgotten."""
        running = self._task is not None and not self._task.done()
        return not (running or self._inside or self.maintenance.scheduled)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Holds the table, once whoever came before has left."""
        self._inside += 1
        self._arrived.set()
        try:
            async with self._lock, self._locks.hold(self._lock_path):
                yield
        except OSError as error:
            if isinstance(error, RecalldError):
                raise
            log.exception("the storage did not take a change")
            raise SourceUnavailable(
                "the storage did not take the change; the server's log says why", details={"source": self._config.name}
            ) from error
        finally:
            self._inside -= 1

    async def look(self, table: OpenTable) -> None:
        """Counts, once, what processes before us left to tidy."""
        if not self._looked:
            self._looked = True
            self.maintenance.found(await table.fragments())

    async def make_durable(self, table: OpenTable) -> None:
        """Brings the table as it is to the disk, whoever committed it; the caller holds it."""
        if self._files is None:
            return
        version = await table.version()
        if version != self._durable:
            await asyncio.to_thread(self._files.sync)
            self._durable = version

    async def is_durable(self, table: OpenTable) -> bool:
        """Whether the table as it is would survive a power cut."""
        return self._files is None or await table.version() == self._durable

    def tidy(self) -> None:
        """Sees to it that maintenance runs when it is due."""
        if self.maintenance.due:
            self._start_upkeep()

    async def close(self) -> None:
        """Lets what runs finish; schedules nothing more."""
        self._closing = True
        self.maintenance.close()
        self._arrived.set()
        if self._task is not None:
            await self._task

    def _start_upkeep(self) -> None:
        if not self._closing and (self._task is None or self._task.done()):
            # A context of its own: what it logs is about no single request.
            self._task = asyncio.create_task(self._keep_up(), name="recalld-upkeep", context=contextvars.Context())

    async def _keep_up(self) -> None:
        while self.maintenance.due and not self._closing:
            if self.maintenance.overdue or await self._quiet():
                await self._maintain()

    async def _quiet(self) -> bool:
        """Whether nothing arrives for a moment; that the store closes counts as an arrival."""
        self._arrived.clear()
        if self._inside:
            await asyncio.sleep(self._config.maintenance.quiet)
            return False
        try:
            await asyncio.wait_for(self._arrived.wait(), self._config.maintenance.quiet)
        except TimeoutError:
            return True
        return False

    async def _maintain(self) -> None:
        try:
            async with self.held():
                table = await self._find(self._scope)
                if table is not None:
                    await self.maintenance.run(table)
                    await self.make_durable(table)
                else:
                    self.maintenance.close()
        except Exception:
            # Whatever it was, the writes that wait come first.
            self.maintenance.failed()
            log.exception("maintenance of table %s failed and is tried again later", table_name(self._scope))
