"""Filter trees, to and from the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recalld.errors import InvalidFilter
from recalld.filters import All, AnyOf, Compare, Contains, Exists, Field, Filter, In, Not, Op, parse_field
from recalld.v1 import filter_pb2, item_pb2
from recalld.where import MAX_IN_VALUES
from recalld.wire.values import ValueEncoder, Violations, checked_text, decode_value

#: How deep conditions may nest: no deeper than what every source can evaluate. With MAX_VALUE_LEVELS it also keeps a
#: request inside the 100 messages that protobuf parses.
MAX_FILTER_LEVELS = 16

#: How deep a value that a condition compares to may nest.
MAX_VALUE_LEVELS = 10

#: The most conditions in one filter, those that join others included. A test of one field against many values is one.
MAX_CONDITIONS = 256

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
    encoder = _Encoder()
    encoded = filter_pb2.Filter()
    encoder.fill(encoded, filter, path, 1)
    if encoder.violations:
        raise InvalidFilter(violations=encoder.violations)
    return encoded


def decode_filter(filter: filter_pb2.Filter, path: str, violations: Violations) -> Filter | None:
    """The condition of a message; None when it is unset, which matches everything, or has a violation.

    Violations name the place, for example `where.all.filters[1].compare.field`.
    """
    if filter.WhichOneof("node") is None:
        return None
    decoder = _Decoder()
    decoded = decoder.node(filter, path, 1)
    violations.update(decoder.violations)
    return None if decoder.violations else decoded


class _Walk:
    """What both directions share: the violations found and the conditions seen."""

    def __init__(self) -> None:
        self.violations: Violations = {}
        self._conditions = 0

    def enter(self, path: str, level: int) -> bool:
        """Whether one more condition, at this level, is within the limits."""
        self._conditions += 1
        if level > MAX_FILTER_LEVELS:
            self.violations[path] = f"is nested more than {MAX_FILTER_LEVELS} levels deep"
            return False
        if self._conditions > MAX_CONDITIONS:
            if self._conditions == MAX_CONDITIONS + 1:
                self.violations[path] = f"is one of more than {MAX_CONDITIONS} conditions"
            return False
        return True

    def check_count(self, count: int, path: str) -> None:
        """Records a membership test against too few or too many values."""
        if not 1 <= count <= MAX_IN_VALUES:
            self.violations[path] = f"must hold 1 to {MAX_IN_VALUES} values, not {count}"


class _Encoder(_Walk):
    def fill(self, target: filter_pb2.Filter, filter: Filter, path: str, level: int) -> None:
        if not self.enter(path, level):
            return
        match filter:
            case All(filters):
                self._list(target.all, filters, f"{path}.all.filters", level)
            case AnyOf(filters):
                self._list(target.any, filters, f"{path}.any.filters", level)
            case Not(inner):
                getattr(target, "not").SetInParent()
                self.fill(getattr(target, "not"), inner, f"{path}.not", level + 1)
            case Compare(field, op, value):
                target.compare.operator = _OPERATORS[op]
                self._comparison(target.compare, field, value, f"{path}.compare")
            case Contains(field, value):
                self._comparison(target.contains, field, value, f"{path}.contains")
            case In(field, values):
                inside: filter_pb2.Membership = getattr(target, "in")
                inside.field = self._field(field, f"{path}.in.field")
                self.check_count(len(values), f"{path}.in.values")
                for index, value in enumerate(values):
                    self._value(inside.values.add(), value, f"{path}.in.values[{index}]")
            case Exists(field):
                target.exists = self._field(field, f"{path}.exists")

    def _list(self, target: filter_pb2.FilterList, filters: Sequence[Filter], path: str, level: int) -> None:
        target.SetInParent()
        if not filters:
            self.violations[path] = "must hold at least one condition"
        for index, member in enumerate(filters):
            self.fill(target.filters.add(), member, f"{path}[{index}]", level + 1)

    def _comparison(self, target: filter_pb2.Comparison, field: Field, value: Any, path: str) -> None:
        target.field = self._field(field, f"{path}.field")
        self._value(target.value, value, f"{path}.value")

    def _field(self, field: Field, path: str) -> str:
        return checked_text(str(field), path, self.violations)

    def _value(self, target: item_pb2.Value, value: Any, path: str) -> None:
        ValueEncoder(self.violations, max_levels=MAX_VALUE_LEVELS).fill(target, value, path)


class _Decoder(_Walk):
    def node(self, filter: filter_pb2.Filter, path: str, level: int) -> Filter | None:
        if not self.enter(path, level):
            return None
        match filter.WhichOneof("node"):
            case "all":
                return All(self._list(filter.all, f"{path}.all.filters", level))
            case "any":
                return AnyOf(self._list(filter.any, f"{path}.any.filters", level))
            case "not":
                inner = self.node(getattr(filter, "not"), f"{path}.not", level + 1)
                return None if inner is None else Not(inner)
            case "compare":
                return self._compare(filter.compare, f"{path}.compare")
            case "in":
                return self._in(getattr(filter, "in"), f"{path}.in")
            case "exists":
                field = self._field(filter.exists, f"{path}.exists")
                return None if field is None else Exists(field)
            case "contains":
                field = self._field(filter.contains.field, f"{path}.contains.field")
                value = self._operand(filter.contains, f"{path}.contains")
                return None if field is None else Contains(field, value)
            case _:
                self.violations[path] = "has no condition set"
                return None

    def _list(self, filters: filter_pb2.FilterList, path: str, level: int) -> tuple[Filter, ...]:
        if not filters.filters:
            self.violations[path] = "must hold at least one condition"
        members = (self.node(member, f"{path}[{index}]", level + 1) for index, member in enumerate(filters.filters))
        return tuple(member for member in members if member is not None)

    def _compare(self, comparison: filter_pb2.Comparison, path: str) -> Filter | None:
        field = self._field(comparison.field, f"{path}.field")
        op = _OPS.get(comparison.operator)
        if op is None:
            self.violations[f"{path}.operator"] = f"is {int(comparison.operator)}, which is not a known operator"
        value = self._operand(comparison, path)
        return None if field is None or op is None else Compare(field, op, value)

    def _in(self, membership: filter_pb2.Membership, path: str) -> Filter | None:
        field = self._field(membership.field, f"{path}.field")
        self.check_count(len(membership.values), f"{path}.values")
        values = tuple(
            self._value(value, f"{path}.values[{index}]")
            for index, value in enumerate(membership.values[:MAX_IN_VALUES])
        )
        return None if field is None else In(field, values)

    def _field(self, text: str, path: str) -> Field | None:
        try:
            return parse_field(text)
        except InvalidFilter as error:
            self.violations[path] = error.message
            return None

    def _operand(self, comparison: filter_pb2.Comparison, path: str) -> Any:
        return self._value(comparison.value, f"{path}.value")

    def _value(self, value: item_pb2.Value, path: str) -> Any:
        return decode_value(value, path, self.violations, max_levels=MAX_VALUE_LEVELS)
