"""How many bytes metadata takes on the wire, which is what its limit counts, without protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from recalld.values import EPOCH

# Every field of `Value`, of a list and of a map's entry has a number below 16, which is a tag of one byte.
_FLAG = 2
_DOUBLE = 9


def measure_metadata(metadata: Mapping[str, Any]) -> int:
    """The size of the metadata as `MapValue`, in bytes. Only for metadata without a fault."""
    size = 0
    for key, value in metadata.items():
        of_key = len(key) if key.isascii() else len(key.encode())
        size += _part(_part(of_key) + _part(_measure(value)))
    return size


def _measure(value: Any) -> int:
    if isinstance(value, str):
        return _part(len(value) if value.isascii() else len(value.encode()))
    if value is None or isinstance(value, bool):  # before int: True is an int, too
        return _FLAG
    if isinstance(value, int):
        return 1 + _varint(value)
    if isinstance(value, float):
        return _DOUBLE
    if isinstance(value, datetime):
        return _part(_measure_time(value))
    if isinstance(value, Mapping):
        return _part(measure_metadata(cast("Mapping[str, Any]", value)))
    return _part(sum(_part(_measure(member)) for member in cast("Iterable[Any]", value)))


def _measure_time(time: datetime) -> int:
    since = time - EPOCH
    seconds, nanos = since.days * 86_400 + since.seconds, since.microseconds * 1000
    return (1 + _varint(seconds) if seconds else 0) + (1 + _varint(nanos) if nanos else 0)


def _part(size: int) -> int:
    """What a part of so many bytes takes inside a message: a tag, its length, and itself."""
    return 1 + _varint(size) + size


def _varint(value: int) -> int:
    return 10 if value < 0 else max(1, (value.bit_length() + 6) // 7)
