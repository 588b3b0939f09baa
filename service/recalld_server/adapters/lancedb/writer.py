"""The writer of one table: one commit after another, each for everything that waits.

Changes queue up, and a task that lives while there are any takes them in groups: it holds the table's lock, reads the
rows concerned, applies the changes in the order in which they came, upserts the outcome in one commit, makes the files
durable, and only then answers. Maintenance runs in the same task, so nothing ever races it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from recalld.errors import InternalFailure, Overloaded, RecalldError, SourceUnavailable
from recalld.scope import Scope
from recalld_server.adapters.lancedb.changes import Change, Delete, DeleteMatching, Draft, Put, Settle, Update
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.durability import SyncedFiles
from recalld_server.adapters.lancedb.failures import CommitConflict
from recalld_server.adapters.lancedb.layout import Layout, table_name
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.maintenance import Maintenance
from recalld_server.adapters.lancedb.records import Record, to_batch, to_records
from recalld_server.adapters.lancedb.schema import ROW_COLUMNS, STATE_COLUMNS
from recalld_server.adapters.lancedb.tables import OpenTable, Tables

log = logging.getLogger("recalld.lancedb")

_ATTEMPTS = 8
_FIRST_PAUSE = 0.02
#: From how many rows on conversions leave the event loop.
_LARGE = 32
_ERASED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change in the queue. One that is still being prepared has its place already, so calls take effect in order."""

    change: Change | asyncio.Task[Change]
    rows: int
    answer: asyncio.Future[Any]


