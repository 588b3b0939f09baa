"""What the contract suites share: checks that explain themselves, skips that are reported, and a loop for each test."""

from __future__ import annotations

import asyncio
import functools
import unittest
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol


class Subject(Protocol):
    """A suite that makes what it tests, and lets go of it."""

    async def make_subject(self) -> Any: ...
    async def close_subject(self, subject: Any) -> None: ...


def check(holds: object, message: str) -> None:
    """Fails the test unless `holds`. Not `assert`: python -O drops it, and pytest explains it only in modules that it
    rewrites."""
    if not holds:
        fail(message)


def check_equal(found: Any, expected: Any, what: str) -> None:
    """Fails the test unless both are equal, and tells both."""
    check(found == expected, f"{what}: {found!r}, not {expected!r}")


def fail(message: str) -> NoReturn:
    """Fails the test."""
    raise AssertionError(message)


def skip_unless(capability: object, why: str) -> None:
    """Skips the test, with its reason, where the subject does not claim the capability; pytest and unittest report
    it."""
    if not capability:
        raise unittest.SkipTest(why)


def on_a_loop(test: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any], None]:
    """The test as a plain method, on an event loop of its own, with a subject of its own; it needs no plugin."""

    @functools.wraps(test)
    def run(self: Subject) -> None:
        async def whole() -> None:
            subject = await self.make_subject()
            try:
                await test(self, subject)
            finally:
                await self.close_subject(subject)

        asyncio.run(whole())

    # pytest would otherwise take the wrapped function's parameter for a fixture.
    del run.__wrapped__
    return run


def typed(value: Any) -> Any:
    """The value with its types, so that 1, 1.0 and True differ, and a list equals a frozen one."""
    if isinstance(value, Mapping):
        return {key: typed(member) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [typed(member) for member in value]  # pyright: ignore[reportUnknownVariableType]
    return type(value).__name__, value
