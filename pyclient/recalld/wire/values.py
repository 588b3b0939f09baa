"""Metadata values and times, to and from the wire.

To the wire goes what `recalld.values` has found nothing wrong with. From the wire, what is wrong is collected in a dict
of field path to description, so that one pass finds every violation; what is returned for a violating value must not
be used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter, methodcaller
from typing import Any, cast

from google.protobuf import timestamp_pb2

from recalld.limits import LIMITS
from recalld.v1 import item_pb2
from recalld.values import (
    EPOCH,
    FIRST_SECOND,
    LAST_SECOND,
    Place,
    Violations,
    find_text_fault,
    find_time_fault,
    name_type,
    write_path,
)

#: How deep metadata may nest: the most keys and indices on the way from `metadata` to a value.
MAX_LEVELS = LIMITS.max_metadata_levels

#: The longest item id, in UTF-8 bytes.
MAX_ID_BYTES = LIMITS.max_id_bytes

#: The longest idempotency key, in UTF-8 bytes.
MAX_KEY_BYTES = LIMITS.max_idempotency_key_bytes


def checked_text(value: Any, path: str, violations: Violations) -> str:
    """`value`, if it is a string that UTF-8 can carry."""
    fault = find_text_fault(value) if isinstance(value, str) else f"must be a string, not {name_type(value)}"
    if fault:
        violations[path] = fault
        return ""
    return value


def encode_time(value: Any, path: str, violations: Violations) -> timestamp_pb2.Timestamp:
    """The timestamp of an aware datetime, exact to the microsecond."""
    fault = find_time_fault(value) if isinstance(value, datetime) else f"must be a datetime, not {name_type(value)}"
    if fault:
        violations[path] = fault
        return timestamp_pb2.Timestamp()
    return _timestamp(value)


def _timestamp(value: datetime) -> timestamp_pb2.Timestamp:
    since = value - EPOCH
    # Integers all the way: float seconds lose microseconds far from 1970.
    return timestamp_pb2.Timestamp(
        seconds=since.days * 86_400 + since.seconds,
        nanos=since.microseconds * 1000,
    )


def decode_time(value: timestamp_pb2.Timestamp, path: str, violations: Violations) -> datetime | None:
    """The aware UTC datetime of a timestamp; what is below a microsecond is cut."""
    fault = _find_timestamp_fault(value)
    if fault:
        violations[path] = fault
        return None
    return _instant(value)


def _instant(value: timestamp_pb2.Timestamp) -> datetime:
    return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _find_timestamp_fault(value: timestamp_pb2.Timestamp) -> str | None:
    if not FIRST_SECOND <= value.seconds <= LAST_SECOND:
        return "is a time outside the years 1 to 9999"
    if not 0 <= value.nanos < 1_000_000_000:
        return "has nanos outside 0 to 999999999"
    return None


def fill_fields(target: MutableMapping[str, item_pb2.Value], values: Mapping[str, Any]) -> None:
    """Fills a map of wire values with values that `ValueChecks` has passed."""
    for key, value in values.items():
        fill_value(target[key], value)


def fill_value(target: item_pb2.Value, value: Any) -> None:
    """Fills one wire value with a value that `ValueChecks` has passed."""
    if isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bool):  # before int: True is an int, too
        target.bool_value = value
    elif isinstance(value, int):
        target.integer_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif value is None:
        target.null_value = cast("Any", 0)  # the one number of NullValue
    elif isinstance(value, datetime):
        target.timestamp_value.CopyFrom(_timestamp(value))
    elif isinstance(value, (list, tuple)):
        target.list_value.SetInParent()
        add = target.list_value.values.add
        for member in cast("Iterable[Any]", value):
            fill_value(add(), member)
    else:
        target.map_value.SetInParent()
        fill_fields(target.map_value.fields, value)


def decode_fields(
    fields: Mapping[str, item_pb2.Value], path: str, violations: Violations, *, max_levels: int = MAX_LEVELS
) -> dict[str, Any]:
    """The dict of a map of wire values, such as metadata, whose members are at level 1."""
    return _Decoder(path, violations, max_levels).read_map(fields, None, 1)


def decode_value(value: item_pb2.Value, path: str, violations: Violations, *, max_levels: int = MAX_LEVELS) -> Any:
    """The Python value of a wire value, at level 0. A value with no kind, a double that is not finite, a time out of
    range and what nests deeper than `max_levels` are violations."""
    return _Decoder(path, violations, max_levels).read(value, _kind_of(value), None, 0)


def decode_values(
    values: Sequence[item_pb2.Value], path: str, violations: Violations, *, max_levels: int = MAX_LEVELS
) -> list[Any]:
    """As `decode_value`, of each; `path` is that of the list."""
    return _Decoder(path, violations, max_levels).read_list(values, None, 0)


_Reader = Callable[[item_pb2.Value], Any]

_kind_of: Callable[[item_pb2.Value], str | None] = methodcaller("WhichOneof", "kind")


def _read_finite(value: item_pb2.Value) -> float | None:
    double = value.double_value
    return double if math.isfinite(double) else None


#: How to read values of the common kinds. Of a value of another kind, or with a violation, a reader gets what is false;
#: so whatever it gets that is true needs no look at the kind, which takes longer than the reading.
_READERS: Mapping[str | None, _Reader] = {
    "string_value": attrgetter("string_value"),
    "integer_value": attrgetter("integer_value"),
    "bool_value": attrgetter("bool_value"),
    "double_value": _read_finite,
}


def _read_nothing(_: item_pb2.Value) -> None: ...


class _Decoder:
    """Reads wire values; `level` is always that of what is read next.

    The values of one list or map are mostly of one kind, so each is read as the kind of the one before it, and only
    looked at when that gives nothing.
    """

    def __init__(self, path: str, violations: Violations, max_levels: int) -> None:
        self._path = path
        self._violations = violations
        self._max_levels = max_levels

    def read_map(self, fields: Mapping[str, item_pb2.Value], place: Place, level: int) -> dict[str, Any]:
        read = _read_nothing
        decoded: dict[str, Any] = {}
        for key, value in fields.items():
            found = read(value)
            if not found:
                kind = _kind_of(value)
                found = self.read(value, kind, (place, key), level)
                read = self._reader(kind, level)
            decoded[key] = found
        return decoded

    def read_list(self, values: Sequence[item_pb2.Value], place: Place, level: int) -> list[Any]:
        if not values:
            return []
        read = self._reader(_kind_of(values[0]), level)
        decoded = list(map(read, values))
        if all(decoded):
            return decoded
        for index, found in enumerate(decoded):
            if not found:
                value = values[index]
                decoded[index] = self.read(value, _kind_of(value), (place, index), level)
        return decoded

    def _reader(self, kind: str | None, level: int) -> _Reader:
        return _READERS.get(kind, _read_nothing) if level <= self._max_levels else _read_nothing

    def read(self, value: item_pb2.Value, kind: str | None, place: Place, level: int) -> Any:
        if level > self._max_levels:
            return self._refuse(place, f"is nested more than {self._max_levels} levels deep")
        match kind:
            case "string_value":
                return value.string_value
            case "integer_value":
                return value.integer_value
            case "double_value":
                if not math.isfinite(value.double_value):
                    self._refuse(place, f"is {value.double_value}, which is not a finite number")
                return value.double_value
            case "bool_value":
                return value.bool_value
            case "null_value":
                return None
            case "timestamp_value":
                fault = _find_timestamp_fault(value.timestamp_value)
                return self._refuse(place, fault) if fault else _instant(value.timestamp_value)
            case "list_value":
                return self.read_list(value.list_value.values, place, level + 1)
            case "map_value":
                return self.read_map(value.map_value.fields, place, level + 1)
            case _:
                return self._refuse(place, "has no value set")

    def _refuse(self, place: Place, fault: str) -> None:
        self._violations[write_path(self._path, place)] = fault