class TableWriter:
    """Takes the changes of one scope."""

    def __init__(self, scope: Scope, config: LanceConfig, layout: Layout, tables: Tables, locks: TableLocks) -> None:
        self._scope = scope
        self._config = config
        self._tables = tables
        self._locks = locks
        self._lock_path = layout.lock_path(table_name(scope))
        path = layout.table_path(table_name(scope))
        self._files = SyncedFiles(path) if path is not None and config.durability == "fsync" else None
        self._maintenance = Maintenance(config, self._wake_for_maintenance)
        self._waiting: deque[_Waiting] = deque()
        self._slots = asyncio.Semaphore(config.waiting)
        self._entering = 0
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._looked = False
        self._durable: int | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs and nothing is scheduled, so that the writer can be forgotten."""
        running = self._task is not None and not self._task.done()
        return not (running or self._waiting or self._entering or self._maintenance.scheduled)

    def is_durable(self, version: int) -> bool:
        """Whether that version of the table is known to survive a power cut."""
        return self._files is None or version == self._durable

    async def submit(self, change: Change | Callable[[], Coroutine[Any, Any, Change]], *, rows: int = 1) -> Any:
        """What the change of so many rows answers, once it is durable. Waits while too many changes wait.

        A change that is yet to be prepared is given as a coroutine function. Changes take effect in the order of the
        calls. A caller that goes away leaves the change in the queue: it may be in a commit with others already.
        """
        await self._slot()
        prepared = change if isinstance(change, Change) else asyncio.create_task(change())
        waiting = _Waiting(prepared, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        self._start()
        return await waiting.answer

    async def _slot(self) -> None:
        """Takes a place in the queue. It goes with the change and not with the caller, who may go away first."""
        self._entering += 1
        try:
            await self._slots.acquire()
        finally:
            self._entering -= 1
        if self._closing:
            self._slots.release()
            raise SourceUnavailable("the store is closing", details={"source": self._config.name})

    def _start(self) -> None:
        if self._task is None or self._task.done():
            # A context of its own: what it logs is about no single request.
            self._task = asyncio.create_task(
                self._run(), name=f"recalld-writer-{table_name(self._scope)[:8]}", context=contextvars.Context()
            )

    def _wake_for_maintenance(self) -> None:
        if not self._closing:
            self._start()

    async def _run(self) -> None:
        while True:
            if self._waiting and not self._maintenance.overdue:
                ready = await self._ready(self._take())
                if ready:
                    await self._commit(ready)
            elif self._maintenance.due and (self._maintenance.overdue or await self._quiet()):
                await self._maintain()
            elif not self._waiting:
                return

    async def _quiet(self) -> bool:
        """Whether nothing arrives for a moment; that the store closes counts as an arrival."""
        self._arrived.clear()
        if self._waiting:
            return False
        try:
            await asyncio.wait_for(self._arrived.wait(), self._config.maintenance.quiet)
        except TimeoutError:
            return True
        return False

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        rows = 0
        while self._waiting and (not group or rows < self._config.group_rows):
            alone = isinstance(self._waiting[0].change, DeleteMatching)
            if alone and group:
                break
            group.append(self._waiting.popleft())
            self._slots.release()
            rows += group[-1].rows
            if alone:
                break
        return group

    async def _ready(self, group: Sequence[_Waiting]) -> list[tuple[Change, asyncio.Future[Any]]]:
        """The group with every change prepared; those that could not be are answered and left out."""
        ready: list[tuple[Change, asyncio.Future[Any]]] = []
        for waiting in group:
            try:
                change = await waiting.change if isinstance(waiting.change, asyncio.Task) else waiting.change
            except RecalldError as error:
                _tell(waiting.answer, error)
            except Exception:
                log.exception("a change could not be prepared")
                _tell(waiting.answer, InternalFailure("the change could not be prepared; the server's log says why"))
            else:
                ready.append((change, waiting.answer))
        return ready

    async def _commit(self, group: Sequence[tuple[Change, asyncio.Future[Any]]]) -> None:
        # Whatever happens, also a cancellation of the loop's last moments, nobody is left waiting.
        unforeseen = InternalFailure("the change could not be committed; the server's log says why")
        answers: list[Any] = [unforeseen] * len(group)
        try:
            answers = await self._with_lock(lambda: self._attempts([change for change, _ in group]))
        except RecalldError as error:
            answers = [error] * len(group)
        except Exception:
            log.exception("a commit failed in a way that is not foreseen")
        finally:
            for (_, future), answer in zip(group, answers, strict=True):
                _tell(future, answer)

    async def _with_lock(self, work: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with self._locks.hold(self._lock_path):
                return await work()
        except OSError as error:
            if isinstance(error, RecalldError):
                raise
            log.exception("the storage did not take a change")
            raise SourceUnavailable(
                "the storage did not take the change; the server's log says why", details={"source": self._config.name}
            ) from error

    async def _attempts(self, changes: Sequence[Change]) -> list[Any]:
        if isinstance(changes[0], DeleteMatching):
            return [await self._erase(changes[0])]
        return await self._until_first(changes)

    async def _until_first(self, changes: Sequence[Change]) -> list[Any]:
        """Tries again while another writer commits first."""
        pause = _FIRST_PAUSE
        for _ in range(_ATTEMPTS):
            try:
                return await self._attempt(changes)
            except CommitConflict:
                await asyncio.sleep(pause)
                pause *= 2
        raise Overloaded("too many writers change this scope at once; try again")

    async def _erase(self, change: DeleteMatching) -> tuple[int, int]:
        """Blanks what matches, so many rows a commit: a tombstone takes as much memory as a vector."""
        total = 0
        while True:
            ((count, revision),) = await self._until_first([change])
            total += count
            if count < _ERASED_AT_ONCE:
                return total, revision

    async def _attempt(self, changes: Sequence[Change]) -> list[Any]:
        table = await self._tables.find(self._scope)
        draft = await self._draft(table, changes)
        rows = len(draft.rows) + sum(len(change.rows) for change in changes if isinstance(change, Put))
        # An update works on a whole text, which may be long.
        if rows > _LARGE or any(isinstance(change, Update) for change in changes):
            answers = await asyncio.to_thread(_applied, changes, draft)
        else:
            answers = _applied(changes, draft)
        if draft.changed:
            table = await self._store(table, draft)
            erased = any(isinstance(change, (Delete, DeleteMatching)) for change in changes)
            times = [change.now for change in changes if not isinstance(change, Settle)]
            self._maintenance.committed(erased=erased, now=max(times, default=None))
        if table is not None:
            # Also where nothing changed: what is answered may be of a commit that was cut off before its sync.
            await self._make_durable(table)
        return answers

    async def _draft(self, table: OpenTable | None, changes: Sequence[Change]) -> Draft:
        draft = Draft(self._config.name, self._config.model.dimensions, 0, 0, {})
        if table is None:
            return draft
        await table.ensure_indexed()
        if not self._looked:
            self._looked = True
            self._maintenance.found(await table.fragments())
        counters = await table.counters()
        draft.revision, draft.sequence = counters.revision, counters.sequence
        whole = dict.fromkeys(key for change in changes for key in change.row_keys)
        state = dict.fromkeys(key for change in changes for key in change.state_keys if key not in whole)
        found: list[Any] = []
        if state:
            found.append(await table.rows(list(state), STATE_COLUMNS))
        if whole:
            found.append(await table.rows(list(whole), ROW_COLUMNS))
        for change in changes:
            if isinstance(change, DeleteMatching):
                with table.translated("select items"):
                    found.append(
                        await table.lance.query()
                        .where(change.condition)
                        .select(list(STATE_COLUMNS))
                        .limit(_ERASED_AT_ONCE)
                        .to_arrow()
                    )
        for rows in found:
            large = rows.num_rows > _LARGE or "content" in rows.column_names
            records = await asyncio.to_thread(to_records, rows) if large else to_records(rows)
            draft.rows.update((record.key, record) for record in records)
        return draft

    async def _store(self, table: OpenTable | None, draft: Draft) -> OpenTable:
        records = list(draft.changed.values())
        batch = await self._batch(records)
        if table is None:
            # Counters are read back after the first commit: the index makes a version of its own.
            return await self._tables.create(self._scope, batch)
        try:
            with table.translated("commit"):
                # A row without a vector is a tombstone or receipt, which LanceDB takes only as a "bad" vector. Without
                # `use_index(False)` an index on the key would bring back the duplicates that the primary key rules out.
                merge = table.lance.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
                result = await merge.use_index(False).execute(batch, on_bad_vectors="null")
        except RecalldError:
            table.forget()
            raise
        table.committed(result.version, draft.revision, draft.sequence)
        return table

    async def _batch(self, records: Sequence[Record]) -> Any:
        schema = self._tables.schema(self._scope)
        if len(records) > _LARGE:
            return await asyncio.to_thread(to_batch, records, schema)
        return to_batch(records, schema)

    async def _make_durable(self, table: OpenTable) -> None:
        """Brings the table as it is to the disk, whoever committed it; the caller holds the lock."""
        if self._files is None:
            return
        version = await table.version()
        if version != self._durable:
            await asyncio.to_thread(self._files.sync)
            self._durable = version

    async def _maintain(self) -> None:
        async def work() -> None:
            table = await self._tables.find(self._scope)
            if table is not None:
                await self._maintenance.run(table)
                await self._make_durable(table)

        try:
            await self._with_lock(work)
        except Exception:
            # Whatever it was, the writes that wait come first.
            self._maintenance.failed()
            log.exception("maintenance of table %s failed and is tried again later", table_name(self._scope))

    async def close(self) -> None:
        """Finishes what waits; takes nothing more."""
        self._closing = True
        self._maintenance.close()
        self._arrived.set()
        if self._task is not None:
            await self._task


def _applied(changes: Sequence[Change], draft: Draft) -> list[Any]:
    """What each change answers, an error in the place of one that is refused."""
    answers: list[Any] = []
    for change in changes:
        try:
            answers.append(change.apply(draft))
        except RecalldError as error:
            answers.append(error)
    return answers


def _tell(answer: asyncio.Future[Any], what: Any) -> None:
    if answer.done():
        return  # its caller went away
    if isinstance(what, BaseException):
        answer.set_exception(what)
    else:
        answer.set_result(what)
