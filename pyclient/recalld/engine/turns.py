"""The turns of a scope: one commit after another, each for everything that waits.

Changes queue up, and a task that lives while there are any takes them in groups: it takes the scope's turn, reads the
records concerned, applies the changes in the order in which they came, commits the outcome with the head that it was
read at, and only then answers. A head that moved meanwhile means that somebody else was first; then the turn is taken
again.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recalld.engine.changes import Change, DeleteMatching, Update
from recalld.engine.draft import Draft
from recalld.engine.ports import HeadMoved, RecordStore, Turn
from recalld.engine.records import Snapshot
from recalld.errors import InternalFailure, Overloaded, RecalldError, SourceUnavailable
from recalld.scope import Scope

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 16
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
#: From how many records on changes are applied off the event loop.
_LARGE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBounds:
    """waiting: how many changes of a scope may wait before callers are held back. group_records: how many records one
    commit takes at most, beyond the first change. erased_at_once: how many a delete by condition takes a commit."""

    waiting: int = 1024
    group_records: int = 2048
    erased_at_once: int = 10_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    change: Change
    answer: asyncio.Future[Any]


class ScopeTurns:
    """Takes the changes of one scope."""

    def __init__(self, scope: Scope, records: RecordStore, bounds: TurnBounds) -> None:
        self._scope = scope
        self._records = records
        self._bounds = bounds
        self._waiting: deque[_Waiting] = deque()
        self._places = asyncio.Semaphore(bounds.waiting)
        self._entering = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs, so that this object can be forgotten."""
        running = self._task is not None and not self._task.done()
        return not (running or self._waiting or self._entering)

    async def submit(self, change: Change) -> Any:
        """What the change answers, once it is durable; changes take effect in the order of the calls. Waits while too
        many others wait. A caller that goes away leaves the change in the queue: it may be in a commit already."""
        self._entering += 1
        try:
            await self._places.acquire()
        finally:
            self._entering -= 1
        if self._closing:
            self._places.release()
            raise SourceUnavailable("the store is closing", details={"source": self._records.name})
        waiting = _Waiting(change, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._task is None or self._task.done():
            # A context of its own: what it logs is about no single request.
            self._task = asyncio.create_task(self._run(), name="recalld-turns", context=contextvars.Context())
        return await waiting.answer

    async def close(self) -> None:
        """Finishes what waits; takes nothing more."""
        self._closing = True
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            await self._answer(self._take_group())

    def _take_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        records = 0
        while self._waiting and records < self._bounds.group_records:
            alone = isinstance(self._waiting[0].change, DeleteMatching)
            if alone and group:
                break
            group.append(self._waiting.popleft())
            self._places.release()
            records += max(1, len(group[-1].change.ids))
            if alone:
                break
        return group

    async def _answer(self, group: Sequence[_Waiting]) -> None:
        # Whatever happens, also a cancellation of the loop's last moments, nobody is left waiting.
        unforeseen = InternalFailure("the change could not be committed; the log says why")
        answers: Sequence[Any] = [unforeseen] * len(group)
        try:
            answers = await self._commit([waiting.change for waiting in group])
        except RecalldError as error:
            answers = [error] * len(group)
        except Exception:  # noqa: BLE001 - a defect fails its group and not those that wait; it is logged
            _LOG.exception("a commit failed in a way that is not foreseen")
        finally:
            for waiting, answer in zip(group, answers, strict=True):
                _tell(waiting.answer, answer)

    async def _commit(self, changes: Sequence[Change]) -> Sequence[Any]:
        if not isinstance(changes[0], DeleteMatching):
            return await self._take_turns(changes)
        # Some at a time, since a tombstone takes as much memory as a vector.
        total = 0
        while True:
            (count,) = await self._take_turns(changes)
            total += count
            if count < self._bounds.erased_at_once:
                return [total]

    async def _take_turns(self, changes: Sequence[Change]) -> Sequence[Any]:
        """Takes the turn again while somebody else commits first."""
        pause = _FIRST_PAUSE
        for _ in range(_ATTEMPTS):
            try:
                async with self._records.turn(self._scope) as turn:
                    return await self._take_turn(turn, changes)
            except HeadMoved:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise Overloaded("too many writers change this scope at once; try again")

    async def _take_turn(self, turn: Turn, changes: Sequence[Change]) -> Sequence[Any]:
        draft = Draft(await self._read(turn, changes))
        # An update works on a whole text, which may be long.
        large = sum(len(change.ids) for change in changes) > _LARGE or isinstance(changes[0], (Update, DeleteMatching))
        answers = await asyncio.to_thread(_apply, changes, draft) if large else _apply(changes, draft)
        commit = draft.commit()
        if commit is not None:
            await turn.commit(commit)
        return answers

    async def _read(self, turn: Turn, changes: Sequence[Change]) -> Snapshot:
        whole = dict.fromkeys(id for change in changes for id in change.whole)
        ids = dict.fromkeys(id for change in changes for id in change.ids if id not in whole)
        receipts = dict.fromkeys(key for change in changes for key in change.receipts)
        snapshot = await turn.snapshot(list(ids), whole=list(whole), receipts=list(receipts))
        first = changes[0]
        if isinstance(first, DeleteMatching):
            found = await turn.matching(first.where, limit=self._bounds.erased_at_once)
            return Snapshot(snapshot.head, {record.id: record for record in found}, {})
        return snapshot


def _apply(changes: Sequence[Change], draft: Draft) -> list[Any]:
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
