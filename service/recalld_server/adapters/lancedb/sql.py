"""SQL text that holds no caller's text.

LanceDB takes conditions as SQL without bind parameters. Every string of a caller goes in as hexadecimal digits, so
there is nothing to escape and nothing to get wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def text(value: str) -> str:
    """A string literal."""
    return texts((value,))[0]


def texts(values: Iterable[str]) -> list[str]:
    """String literals."""
    return [f"arrow_cast(X'{value.encode().hex()}', 'Utf8')" if value else "''" for value in values]


def integer(value: int) -> str:
    """A literal of -2**63 <= value < 2**63; the digits of the smallest alone would overflow before their sign."""
    return str(value) if value > -(2**63) else "(-9223372036854775807 - 1)"


def double(value: float) -> str:
    """The literal of a finite double, exactly; the zeros are one, since Arrow would put -0.0 below 0.0."""
    return f"arrow_cast('{value + 0.0!r}', 'Float64')"


def time(value: datetime) -> str:
    """A literal of an instant, to the microsecond."""
    return f"arrow_cast({micros(value)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def hashed(digests: Iterable[str]) -> str:
    """A list of literals of at least one of our own digests, which have letters, digits, `.` and `_` only."""
    return "'" + "', '".join(digests) + "'"


def micros(value: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (value - EPOCH) // _MICROSECOND


def instant(value: int) -> datetime:
    """The inverse of `micros`."""
    return EPOCH + timedelta(microseconds=value)
