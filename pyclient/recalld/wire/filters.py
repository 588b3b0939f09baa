"""Filter trees, to and from the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recalld.errors import InvalidFilter
from recalld.filter_checks import Condition, FilterBounds, check_filter, find_misfits
from recalld.filters import All, AnyOf, Compare, Contains, Exists, Field, Filter, In, Not, Op, parse_field
from recalld.limits import LIMITS
from recalld.v1 import filter_pb2, item_pb2
from recalld.values import Violations
from recalld.wire.values import decode_value, decode_values, fill_value

#: How deep conditions may nest: no deeper than what every source can evaluate. With MAX_VALUE_LEVELS it also keeps a
#: request inside the 100 messages that protobuf parses.
MAX_FILTER_LEVELS = LIMITS.max_filter_levels

#: How deep a value that a condition compares to may nest.
MAX_VALUE_LEVELS = LIMITS.max_filter_value_levels

#: The most conditions in one filter, those that join others included. A test of one field against many values is one.
MAX_CONDITIONS = LIMITS.max_filter_conditions

#: A filter with this many violations is not looked at any further.
_ENOUGH = 100

_OPERATORS: Mapping[Op, filter_pb2.ComparisonOperator] = {
    Op.EQ: filter_pb2.COMPARISON_OPERATOR_EQUAL,
    Op.NE: filter_pb2.COMPARISON_OPERATOR_NOT_EQUAL,
    Op.LT: filter_pb2.COMPARISON_OPERATOR_LESS,
    Op.LE: filter_pb2.COMPARISON_OPERATOR_LESS_OR_EQUAL,
    Op.GT: filter_pb2.COMPARISON_OPERATOR_GREATER,
    Op.GE: filter_pb2.COMPARISON_OPERATOR_GREATER_OR_EQUAL,
}
_OPS: Mapping[int, Op] = {
    filter_pb2.COMPARISON_OPERATOR_UNSPECIFIED: Op.EQ,
    **{int(number): op for op, number in _OPERATORS.items()},
}


def encode_filter(filter: Filter, path: str = "where") -> filter_pb2.Filter:
    """The filter on the wire. Raises InvalidFilter with every violation."""
    violations: Violations = {}
    check_filter(filter, path, violations)
    if violations:
        raise InvalidFilter(violations=violations)
    encoded = filter_pb2.Filter()
    _fill(encoded, filter)
    return encoded


def _fill(target: filter_pb2.Filter, filter: Filter) -> None:
    match filter:
        case All(filters):
            _fill_list(target.all, filters)
        case AnyOf(filters):
            _fill_list(target.any, filters)
        case Not(inner):
            getattr(target, "not").SetInParent()
            _fill(getattr(target, "not"), inner)
        case Compare(field, op, value):
            target.compare.operator = _OPERATORS[op]
            _fill_comparison(target.compare, field, value)
        case Contains(field, value):
            _fill_comparison(target.contains, field, value)
        case In(field, values):
            inside: filter_pb2.Membership = getattr(target, "in")
            inside.field = str(field)
            for value in values:
                fill_value(inside.values.add(), value)
        case Exists(field):
            target.exists = str(field)


def _fill_list(target: filter_pb2.FilterList, filters: Sequence[Filter]) -> None:
    for member in filters:
        _fill(target.filters.add(), member)


def _fill_comparison(target: filter_pb2.Comparison, field: Field, value: Any) -> None:
    target.field = str(field)
    fill_value(target.value, value)


def decode_filter(filter: filter_pb2.Filter, path: str, violations: Violations) -> Filter | None:
    """The condition of a message; None when it is unset, which matches everything, or has a violation.

    Violations name the place, for example `where.all.filters[1].compare.field`. After a hundred or so the rest is not
    looked at.
    """
    if filter.WhichOneof("node") is None:
        return None
    decoder = _Decoder()
    decoded = decoder.read(filter, path, 1)
    violations.update(decoder.violations)
    return None if decoder.violations else decoded


class _Decoder:
    def __init__(self) -> None:
        self.violations: Violations = {}
        self._bounds = FilterBounds(self.violations)

    def read(self, filter: filter_pb2.Filter, path: str, level: int) -> Filter | None:
        if len(self.violations) >= _ENOUGH or not self._bounds.enter(path, level):
            return None
        match filter.WhichOneof("node"):
            case "all":
                return All(self._list(filter.all, f"{path}.all.filters", level))
            case "any":
                return AnyOf(self._list(filter.any, f"{path}.any.filters", level))
            case "not":
                inner = self.read(getattr(filter, "not"), f"{path}.not", level + 1)
                return None if inner is None else Not(inner)
            case "compare":
                return self._compare(filter.compare, f"{path}.compare")
            case "in":
                return self._in(getattr(filter, "in"), f"{path}.in")
            case "exists":
                field = self._field(filter.exists, f"{path}.exists")
                return None if field is None else Exists(field)
            case "contains":
                path = f"{path}.contains"
                field = self._field(filter.contains.field, f"{path}.field")
                value = self._value(filter.contains.value, f"{path}.value")
                return None if field is None else self._fitting(Contains(field, value), f"{path}.value")
            case _:
                self.violations[path] = "has no condition set"
                return None

    def _list(self, filters: filter_pb2.FilterList, path: str, level: int) -> tuple[Filter, ...]:
        if not filters.filters:
            self.violations[path] = "must hold at least one condition"
        members = (self.read(member, f"{path}[{index}]", level + 1) for index, member in enumerate(filters.filters))
        return tuple(member for member in members if member is not None)

    def _compare(self, comparison: filter_pb2.Comparison, path: str) -> Filter | None:
        field = self._field(comparison.field, f"{path}.field")
        op = _OPS.get(comparison.operator)
        if op is None:
            self.violations[f"{path}.operator"] = f"is {int(comparison.operator)}, which is not a known operator"
        value = self._value(comparison.value, f"{path}.value")
        return None if field is None or op is None else self._fitting(Compare(field, op, value), f"{path}.value")

    def _in(self, membership: filter_pb2.Membership, path: str) -> Filter | None:
        field = self._field(membership.field, f"{path}.field")
        path = f"{path}.values"
        if not self._bounds.check_count(len(membership.values), path):
            return None
        values = decode_values(membership.values, path, self.violations, max_levels=MAX_VALUE_LEVELS)
        return None if field is None else self._fitting(In(field, tuple(values)), path)

    def _field(self, text: str, path: str) -> Field | None:
        try:
            return parse_field(text)
        except InvalidFilter as error:
            self.violations[path] = error.message
            return None

    def _value(self, value: item_pb2.Value, path: str) -> Any:
        return decode_value(value, path, self.violations, max_levels=MAX_VALUE_LEVELS)

    def _fitting(self, condition: Condition, path: str) -> Filter:
        """The condition, after what it asks for in vain is recorded; `path` is that of its value or its values."""
        for index, why in find_misfits(condition):
            # What is wrong with the value itself comes first: it stands as null here.
            self.violations.setdefault(path if index is None else f"{path}[{index}]", why)
        return condition
