"""When a table is tidied and how: compaction, indexes, old versions, old receipts."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from datetime import datetime

from recalld.errors import InternalFailure, StorageCorrupt
from recalld_server.adapters.lancedb import sql
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.failures import IndexMissing
from recalld_server.adapters.lancedb.tables import FULL_TEXT, OpenTable

log = logging.getLogger("recalld.lancedb")

_ROWS_PER_COMMIT = 5_000
_MOST_COMMITS = 1_000


class Maintenance:
    """Counts what piles up on one table and says when it is time. Owned and run by the table's writer.

    Rows that a delete blanked leave the disk in two steps: compaction takes them out of the current version, and a
    sweep one horizon later removes the versions before it. `wake` is called when such a sweep is due.
    """

    def __init__(self, config: LanceConfig, wake: Callable[[], None]) -> None:
        self._policy = config.maintenance
        self._config = config
        self._wake = wake
        self._commits = 0
        self._bound = self._policy.commits
        self._requested = False
        self._now: datetime | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_again = False
        self._closed = False

    @property
    def due(self) -> bool:
        """Whether a quiet moment should be used."""
        return self._requested or self._commits >= self._bound

    @property
    def overdue(self) -> bool:
        """Whether writes have to wait for it."""
        return self._commits >= max(self._policy.forced, self._bound)

    @property
    def scheduled(self) -> bool:
        """Whether there is something to do, now or later."""
        return self.due or self._sweep is not None

    def found(self, fragments: int) -> None:
        """Counts what a process before us left: every commit leaves a fragment or more."""
        self._commits += fragments

    def committed(self, *, erased: bool, now: datetime | None) -> None:
        """Counts a commit. `now` is the time that its callers gave, by which receipts age."""
        if self._closed:
            return
        self._now = now or self._now
        self._commits += 1
        self._requested |= erased
        self._schedule_sweep()

    def failed(self) -> None:
        """Puts the next try off, so that a lasting failure does not take the time of writes."""
        self._requested = False
        self._commits = 0
        self._bound = min(2 * self._bound, _MOST_COMMITS)

    def _schedule_sweep(self) -> None:
        if self._sweep is not None:
            # What this commit replaced is too young for the sweep that is due first.
            self._sweep_again = True
        else:
            # A little late rather than early: a version is swept when it is older than the horizon.
            delay = self._policy.horizon.total_seconds() * 1.05 + 1
            self._sweep = asyncio.get_running_loop().call_later(
                delay, self._time_to_sweep, context=contextvars.Context()
            )

    def _time_to_sweep(self) -> None:
        self._sweep = None
        if self._sweep_again:
            self._sweep_again = False
            self._schedule_sweep()
        self._requested = True
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._requested = False
        self._commits = 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    async def run(self, table: OpenTable) -> None:
        """Tidies the table; the caller holds its lock."""
        with table.translated("tidy up"):
            await self._prune_receipts(table)
            await self._optimize(table)
            rows = await table.lance.count_rows("live")
            await self._index_vectors(table, rows)
        self._requested = False
        self._commits = 0
        self._bound = min(self._policy.commits + rows // _ROWS_PER_COMMIT, _MOST_COMMITS)

    async def _optimize(self, table: OpenTable) -> None:
        try:
            with table.translated("compact"):
                await table.lance.optimize(cleanup_older_than=self._policy.horizon)
        except (InternalFailure, StorageCorrupt, IndexMissing) as error:
            # Merging into a damaged full-text index is what fails for good; made anew, it is whole. A storage that
            # does not answer, or another writer, would get in the way of that as well.
            log.warning("compaction of table %s failed; its full-text index is made anew: %s", table.name, error)
            await table.lance.create_index("words", config=FULL_TEXT, replace=True)

    async def _prune_receipts(self, table: OpenTable) -> None:
        if self._now is None:
            return
        horizon = sql.time(self._now - self._config.receipt_retention)
        old = f"receipt is not null and coalesce(update_time < {horizon}, true)"
        if await table.lance.count_rows(old):
            await table.lance.delete(old)

    async def _index_vectors(self, table: OpenTable, rows: int) -> None:
        if rows < self._config.vector_index_threshold:
            return
        if any("vector" in index.columns for index in await table.lance.list_indices()):
            return
        # Of the kinds measured, the one that is quick to build and exact once its candidates are scored again.
        await table.lance.create_index("vector", config=lancedb.index.IvfSq(distance_type="cosine"))
