"""The `where` dict of the library: read into a filter, and written from one.

A key names a field. `id` and `content` are the item's own, `attributes.<name>` is an attribute; every other key is one
of metadata, a dot going into a map, and `metadata.<key>` is one of metadata whatever it is called: `metadata.id`. A
backslash takes the next character as part of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeGuard, cast

from recalld.errors import InvalidFilter, WrongType
from recalld.filter_checks import Condition, find_misfits
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
    join_path,
    split_path,
)
from recalld.frozen import freeze
from recalld.limits import LIMITS
from recalld.values import ValueChecks, Violations, name_type

#: The most values of `$in` and `$nin`.
MAX_IN_VALUES = LIMITS.max_in_values

_TOO_DEEP = "nests too deep, or contains itself"
_KEY_SHOWN = 64


def parse_where(where: Mapping[str, Any] | Filter | None) -> Filter | None:
    """The filter that a `where` means; None when it is None or empty. A filter is that filter.

    Raises InvalidFilter (a ValueError) for an unknown operator or attribute and for a value that its field can never
    have, naming the place, for example `where.page.$in[3]`; WrongType (a TypeError, too) for what is no `where` at all.
    """
    if _is_filter(where):
        return where
    try:
        return _parse(_as_mapping(where), "where")
    except RecursionError:
        raise InvalidFilter(violations={"where": _TOO_DEEP}) from None


def copy_where(where: Mapping[str, Any] | Filter | None) -> dict[str, Any]:
    """A `where` as a new dict, for a source that has keys of its own or hands it on; empty for None.

    A key at the top may be a word of the source's own, such as `path_prefix`; in a typed filter it never is, so that is
    written one level below. Raises WrongType for what is neither a dict nor a filter.
    """
    return {"$and": [format_where(where)]} if _is_filter(where) else dict(_as_mapping(where))


def check_operators(where: Mapping[str, Any] | None) -> None:
    """Raises InvalidFilter for an unknown operator, and leaves every other key and value to whoever takes them.

    Raises WrongType for what is no dict. For a `where` that is handed on to something with its own idea of fields, such
    as a tool.
    """
    try:
        _check_operators(_as_mapping(where), "where")
    except RecursionError:
        raise InvalidFilter(violations={"where": _TOO_DEEP}) from None


def _is_filter(where: Any) -> TypeGuard[Filter]:
    return isinstance(where, (All, AnyOf, Not, Compare, In, Exists, Contains))


def _as_mapping(where: Any) -> Mapping[str, Any]:
    if where is None:
        return {}
    if not isinstance(where, Mapping):
        fault = f"must be a dict or a filter, not {name_type(where)}"
        raise WrongType(violations={"where": fault})
    return cast("Mapping[str, Any]", where)


def _fail(path: str, fault: str) -> NoReturn:
    raise InvalidFilter(violations={path: fault})


def _below(path: str, key: Any) -> str:
    """The path of a key; long keys are cut."""
    shown = (key if isinstance(key, str) else repr(key))[:_KEY_SHOWN]
    return f"{path}.{shown.encode('utf-8', 'backslashreplace').decode()}"


def _check_operators(where: Mapping[Any, Any], path: str) -> None:
    for key, value in where.items():
        place = _below(path, key)
        if isinstance(key, str) and key.startswith("$") and key not in _KNOWN:
            _fail(place, "is an unknown operator")
        members = cast("Iterable[Any]", value) if isinstance(value, (list, tuple)) else (value,)
        for member in members:
            if isinstance(member, Mapping):
                _check_operators(cast("Mapping[Any, Any]", member), place)


# Reading.


def _parse(where: Mapping[str, Any], path: str) -> Filter | None:
    return _all(_entry(key, value, _below(path, key)) for key, value in where.items()) if where else None


def _all(filters: Iterable[Filter]) -> Filter:
    found = tuple(filters)
    return found[0] if len(found) == 1 else All(found)


def _entry(key: Any, value: Any, path: str) -> Filter:
    if not isinstance(key, str):
        _fail(path, f"is a key that is no string but {name_type(key)}")
    if key in ("$and", "$or"):
        return (All if key == "$and" else AnyOf)(tuple(_branches(value, path)))
    if key == "$not":
        return Not(_branch(value, path))
    if key.startswith("$"):
        _fail(path, "is an unknown operator")
    return _conditions(_field(key, path), value, path)


def _branches(value: Any, path: str) -> Iterable[Filter]:
    if not isinstance(value, (list, tuple)) or not value:
        _fail(path, "takes a list of at least one condition")
    return (_branch(member, f"{path}[{index}]") for index, member in enumerate(cast("Sequence[Any]", value)))


def _branch(value: Any, path: str) -> Filter:
    if _is_filter(value):
        return value
    parsed = _parse(cast("Mapping[str, Any]", value), path) if isinstance(value, Mapping) else None
    if parsed is None:
        _fail(path, "takes conditions that are not empty")
    return parsed


def _field(key: str, path: str) -> Field:
    try:
        keys = split_path(key)
    except InvalidFilter as error:
        _fail(path, error.message)
    if keys in (("id",), ("content",)):
        return Field(keys[0])
    if len(keys) == 1 or keys[0] not in ("metadata", "attributes"):
        return Field("metadata", keys)
    if keys[0] == "metadata":
        return Field("metadata", keys[1:])
    if len(keys) != 2 or keys[1] not in ATTRIBUTES:
        _fail(path, "is an unknown attribute")
    return Field(keys[1])


def _conditions(field: Field, value: Any, path: str) -> Filter:
    if not isinstance(value, Mapping):
        return _comparison(Op.EQ)(field, value, path)
    operators = cast("Mapping[Any, Any]", value)
    marked = [name for name in operators if isinstance(name, str) and name.startswith("$")]
    if not marked:
        return _comparison(Op.EQ)(field, operators, path)
    if len(marked) != len(operators):
        _fail(path, "mixes operators and plain keys")
    return _all(_operation(field, name, operand, _below(path, name)) for name, operand in operators.items())


def _operation(field: Field, operator: str, operand: Any, path: str) -> Filter:
    if operator == "$not":
        if not isinstance(operand, Mapping):
            _fail(path, "takes operators")
        return Not(_conditions(field, operand, path))
    build = _OPERATORS.get(operator)
    if build is None:
        _fail(path, "is an unknown operator")
    return build(field, operand, path)


_Build = Callable[[Field, Any, str], Filter]


def _comparison(op: Op) -> _Build:
    return lambda field, operand, path: _fitting(Compare(field, op, _value(operand, path)), path)


def _in(field: Field, operand: Any, path: str) -> Filter:
    if not isinstance(operand, (list, tuple, set, frozenset)):
        _fail(path, f"takes a list, not {name_type(operand)}")
    members = cast("Sequence[Any]", operand)
    if len(members) > MAX_IN_VALUES:
        _fail(path, f"takes at most {MAX_IN_VALUES} values, not {len(members)}")
    values = tuple(_value(member, f"{path}[{index}]") for index, member in enumerate(members))
    return _fitting(In(field, values), path)


def _contains(field: Field, operand: Any, path: str) -> Filter:
    return _fitting(Contains(field, _value(operand, path)), path)


def _exists(field: Field, operand: Any, path: str) -> Filter:
    if not isinstance(operand, bool):
        _fail(path, f"takes true or false, not {name_type(operand)}")
    return Exists(field) if operand else Not(Exists(field))


_OPERATORS: Mapping[str, _Build] = {
    "$eq": _comparison(Op.EQ),
    "$ne": _comparison(Op.NE),
    "$gt": _comparison(Op.GT),
    "$gte": _comparison(Op.GE),
    "$lt": _comparison(Op.LT),
    "$lte": _comparison(Op.LE),
    "$in": _in,
    "$nin": lambda field, operand, path: Not(_in(field, operand, path)),
    "$exists": _exists,
    "$contains": _contains,
}

_KNOWN = frozenset({*_OPERATORS, "$and", "$or", "$not"})


def _value(value: Any, path: str) -> Any:
    """A frozen copy of the value, checked to be one that metadata can hold."""
    violations: Violations = {}
    ValueChecks(violations, max_levels=LIMITS.max_filter_value_levels).value(value, path)
    if violations:
        raise InvalidFilter(violations=violations)
    return freeze(value)


def _fitting(condition: Condition, path: str) -> Filter:
    violations = {path if at is None else f"{path}[{at}]": why for at, why in find_misfits(condition)}
    if violations:
        raise InvalidFilter(violations=violations)
    return condition


# Writing.

_SIGNS: Mapping[Op, str] = {
    Op.EQ: "$eq", Op.NE: "$ne", Op.GT: "$gt", Op.GE: "$gte", Op.LT: "$lt", Op.LE: "$lte"
}  # fmt: skip


def format_where(filter: Filter) -> dict[str, Any]:
    """The `where` of a filter: `parse_where` makes the same filter of it.

    It is written as a person would, `{"page": 3, "tag": {"$in": ["a"]}}`, for sources that read `where` themselves.
    Raises InvalidFilter for one that nests too deep to be written.
    """
    try:
        return _format(filter)
    except RecursionError:
        raise InvalidFilter(violations={"where": _TOO_DEEP}) from None


def _format(filter: Filter) -> dict[str, Any]:
    match filter:
        case All(filters):
            return _format_all([_format(each) for each in filters])
        case AnyOf(filters):
            return {"$or": [_format(each) for each in filters]}
        case Not(inner):
            return {"$not": _format(inner)}
        case Exists(field):
            return {_key(field): {"$exists": True}}
        case In(field, values):
            return {_key(field): {"$in": list(values)}}
        case Contains(field, value):
            return {_key(field): {"$contains": value}}
        case Compare(field, op, value):
            plain = op is Op.EQ and not isinstance(value, Mapping)
            return {_key(field): value if plain else {_SIGNS[op]: value}}


def _format_all(members: list[dict[str, Any]]) -> dict[str, Any]:
    """One dict where each member is one entry of a key of its own; that is how an `All` is read."""
    keys = {key for member in members for key in member}
    if len(members) < 2 or len(keys) != len(members) or any(len(member) != 1 for member in members):
        return {"$and": members}
    return {key: value for member in members for key, value in member.items()}


def _key(field: Field) -> str:
    if field.name != "metadata":
        return field.name if field.name in ("id", "content") else f"attributes.{field.name}"
    if not field.path:
        raise InvalidFilter("a condition on metadata names a key")
    text = join_path(field.path)
    taken = field.path[0] in ("id", "content", "metadata", "attributes") or text.startswith("$")
    return f"metadata.{text}" if taken else text
