"""What is to be looked at and when, without keeping it at hand."""

from __future__ import annotations

import heapq

_SPARE = 64


class Agenda:
    """At most one time for each name."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []

    @property
    def earliest(self) -> float | None:
        """The first time that is noted."""
        while self._order and self._times.get(self._order[0][1]) != self._order[0][0]:
            heapq.heappop(self._order)  # moved or dropped since
        return self._order[0][0] if self._order else None

    def note(self, name: str, time: float) -> None:
        """Notes the time, unless an earlier one is noted for the name: whoever looks then can note the next."""
        if time >= self._times.get(name, float("inf")):
            return
        self._times[name] = time
        heapq.heappush(self._order, (time, name))
        if len(self._order) > 2 * len(self._times) + _SPARE:
            self._order = [(time, name) for name, time in self._times.items()]
            heapq.heapify(self._order)

    def take(self, until: float) -> str | None:
        """Takes the first name whose time has come; None when none has."""
        earliest = self.earliest
        if earliest is None or earliest > until:
            return None
        _, name = heapq.heappop(self._order)
        del self._times[name]
        return name
