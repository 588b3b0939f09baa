"""What a value may be, in metadata and in filters: the rules of `Value` in item.proto, told of Python values.

Checks collect what is wrong in a dict of field path to description and go on, so that one pass finds everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from recalld.frozen import FrozenDict, FrozenList
from recalld.limits import LIMITS

#: Field path to description, for example `{"items[3].metadata.tags[2]": "is not finite"}`.
Violations = dict[str, str]

#: Where a value stands below a path, innermost step first. A path is written out only when there is something to say
#: about it: for the values of a large batch that takes longer than everything else.
Place: TypeAlias = "tuple[Place, str | int] | None"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_SECOND = -62_135_596_800  # 0001-01-01T00:00:00Z
LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z

_KEY_SHOWN = 64


def member_path(path: str, key: str) -> str:
    """The path of a map's member; dots in a key are escaped, long keys cut, so that a path stays readable."""
    shown = key if len(key) <= _KEY_SHOWN else key[:_KEY_SHOWN] + "..."
    shown = shown.encode("utf-8", "backslashreplace").decode()
    return f"{path}.{shown.replace(chr(92), chr(92) * 2).replace('.', chr(92) + '.')}"


def write_path(path: str, place: Place) -> str:
    """The path of a place below `path`."""
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    for step in reversed(steps):
        path = f"{path}[{step}]" if isinstance(step, int) else member_path(path, step)
    return path


#: What the frozen kinds that items keep were when they were written.
_WRITTEN: Mapping[Any, str] = {frozenset: "set", FrozenDict: "dict", FrozenList: "list"}


def name_type(value: Any) -> str:
    """The name of a value's type, as whoever gave the value wrote it."""
    kind = type(cast("object", value))
    return _WRITTEN.get(kind, kind.__name__)


def find_text_fault(text: str) -> str | None:
    """What is wrong with a string: that UTF-8 cannot carry it. None when it is fine."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"is not valid Unicode: a lone surrogate at character {error.start}"
    return None


def find_integer_fault(value: int) -> str | None:
    """What is wrong with an integer: that 64 bits with a sign do not hold it. None when it is fine."""
    return None if -(2**63) <= value < 2**63 else "is an integer over 64 bits"


def find_time_fault(time: datetime) -> str | None:
    """What is wrong with a time; None when it is fine."""
    if time.utcoffset() is None:
        return "is a time without a zone"
    since = time - EPOCH
    # A zone can push a time off the calendar.
    if not FIRST_SECOND <= since.days * 86_400 + since.seconds <= LAST_SECOND:
        return "is a time outside the years 1 to 9999, in UTC"
    return None


def find_scalar_fault(value: Any) -> str | None:
    """What is wrong with a value that is neither list nor map; None when it is fine."""
    if value is None or isinstance(value, bool):  # before int: True is an int, too
        return None
    if isinstance(value, str):
        return find_text_fault(value)
    if isinstance(value, int):
        return find_integer_fault(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"is {value}, which is not a finite number"
    if isinstance(value, datetime):
        return find_time_fault(value)
    return f"is a {name_type(value)}, which metadata cannot hold"


#: Types that are looked up before `isinstance` is asked; of `Mapping`, that takes long.
_SCALARS = frozenset((str, int, float, bool, type(None), datetime))


class ValueChecks:
    """Finds what is wrong with values.

    A value is None, bool, int of 64 bits, finite float, str, aware datetime, list or tuple, or a mapping with string
    keys. Anything else is a violation, and so is what nests deeper than `max_levels`, as a value that contains itself
    does: the most keys and indices on the way to it.
    """

    def __init__(self, violations: Violations, *, max_levels: int = LIMITS.max_metadata_levels) -> None:
        self._violations = violations
        self._max_levels = max_levels
        self._left = 0
        self._path = ""

    def fields(self, values: Mapping[Any, Any], path: str) -> None:
        """Checks what a map holds, such as metadata; the map itself is at level 0."""
        self._begin(path)
        self._map(values, None, 0)

    def value(self, value: Any, path: str) -> None:
        """Checks one value, at level 0."""
        self._begin(path)
        self._value(value, None, 0)

    def members(self, values: Iterable[Any], path: str) -> None:
        """Checks each of several values, each at level 0; `path` is that of the list."""
        for index, value in enumerate(values):
            self._begin(path)
            self._value(value, (None, index), 0)

    def _begin(self, path: str) -> None:
        self._path = path
        self._left = LIMITS.max_metadata_values

    def _map(self, values: Mapping[Any, Any], place: Place, level: int) -> None:
        for key, value in values.items():
            if not isinstance(key, str):
                self._tell(place, f"has a key that is not a string but {type(key).__name__}")
            elif fault := find_text_fault(key):
                self._tell((place, key), fault)
            else:
                self._value(value, (place, key), level + 1)

    def _value(self, value: Any, place: Place, level: int) -> None:
        self._left -= 1
        if self._left < 0:
            if self._left == -1:
                self._tell(place, f"is one of more than {LIMITS.max_metadata_values} values")
        elif level > self._max_levels:
            self._tell(place, f"is nested more than {self._max_levels} levels deep")
        elif type(value) not in _SCALARS and isinstance(value, (list, tuple, Mapping)):
            if isinstance(value, Mapping):
                self._map(cast("Mapping[Any, Any]", value), place, level)
            else:
                for index, member in enumerate(cast("Iterable[Any]", value)):
                    self._value(member, (place, index), level + 1)
        elif fault := find_scalar_fault(value):
            self._tell(place, fault)

    def _tell(self, place: Place, fault: str) -> None:
        self._violations[write_path(self._path, place)] = fault
