"""How long a call may take, and when it is tried again."""

from __future__ import annotations

import asyncio
import random
import time

from recalld.errors import DeadlineExceeded, RecalldError, Retryable

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Patience:
    """How long a call may still take, and the pauses between its attempts.

    timeout: seconds without progress. deadline: the end of it all, in seconds of `time.monotonic()`. attempts: the most
    attempts, None for as many as fit. Pauses grow exponentially with jitter, and are never shorter than what the server
    asked for.
    """

    def __init__(self, timeout: float, *, deadline: float | None = None, attempts: int | None = None) -> None:
        self._timeout = timeout
        self._deadline = deadline
        self._attempts = attempts
        self._failures = 0
        self._until = 0.0
        self.renew()

    def renew(self) -> None:
        """Starts over: there was progress. The deadline stays."""
        self._failures = 0
        self._until = time.monotonic() + self._timeout
        if self._deadline is not None:
            self._until = min(self._until, self._deadline)

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self._until - time.monotonic())

    @property
    def left_for_all(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def check(self, source: str) -> None:
        """Raises DeadlineExceeded when no time is left for another attempt."""
        if self.left <= 0:
            raise DeadlineExceeded(f"{source}: the time of the call is over", details={"stage": source})

    async def pause(self, failure: RecalldError) -> None:
        """Waits before another attempt. Raises `failure` when another attempt cannot help or would come too late."""
        if not isinstance(failure, Retryable):
            raise failure
        backoff = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._failures += 1
        if self._attempts is not None and self._failures >= self._attempts:
            raise failure
        delay = max(backoff, failure.retry_after)
        if delay >= self.left:
            raise failure
        await asyncio.sleep(delay)


class TryAgain(Exception):
    """Raised by an attempt that got an answer, which asks for another attempt; `failure` says why."""

    def __init__(self, failure: RecalldError) -> None:
        super().__init__(failure)
        self.failure = failure
