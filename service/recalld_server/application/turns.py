"""Lets the writes of one lane reach the store in the order in which they came, however long each takes to get ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


class Turns:
    """The lanes that have writes under way. A lane is any hashable value, for example a stream and a scope."""

    def __init__(self) -> None:
        self._last: dict[object, asyncio.Event] = {}

    def enter(self, lane: object | None) -> Turn:
        """A place behind all that entered the lane before; None is no lane, whose writes wait for nobody."""
        if lane is None:
            return Turn(None)
        turn = Turn(self._last.get(lane), lambda: self._drop(lane, turn.left))
        self._last[lane] = turn.left
        return turn

    def _drop(self, lane: object, left: asyncio.Event) -> None:
        if self._last.get(lane) is left:
            del self._last[lane]


class Turn:
    """One place in a lane; leaving the `with` block lets the next one go, also after a failure."""

    def __init__(self, previous: asyncio.Event | None, on_leaving: Callable[[], None] | None = None) -> None:
        self._previous = previous
        self._on_leaving = on_leaving
        self.left = asyncio.Event()

    async def comes(self) -> None:
        """Waits until whoever entered before has left."""
        if self._previous is not None:
            await self._previous.wait()

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left.set()
        if self._on_leaving is not None:
            self._on_leaving()
