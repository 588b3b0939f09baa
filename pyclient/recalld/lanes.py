"""Lets the writes of one lane reach a store in the order in which they came, however long each takes to get ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType


class Lanes:
    """The lanes that have writes under way. A lane is any hashable value, for example a stream and a scope."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, list[asyncio.Event]] = {}

    def enter(self, lane: Hashable) -> LanePlace:
        """A place behind all that are in the lane; None is no lane, whose writes wait for nobody."""
        if lane is None:
            return LanePlace((), lambda _: None)
        under_way = self._under_way.setdefault(lane, [])
        place = LanePlace(tuple(under_way), lambda left: self._leave(lane, left))
        under_way.append(place.left)
        return place

    def _leave(self, lane: Hashable, left: asyncio.Event) -> None:
        under_way = self._under_way[lane]
        under_way.remove(left)
        if not under_way:
            del self._under_way[lane]


class LanePlace:
    """One place in a lane; leaving the `with` block gives it up, also after a failure.

    It waits for everybody before it and not only for the next one: that one may have given up while the others go on.
    """

    def __init__(self, before: Sequence[asyncio.Event], leave: Callable[[asyncio.Event], None]) -> None:
        self._before = before
        self._leave = leave
        self.left = asyncio.Event()

    async def comes(self) -> None:
        """Waits until all who entered before have left."""
        for each in self._before:
            await each.wait()

    def __enter__(self) -> LanePlace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.left.set()
        self._leave(self.left)
