"""When a table is tidied and how: compaction, indexes, old versions, old receipts, memories that expired long ago."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from recalld.errors import InternalFailure, StorageCorrupt
from recalld_server.adapters.lancedb import sql
from recalld_server.adapters.lancedb.config import LanceConfig, MaintenancePolicy
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.expiry import erase_expired, find_next_expiry
from recalld_server.adapters.lancedb.layout import Layout
from recalld_server.adapters.lancedb.leftovers import count_versions
from recalld_server.adapters.lancedb.tables import FULL_TEXT, OpenTable

log = logging.getLogger("recalld.lancedb")

_ROWS_PER_COMMIT = 5_000
_MOST_COMMITS = 1_000
#: The bound of rows is this share of a large table: what waits is searched row by row, and indexing it costs a
#: compaction.
_SHARE = 8
#: How much less is enough once writes have stopped, and how much more is too much to wait for that.
_STEP = 5
#: Compaction does not join rows that are in the full-text index with rows that are not yet in it, so it takes two
#: passes to take every blanked row out of the current version; the rest is for what may come between.
_PASSES = 4
#: How often a failing table's bounds are doubled.
_MOST_RELUCTANCE = 64


class Backlog:
    """Counts what piles up on one table since it was tidied last."""

    def __init__(self, policy: MaintenancePolicy) -> None:
        self._policy = policy
        self._commits = 0
        self._rows = 0
        self._table_rows = 0
        self._reluctance = 1
        self.requested = False
        #: The latest time that a commit told, by which receipts age.
        self.now: datetime | None = None

    @property
    def patience(self) -> float | None:
        """How many seconds without a write are to be waited for before the table is tidied: 0 when writes have to wait
        for it, None when there is no need."""
        commits = min(self._policy.commits + self._table_rows // _ROWS_PER_COMMIT, _MOST_COMMITS) * self._reluctance
        rows = max(self._policy.rows, (self._table_rows + self._rows) // _SHARE) * self._reluctance
        if self._commits >= max(self._policy.forced, commits) or self._rows >= _STEP * rows:
            return 0
        if self.requested or self._commits >= commits or self._rows >= rows:
            return self._policy.quiet
        return self._policy.settled if _STEP * self._rows >= rows else None

    def committed(self, *, rows: int, erased: bool, now: datetime | None) -> None:
        """Counts a commit, of so many rows."""
        self.now = now or self.now
        self._commits += 1
        self._rows += rows
        self.requested |= erased

    def tidied(self, table_rows: int) -> None:
        """Starts anew."""
        self._table_rows = table_rows
        self._commits = self._rows = 0
        self._reluctance = 1
        self.requested = False

    def failed(self) -> None:
        """Puts the next try off, so that a lasting failure does not take the time of writes."""
        self._commits = self._rows = 0
        self._reluctance = min(2 * self._reluctance, _MOST_RELUCTANCE)
        self.requested = False


@dataclass(frozen=True, slots=True)
class Tidied:
    """How a table is after it was tidied. rows: live ones. outdated: whether files of older versions are left, which
    a look one horizon later sweeps. next_expiry: when the next memory expires."""

    rows: int
    outdated: bool
    next_expiry: datetime | None


class Maintenance:
    """Tidies tables; the caller holds them.

    Rows that a delete blanked leave the disk in two steps: compaction takes them out of the current version, and a
    sweep one horizon later removes the versions before it.
    """

    def __init__(self, config: LanceConfig, layout: Layout) -> None:
        self._config = config
        self._layout = layout

    async def run(self, table: OpenTable, *, whole: bool, told: datetime | None) -> Tidied:
        """Tidies the table. whole: until nothing blanked is left in the current version; else what searches need. told:
        the latest time that a commit told."""
        now = self._config.clock()
        with table.translated("tidy up"):
            await table.ensure_indexed()
            await self._prune_receipts(table, told)
            if await erase_expired(table, now - self._config.expired_retention, now=now):
                whole = True
            await self._optimize(table, whole=whole)
            rows = await table.lance.count_rows("live")
            await self._index_vectors(table, rows)
            return Tidied(rows, await self._is_outdated(table), await find_next_expiry(table))

    async def _optimize(self, table: OpenTable, *, whole: bool) -> None:
        try:
            with table.translated("compact"):
                for passes in range(_PASSES if whole else 1):
                    told = await table.lance.optimize(cleanup_older_than=self._config.maintenance.horizon)
                    # The first pass may have only indexed what the second one compacts.
                    if passes and not told.compaction.fragments_removed:
                        break
        except (InternalFailure, StorageCorrupt) as error:
            # Merging into a damaged full-text index is what fails for good; made anew, it is whole. A storage that
            # does not answer, or another writer, would get in the way of that as well.
            log.warning("compaction of table %s failed; its full-text index is made anew: %s", table.name, error)
            await table.lance.create_index("words", config=FULL_TEXT, replace=True)

    async def _prune_receipts(self, table: OpenTable, told: datetime | None) -> None:
        if told is None:
            return
        horizon = sql.time(told - self._config.receipt_retention)
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

    async def _is_outdated(self, table: OpenTable) -> bool:
        path = self._layout.table_path(table.name)
        if path is not None:
            return await asyncio.to_thread(count_versions, str(path)) > 1
        return len(await table.lance.list_versions()) > 1


def delay_of_sweep(policy: MaintenancePolicy) -> float:
    """Seconds until what is written now, and replaced, can be swept: a little late rather than early."""
    return (policy.horizon + timedelta(seconds=1)).total_seconds() * 1.05
