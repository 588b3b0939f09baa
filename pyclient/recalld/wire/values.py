"""Metadata values and times, to and from the wire.

Functions here collect what is wrong in a dict of field path to description and go on, so that one pass finds every
violation; what they return for a violating value must not be used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from google.protobuf import timestamp_pb2

from recalld.v1 import item_pb2

#: Field path to description, for example `{"items[3].metadata.tags[2]": "is not finite"}`.
Violations = dict[str, str]

#: How deep metadata may nest: the most keys and indices on the way from `metadata` to a value.
MAX_LEVELS = 16

#: The longest item id, in UTF-8 bytes.
MAX_ID_BYTES = 256

#: The longest idempotency key, in UTF-8 bytes.
MAX_KEY_BYTES = 256

#: The most values in one item's metadata. Far more than its 64 KiB can hold; it bounds the walk through a structure
#: that shares parts of itself, which can be small in memory and astronomically large written out.
MAX_VALUES = 65_536

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND = -62_135_596_800  # 0001-01-01T00:00:00Z
_LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z
_KEY_SHOWN = 64


def member_path(path: str, key: str) -> str:
    """The path of a map's member; dots in a key are escaped, long keys cut, so that a path stays readable."""
    shown = key if len(key) <= _KEY_SHOWN else key[:_KEY_SHOWN] + "..."
    shown = shown.encode("utf-8", "backslashreplace").decode()
    return f"{path}.{shown.replace(chr(92), chr(92) * 2).replace('.', chr(92) + '.')}"


def checked_text(value: Any, path: str, violations: Violations) -> str:
    """`value`, if it is a string that UTF-8 can carry."""
    if not isinstance(value, str):
        violations[path] = f"must be a string, not {type(value).__name__}"
        return ""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            violations[path] = f"is not valid Unicode: a lone surrogate at character {error.start}"
            return ""
    return value


def checked_integer(value: int, path: str, violations: Violations) -> int:
    """`value`, if a signed 64-bit integer holds it."""
    if not -(2**63) <= value < 2**63:
        violations[path] = "is an integer over 64 bits"
        return 0
    return int(value)


def encode_time(value: Any, path: str, violations: Violations) -> timestamp_pb2.Timestamp:
    """The timestamp of an aware datetime, exact to the microsecond."""
    encoded = timestamp_pb2.Timestamp()
    if not isinstance(value, datetime):
        violations[path] = f"must be a datetime, not {type(value).__name__}"
        return encoded
    if value.utcoffset() is None:
        violations[path] = "is a time without a zone"
        return encoded
    since = value - _EPOCH
    # Integers all the way: float seconds lose microseconds far from 1970. A zone can push a time off the calendar.
    seconds = since.days * 86_400 + since.seconds
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        violations[path] = "is a time outside the years 1 to 9999, in UTC"
        return encoded
    encoded.seconds = seconds
    encoded.nanos = since.microseconds * 1000
    return encoded


def decode_time(value: timestamp_pb2.Timestamp, path: str, violations: Violations) -> datetime | None:
    """The aware UTC datetime of a timestamp; what is below a microsecond is cut."""
    if not _FIRST_SECOND <= value.seconds <= _LAST_SECOND:
        violations[path] = "is a time outside the years 1 to 9999"
        return None
    if not 0 <= value.nanos < 1_000_000_000:
        violations[path] = "has nanos outside 0 to 999999999"
        return None
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


