"""The `where` dict of the library, read into a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from recalld.errors import InvalidFilter
from recalld.filters import (
    ATTRIBUTES,
    All,
    AnyOf,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Not,
    Op,
    split_path,
)
from recalld.frozen import freeze

#: The most values of `$in` and `$nin`.
MAX_IN_VALUES = 1000


def parse_where(where: Mapping[str, Any] | Filter | None) -> Filter | None:
    """The filter that a `where` means; None when it is None or empty.

    Raises InvalidFilter (a ValueError) for an unknown operator or attribute and for a value that cannot be compared.
    """
    if isinstance(where, (All, AnyOf, Not, Compare, In, Exists, Contains)):
        return where
    try:
        return _parse(where)
    except RecursionError:
        raise InvalidFilter("where: nests too deep, or contains itself") from None


def _parse(where: Mapping[str, Any] | None) -> Filter | None:
    if not where:
        return None
    return _all(_entry(key, value) for key, value in where.items())


def format_where(filter: Filter | None) -> dict[str, Any] | None:
    """The `where` dict that means the filter; None for None. Raises InvalidFilter for what a `where` cannot say."""
    if filter is None:
        return None
    match filter:
        case All(filters):
            return {"$and": [format_where(each) for each in filters]}
        case AnyOf(filters):
            return {"$or": [format_where(each) for each in filters]}
        case Not(inner):
            return {"$not": format_where(inner)}
        case Compare(field, op, value):
            return {_format_field(field): {_SIGNS[op]: value}}
        case In(field, values):
            return {_format_field(field): {"$in": list(values)}}
        case Exists(field):
            return {_format_field(field): {"$exists": True}}
        case Contains(field, value):
            return {_format_field(field): {"$contains": value}}


_SIGNS = {Op.EQ: "$eq", Op.NE: "$ne", Op.GT: "$gt", Op.GE: "$gte", Op.LT: "$lt", Op.LE: "$lte"}


def _format_field(field: Field) -> str:
    if field.name == "metadata":
        return str(field).removeprefix("metadata.")
    if field.name in ATTRIBUTES:
        return f"attributes.{field.name}"
    raise InvalidFilter(f"where: cannot name {field.name!r}")


def check_operators(where: Mapping[str, Any] | None) -> None:
    """Raises InvalidFilter for an unknown operator and leaves every other key and value to whoever takes them.

    For a `where` that is handed on to something with its own idea of fields, such as a tool.
    """
    try:
        _check_operators(where or {})
    except RecursionError:
        raise InvalidFilter("where: nests too deep, or contains itself") from None


def _check_operators(where: Mapping[Any, Any]) -> None:
    for key, value in where.items():
        if isinstance(key, str) and key.startswith("$") and key not in _KNOWN:
            raise InvalidFilter(f"where: unknown operator {key!r}")
        members = cast("Iterable[Any]", value) if isinstance(value, (list, tuple)) else (value,)
        for member in members:
            if isinstance(member, Mapping):
                _check_operators(cast("Mapping[Any, Any]", member))


def _all(filters: Iterable[Filter]) -> Filter:
    found = tuple(filters)
    return found[0] if len(found) == 1 else All(found)


def _entry(key: Any, value: Any) -> Filter:
    if not isinstance(key, str):
        raise InvalidFilter(f"where: key {key!r} is not a string")
    if key in ("$and", "$or"):
        return (All if key == "$and" else AnyOf)(tuple(_branches(key, value)))
    if key == "$not":
        return Not(_branch(key, value))
    if key.startswith("$"):
        raise InvalidFilter(f"where: unknown operator {key!r}")
    return _conditions(_field(key), key, value)


def _branches(key: str, value: Any) -> Iterable[Filter]:
    if not isinstance(value, (list, tuple)) or not value:
        raise InvalidFilter(f"where: {key} takes a list of at least one condition")
    return (_branch(key, member) for member in cast("list[Any]", value))


def _branch(key: str, value: Any) -> Filter:
    parsed = _parse(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else None
    if parsed is None:
        raise InvalidFilter(f"where: {key} takes conditions that are not empty")
    return parsed


def _field(key: str) -> Field:
    keys = split_path(key)
    if keys[0] == "attributes" and len(keys) > 1:
        if len(keys) != 2 or keys[1] not in ATTRIBUTES:
            raise InvalidFilter(f"where: unknown attribute {key!r}")
        return Field(keys[1])
    return Field("metadata", keys)


def _conditions(field: Field, key: str, value: Any) -> Filter:
    if not isinstance(value, Mapping):
        return Compare(field, Op.EQ, _value(key, value))
    operators = cast("Mapping[Any, Any]", value)
    marked = [name for name in operators if isinstance(name, str) and name.startswith("$")]
    if not marked:
        return Compare(field, Op.EQ, _value(key, operators))
    if len(marked) != len(operators):
        raise InvalidFilter(f"where: {key!r} mixes operators and plain keys")
    return _all(_condition(field, key, name, operand) for name, operand in operators.items())


def _condition(field: Field, key: str, operator: str, operand: Any) -> Filter:
    if operator == "$not":
        if not isinstance(operand, Mapping):
            raise InvalidFilter(f"where: $not of {key!r} takes operators")
        return Not(_conditions(field, key, operand))
    build = _OPERATORS.get(operator)
    if build is None:
        raise InvalidFilter(f"where: unknown operator {operator!r} at {key!r}")
    return build(field, key, operand)


def _comparing(op: Op) -> Callable[[Field, str, Any], Filter]:
    return lambda field, key, operand: Compare(field, op, _value(key, operand))


def _in(field: Field, key: str, operand: Any) -> Filter:
    if not isinstance(operand, (list, tuple, set, frozenset)):
        raise InvalidFilter(f"where: $in and $nin of {key!r} take a list")
    values = tuple(_value(key, member) for member in cast("Iterable[Any]", operand))
    if not 1 <= len(values) <= MAX_IN_VALUES:
        raise InvalidFilter(f"where: $in and $nin of {key!r} take 1 to {MAX_IN_VALUES} values, not {len(values)}")
    return In(field, values)


def _exists(field: Field, key: str, operand: Any) -> Filter:
    if not isinstance(operand, bool):
        raise InvalidFilter(f"where: $exists of {key!r} takes true or false")
    return Exists(field) if operand else Not(Exists(field))


_OPERATORS: Mapping[str, Callable[[Field, str, Any], Filter]] = {
    "$eq": _comparing(Op.EQ),
    "$ne": _comparing(Op.NE),
    "$gt": _comparing(Op.GT),
    "$gte": _comparing(Op.GE),
    "$lt": _comparing(Op.LT),
    "$lte": _comparing(Op.LE),
    "$in": _in,
    "$nin": lambda field, key, operand: Not(_in(field, key, operand)),
    "$exists": _exists,
    "$contains": lambda field, key, operand: Contains(field, _value(key, operand)),
}

_KNOWN = frozenset({*_OPERATORS, "$and", "$or", "$not"})


def _value(key: str, value: Any) -> Any:
    """A frozen copy of the value, checked to be one that metadata can hold."""
    _check(key, value)
    return freeze(value)


def _check(key: str, value: Any) -> None:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidFilter(f"where: {key!r} compares to {value}, which is not finite")
    elif isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise InvalidFilter(f"where: {key!r} compares to an integer over 64 bits")
    elif isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidFilter(f"where: {key!r} compares to a time without a zone")
    elif isinstance(value, Mapping):
        for name, member in cast("Mapping[Any, Any]", value).items():
            if not isinstance(name, str):
                raise InvalidFilter(f"where: {key!r} compares to a map with a key that is not a string")
            _check(key, member)
    elif isinstance(value, (list, tuple)):
        for member in cast("Iterable[Any]", value):
            _check(key, member)
    elif not (value is None or isinstance(value, (bool, str))):
        raise InvalidFilter(f"where: {key!r} compares to a {type(value).__name__}, which metadata cannot hold")
