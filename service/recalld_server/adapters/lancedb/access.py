"""One table as its writers share it: one at a time, and durable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from recalld.errors import RecalldError
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.durability import SyncedFiles
from recalld_server.adapters.lancedb.failures import refused
from recalld_server.adapters.lancedb.layout import Layout
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.maintenance import Backlog
from recalld_server.adapters.lancedb.tables import OpenTable

log = logging.getLogger("recalld.lancedb")


class TableAccess:
    """Lets one writer of this process, and on a local disk of this machine, at a table."""

    def __init__(self, name: str, config: LanceConfig, layout: Layout, locks: TableLocks) -> None:
        self.name = name
        self.backlog = Backlog(config.maintenance)
        self._layout = layout
        self._locks = locks
        self._lock_path = layout.lock_path(name)
        path = layout.table_path(name)
        self._files = SyncedFiles(path) if path is not None and config.durability == "fsync" else None
        self._lock = asyncio.Lock()
        self._inside = 0
        self._left = time.monotonic()
        self._durable: int | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs or is to be tidied, so that this object can be forgotten."""
        return not self._inside and self.backlog.patience is None

    @property
    def quiet_for(self) -> float:
        """Seconds since somebody held the table; 0 while somebody does or waits for it."""
        return 0 if self._inside else time.monotonic() - self._left

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Holds the table, once whoever came before has left."""
        self._inside += 1
        try:
            async with self._lock, self._locks.hold(self._lock_path):
                yield
        except OSError as error:
            if isinstance(error, RecalldError):
                raise
            raise refused(error, self._layout, "store the change") from error
        finally:
            self._inside -= 1
            self._left = time.monotonic()

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