class ValueEncoder:
    """Writes Python values into wire values.

    Takes None, bool, int of 64 bits, finite float, str, aware datetime, list or tuple, and mapping with string keys;
    anything else is a violation, and so is what nests deeper than `max_levels`, as a value that contains itself does.
    """

    def __init__(self, violations: Violations, *, max_levels: int = MAX_LEVELS) -> None:
        self._violations = violations
        self._max_levels = max_levels
        self._left = MAX_VALUES

    def fields(
        self, target: MutableMapping[str, item_pb2.Value], values: Mapping[Any, Any], path: str, *, level: int = 0
    ) -> None:
        """Fills a map of wire values; `level` is that of the map itself."""
        for key, value in values.items():
            if not isinstance(key, str):
                self._violations[path] = f"has a key that is not a string but {type(key).__name__}"
                continue
            place = member_path(path, key)
            if checked_text(key, place, self._violations) == key:
                self.fill(target[key], value, place, level=level + 1)

    def fill(self, target: item_pb2.Value, value: Any, path: str, *, level: int = 0) -> None:
        """Fills one wire value."""
        self._left -= 1
        if self._left < 0:
            if self._left == -1:
                self._violations[path] = f"is one of more than {MAX_VALUES} values"
        elif level > self._max_levels:
            self._violations[path] = f"is nested more than {self._max_levels} levels deep"
        elif isinstance(value, (Mapping, list, tuple)):
            self._nest(target, cast("Mapping[Any, Any] | Sequence[Any]", value), path, level)
        else:
            self._scalar(target, value, path)

    def _nest(self, target: item_pb2.Value, value: Mapping[Any, Any] | Sequence[Any], path: str, level: int) -> None:
        if isinstance(value, Mapping):
            target.map_value.SetInParent()
            self.fields(target.map_value.fields, value, path, level=level)
        else:
            target.list_value.SetInParent()
            for index, element in enumerate(value):
                self.fill(target.list_value.values.add(), element, f"{path}[{index}]", level=level + 1)

    def _scalar(self, target: item_pb2.Value, value: Any, path: str) -> None:
        if value is None:
            target.null_value = cast("Any", 0)  # the one number of NullValue
        elif isinstance(value, bool):  # before int: True is an int, too
            target.bool_value = value
        elif isinstance(value, int):
            target.integer_value = checked_integer(value, path, self._violations)
        elif isinstance(value, float):
            if math.isfinite(value):
                target.double_value = value
            else:
                self._violations[path] = f"is {value}, which is not a finite number"
        elif isinstance(value, str):
            target.string_value = checked_text(value, path, self._violations)
        elif isinstance(value, datetime):
            target.timestamp_value.CopyFrom(encode_time(value, path, self._violations))
        else:
            self._violations[path] = f"is a {type(value).__name__}, which metadata cannot hold"


def decode_fields(
    fields: Mapping[str, item_pb2.Value],
    path: str,
    violations: Violations,
    *,
    level: int = 0,
    max_levels: int = MAX_LEVELS,
) -> dict[str, Any]:
    """The dict of a map of wire values; `level` is that of the map itself."""
    return {
        key: decode_value(value, member_path(path, key), violations, level=level + 1, max_levels=max_levels)
        for key, value in fields.items()
    }


def decode_value(
    value: item_pb2.Value, path: str, violations: Violations, *, level: int = 0, max_levels: int = MAX_LEVELS
) -> Any:
    """The Python value of a wire value. A value with no kind, a double that is not finite, a time out of range and
    what nests deeper than `max_levels` are violations."""
    if level > max_levels:
        violations[path] = f"is nested more than {max_levels} levels deep"
        return None
    match value.WhichOneof("kind"):
        case "null_value":
            return None
        case "bool_value":
            return value.bool_value
        case "integer_value":
            return value.integer_value
        case "double_value":
            if not math.isfinite(value.double_value):
                violations[path] = f"is {value.double_value}, which is not a finite number"
            return value.double_value
        case "string_value":
            return value.string_value
        case "timestamp_value":
            return decode_time(value.timestamp_value, path, violations)
        case "list_value":
            return [
                decode_value(element, f"{path}[{index}]", violations, level=level + 1, max_levels=max_levels)
                for index, element in enumerate(value.list_value.values)
            ]
        case "map_value":
            return decode_fields(value.map_value.fields, path, violations, level=level, max_levels=max_levels)
        case _:
            violations[path] = "has no value set"
            return None
