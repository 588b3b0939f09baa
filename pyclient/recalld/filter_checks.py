"""Whether a filter is one: what a field can be compared to, and how large a filter may be.

An attribute has a type, so a condition that asks for a value of another type can never hold; it is refused, and the
refusal says what the attribute takes. Metadata is the caller's and has no types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from recalld.filters import (
    FIELDS,
    All,
    AnyOf,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Kind,
    Not,
    Op,
)
from recalld.item import MemoryStatus, Visibility
from recalld.limits import LIMITS
from recalld.values import ValueChecks, Violations, find_text_fault, name_type

Condition = Compare | In | Exists | Contains

#: The values of attributes that have few, as filters see them. Deleted memories are never returned.
NAMES: Mapping[str, tuple[str, ...]] = {
    "visibility": tuple(each.name.lower() for each in Visibility if each),
    "status": tuple(each.name.lower() for each in MemoryStatus if each and each is not MemoryStatus.DELETED),
}

_TAKES = {
    Kind.STRING: "a string",
    Kind.INTEGER: "a number",
    Kind.DOUBLE: "a number",
    Kind.BOOLEAN: "true or false",
    Kind.TIME: "a time: an aware datetime, on the wire a timestamp_value",
}
_TYPES: Mapping[Kind, tuple[type, ...]] = {
    Kind.STRING: (str,),
    Kind.INTEGER: (int, float),
    Kind.DOUBLE: (int, float),
    Kind.BOOLEAN: (bool,),
    Kind.TIME: (datetime,),
}
_EQUALITY = frozenset((Op.EQ, Op.NE))
_SHOWN = 64


def find_misfits(condition: Condition) -> Iterator[tuple[int | None, str]]:
    """What a condition asks of its field that no item can ever have: where it stands among the values of an `In` (None
    in every other condition), and why. Nothing for metadata."""
    name = condition.field.name
    kind = FIELDS.get(name)
    if kind is None or isinstance(condition, Exists):
        return
    if isinstance(condition, In):
        yield from _find_misfits_among(name, kind, condition.values)
    elif isinstance(condition, Contains) and kind is not Kind.STRING:
        yield None, f"{name} takes {_TAKES[kind]}; only a string or a list contains anything"
    elif kind is Kind.BOOLEAN and isinstance(condition, Compare) and condition.op not in _EQUALITY:
        yield None, f"{name} takes {_TAKES[kind]}, and these have no order"
    elif misfit := _find_misfit(name, kind, condition.value, part=isinstance(condition, Contains)):
        yield None, misfit


def _find_misfits_among(name: str, kind: Kind, values: tuple[Any, ...]) -> Iterator[tuple[int, str]]:
    # There may be very many, and nearly always they are all of one right type.
    if name not in NAMES and set(map(type, values)) <= set(_TYPES[kind]):
        return
    for index, value in enumerate(values):
        if misfit := _find_misfit(name, kind, value, part=False):
            yield index, misfit


def _find_misfit(name: str, kind: Kind, value: Any, *, part: bool) -> str | None:
    """part: whether a part of what the field holds will do."""
    names = NAMES.get(name)
    if names is not None and isinstance(value, str):
        fits = any(value in each for each in names) if part else value in names
    else:
        fits = isinstance(value, _TYPES[kind]) and (kind is Kind.BOOLEAN or not isinstance(value, bool))
    if fits:
        return None
    takes = f"one of {', '.join(map(repr, names))}" if names else _TAKES[kind]
    return f"{name} takes {takes}, not {_show(value)}"


def _show(value: Any) -> str:
    if value is None:
        return "null; whether it is set is what `exists` asks"
    if isinstance(value, str):
        return f"the string {value[:_SHOWN]!r}"
    return str(value)[:_SHOWN] if isinstance(value, (int, float)) else name_type(value)


class FilterBounds:
    """Counts the conditions of one filter, those that join others included, and records what is over the limits."""

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._conditions = 0

    def enter(self, path: str, level: int) -> bool:
        """Whether one more condition, at this level from 1, is within the limits."""
        self._conditions += 1
        if level > LIMITS.max_filter_levels:
            self._violations[path] = f"is nested more than {LIMITS.max_filter_levels} levels deep"
            return False
        if self._conditions > LIMITS.max_filter_conditions:
            if self._conditions == LIMITS.max_filter_conditions + 1:
                self._violations[path] = f"is one of more than {LIMITS.max_filter_conditions} conditions"
            return False
        return True

    def check_count(self, count: int, path: str) -> bool:
        """Whether a test of membership has no more values than the limit."""
        if count <= LIMITS.max_in_values:
            return True
        self._violations[path] = f"must hold at most {LIMITS.max_in_values} values, not {count}"
        return False


def check_filter(filter: Filter, path: str, violations: Violations) -> None:
    """Records everything in a filter that the contract refuses, by the paths of the wire, for example
    `where.all.filters[1].compare.value`."""
    _Checks(violations).node(filter, path, 1)


class _Checks:
    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self._bounds = FilterBounds(violations)
        self._values = ValueChecks(violations, max_levels=LIMITS.max_filter_value_levels)

    def node(self, filter: Filter, path: str, level: int) -> None:
        if not self._bounds.enter(path, level):
            return
        match filter:
            case All(filters):
                self._list(filters, f"{path}.all.filters", level)
            case AnyOf(filters):
                self._list(filters, f"{path}.any.filters", level)
            case Not(inner):
                self.node(inner, f"{path}.not", level + 1)
            case Exists(field):
                self._field(field, f"{path}.exists")
            case In(field, values):
                self._field(field, f"{path}.in.field")
                if self._bounds.check_count(len(values), f"{path}.in.values"):
                    self._values.members(values, f"{path}.in.values")
                    for index, why in find_misfits(filter):
                        self._violations.setdefault(f"{path}.in.values[{index}]", why)
            case Compare(field, _, value) | Contains(field, value):
                path = f"{path}.{'compare' if isinstance(filter, Compare) else 'contains'}"
                self._field(field, f"{path}.field")
                self._values.value(value, f"{path}.value")
                for _, why in find_misfits(filter):
                    self._violations.setdefault(f"{path}.value", why)
            case _:
                self._violations[path] = f"is a {name_type(filter)}, which is no condition"

    def _list(self, filters: tuple[Filter, ...], path: str, level: int) -> None:
        if not filters:
            self._violations[path] = "must hold at least one condition"
        for index, member in enumerate(filters):
            self.node(member, f"{path}[{index}]", level + 1)

    def _field(self, field: Field, path: str) -> None:
        known = field.path if field.name == "metadata" else field.name in FIELDS and not field.path
        if not known:
            self._violations[path] = f"names {str(field)!r}, which is no field of a filter"
        elif fault := find_text_fault(str(field)):
            self._violations[path] = fault
