"""Sees to it that tables are tidied when it is time, one after another, and not in the way of writes."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from datetime import datetime

from recalld.engine.records import Commit
from recalld.errors import RecalldError
from recalld_server.adapters.lancedb.access import TableAccess
from recalld_server.adapters.lancedb.agenda import Agenda
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.creation import BEING_MADE
from recalld_server.adapters.lancedb.layout import Layout
from recalld_server.adapters.lancedb.leftovers import find_leftovers
from recalld_server.adapters.lancedb.maintenance import Maintenance, Tidied, delay_of_sweep
from recalld_server.adapters.lancedb.tables import Tables

log = logging.getLogger("recalld.lancedb")

#: How many tables whose time has come are at hand at once.
_AT_HAND = 8
#: Seconds after the start until tables are looked at that show nothing to tidy, since only a look tells whether
#: something in them expired.
_FIRST_ROUND = 60.0
#: Seconds until a table whose maintenance failed is tried again, at least.
_AFTER_FAILURE = 60.0
#: Seconds between looks for expired memories at one table: this share of how long they are kept, and never longer than
#: an hour.
_EXPIRY_SHARE, _LONGEST_EXPIRY_LOOK = 24, 3600.0
#: Seconds of rest between two tables at most; else as long as the last one took.
_LONGEST_REST = 5.0


class Upkeep:
    """One task that waits until a table is to be tidied, and tidies it.

    What is due now is told by the table's backlog, and takes the first quiet moment; what is due later stands in an
    agenda by name, so that no table is kept at hand for it. A process before this one may have left something to tidy:
    on a local disk all tables are looked through at the start, elsewhere each when it is first opened.
    """

    def __init__(
        self, config: LanceConfig, layout: Layout, tables: Tables, access: Callable[[str], TableAccess]
    ) -> None:
        self._config = config
        self._layout = layout
        self._tables = tables
        self._access = access
        self._maintenance = Maintenance(config, layout)
        self._agenda = Agenda()
        self._untidy: dict[str, TableAccess] = {}
        self._changed = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        # A context of its own: what it logs is about no single request.
        self._task = asyncio.create_task(self._run(), name="recalld-upkeep", context=contextvars.Context())

    async def close(self) -> None:
        """Lets what runs finish; begins nothing more."""
        self._closing = True
        self._changed.set()
        if self._task is not None:
            await self._task

    def note_commit(self, access: TableAccess, commit: Commit) -> None:
        """Counts a commit, and notes when what it replaced and what expires is to be looked at."""
        records = commit.records.values()
        times = [each.attributes.update_time for each in records] + [each.time for each in commit.receipts.values()]
        erased = any(not record.live for record in records)
        told = max((time for time in times if time is not None), default=None)
        access.backlog.committed(rows=len(records) + len(commit.receipts), erased=erased, now=told)
        self._note(access.name, delay_of_sweep(self._config.maintenance))
        expiries = [each.attributes.expire_time for each in records if each.attributes.expire_time is not None]
        self._note_expiry(access.name, min(expiries, default=None))
        if access.backlog.patience is not None:
            self._untidy[access.name] = access
            self._changed.set()

    def note_opened(self, name: str) -> None:
        """A table was opened for the first time. What a process before this one left of it is not known where there are
        no local files to tell."""
        if self._layout.local is None:
            self._note(name, self._config.maintenance.settled)

    async def _run(self) -> None:
        try:
            await self._look_around()
        except Exception:
            log.exception("the tables could not be looked through; each is tidied after its next write")
        while not self._closing:
            loop = asyncio.get_running_loop()
            self._changed.clear()
            access, delay = self._next()
            if access is None or delay > 0:
                await self._wait(delay)
                continue
            del self._untidy[access.name]
            began = loop.time()
            await self._tend(access)
            await self._wait(min(loop.time() - began, _LONGEST_REST), interrupted=False)

    async def _look_around(self) -> None:
        if self._layout.local is None:
            # Left by a crash while a table was made; one that is older than a horizon is nobody's any more.
            for name in await self._tables.list_being_made():
                self._note(name, delay_of_sweep(self._config.maintenance))
            return
        for leftover in await asyncio.to_thread(find_leftovers, self._layout):
            self._note(leftover.name, self._config.maintenance.settled if leftover.untidy else _FIRST_ROUND)

    def _next(self) -> tuple[TableAccess | None, float]:
        """The table whose time is nearest of those at hand, and in how many seconds there is something to do."""
        now = asyncio.get_running_loop().time()
        while len(self._untidy) < _AT_HAND and (name := self._agenda.take(now)) is not None:
            access = self._access(name)
            access.backlog.requested = True
            self._untidy[name] = access
        waits = {
            name: patience - access.quiet_for
            for name, access in self._untidy.items()
            if (patience := access.backlog.patience) is not None
        }
        self._untidy = {name: self._untidy[name] for name in waits}
        first = min(waits, key=lambda name: waits[name], default=None)
        delay = float("inf") if first is None else waits[first]
        if (noted := self._agenda.earliest) is not None and len(self._untidy) < _AT_HAND:
            delay = min(delay, max(noted - now, 0.0))
        return (self._untidy[first] if first is not None else None), delay

    async def _wait(self, seconds: float, *, interrupted: bool = True) -> None:
        """Waits, shorter when something changes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._closing and (left := until - loop.time()) > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), None if left == float("inf") else left)
            except TimeoutError:
                return
            if interrupted:
                return
            self._changed.clear()

    async def _tend(self, access: TableAccess) -> None:
        name = access.name
        try:
            if name.startswith(BEING_MADE):
                await self._tables.drop(name)
                return
            tidied = await self._tidy(access)
        except Exception as error:
            # Whatever it was, the writes that wait come first.
            access.backlog.failed()
            self._note(name, max(_AFTER_FAILURE, delay_of_sweep(self._config.maintenance)))
            log.warning(
                "maintenance of table %s failed and is tried again later: %s",
                name,
                error,
                exc_info=not isinstance(error, RecalldError),
            )
            return
        access.backlog.tidied(0 if tidied is None else tidied.rows)
        if tidied is not None and tidied.outdated:
            self._note(name, delay_of_sweep(self._config.maintenance))
        if tidied is not None:
            self._note_expiry(name, tidied.next_expiry)

    async def _tidy(self, access: TableAccess) -> Tidied | None:
        async with access.held():
            table = await self._tables.borrow(access.name)
            if table is None:
                return None
            backlog = access.backlog
            tidied = await self._maintenance.run(table, whole=backlog.requested, told=backlog.now)
            await access.make_durable(table)
            return tidied

    def _note_expiry(self, name: str, next_expiry: datetime | None) -> None:
        if next_expiry is None:
            return
        retention = self._config.expired_retention
        try:
            delay = (next_expiry + retention - self._config.clock()).total_seconds()
        except OverflowError:
            return  # beyond the end of the calendar
        self._note(name, max(delay, min(retention.total_seconds() / _EXPIRY_SHARE, _LONGEST_EXPIRY_LOOK)))

    def _note(self, name: str, delay: float) -> None:
        """Has the table tidied after so many seconds."""
        time = asyncio.get_running_loop().time() + delay
        earliest = self._agenda.earliest
        self._agenda.note(name, time)
        if earliest is None or time < earliest:
            self._changed.set()
