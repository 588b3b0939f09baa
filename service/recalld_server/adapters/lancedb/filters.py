"""Filters compiled to the conditions that LanceDB evaluates inside a search.

`recalld.filters.matches` says what a filter means, and it is two-valued. SQL is three-valued, so every leaf is made
never null, and negation is pushed down to the leaves: there it is plain, and nested NOTs take LanceDB's planner
exponential time. Leaves of one field in one disjunction become one membership test.

LanceDB's parser gives up at 50 levels of its own, and it plans a condition on metadata for milliseconds. A filter
within the limits that `recalld.wire` states stays below both, together with the server's own conditions; what is above
is refused before it gets there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recalld.errors import InvalidFilter
from recalld.filters import (
    ATTRIBUTE_DEFAULTS,
    ATTRIBUTES,
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
    matches,
)
from recalld.item import MemoryItem
from recalld.wire import MAX_CONDITIONS, MAX_FILTER_LEVELS
from recalld_server.adapters.lancedb import sql
from recalld_server.adapters.lancedb.values import exists_token, member_token, path_digest, value_tokens

#: How many conditions the server may add to a caller's: who may read, what has expired, what is not active.
_OWN_CONDITIONS = 16
_PARSER_LEVELS = 40
_LEAF_LEVELS = 6
_CHUNK = 24

#: Rows that are memories and not deleted; joined to every filter.
LIVE = "live"


@dataclass(frozen=True, slots=True)
class _Group:
    """Members joined by `and` or `or`, flattened: no member is a group of the same word."""

    word: str
    members: tuple[_Node, ...]


_Node = bool | str | _Group


def compile_filter(where: Filter | None, source: str) -> str:
    """The SQL condition of live memories that match; `source` is the store's name, the `origin` of each.

    Conditions of one field in one disjunction are joined before they are counted, and a negation costs nothing, so
    some filters above the limits of `recalld.wire` pass too. Raises InvalidFilter for those that do not.
    """
    if where is None:
        return LIVE
    try:
        node = _Compiler(source).node(where, negated=False)
        return _render(_group("and", [LIVE, node]))
    except RecursionError as error:
        raise _too_deep() from error


def _too_deep() -> InvalidFilter:
    return InvalidFilter(f"the filter is nested too deep: {MAX_FILTER_LEVELS} levels are taken")


def _group(word: str, members: Sequence[_Node]) -> _Node:
    absorbing = word == "or"
    flat: list[_Node] = []
    for member in members:
        if member is absorbing:
            return absorbing
        if isinstance(member, _Group) and member.word == word:
            flat.extend(member.members)
        elif not isinstance(member, bool):
            flat.append(member)
    if not flat:
        return not absorbing
    return flat[0] if len(flat) == 1 else _Group(word, tuple(dict.fromkeys(flat)))


def _render(node: _Node) -> str:
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, str):
        return node
    if _conditions(node) > MAX_CONDITIONS + _OWN_CONDITIONS:
        raise InvalidFilter(f"the filter has {_conditions(node)} conditions; {MAX_CONDITIONS} are taken")
    text, levels = _text(node)
    if levels > _PARSER_LEVELS:
        raise _too_deep()
    return text


def _conditions(node: _Node) -> int:
    return sum(map(_conditions, node.members)) if isinstance(node, _Group) else 1


def _text(node: _Node) -> tuple[str, int]:
    """The text and how many levels of the parser it takes: one a parenthesis, one more behind an operator."""
    if not isinstance(node, _Group):
        return str(node), _LEAF_LEVELS
    parts = sorted((_text(member) for member in node.members), key=lambda part: -part[1])
    while len(parts) > _CHUNK:
        # A flat run becomes a tree as deep as the run is long; chunks keep that shallow.
        parts = [_joined(node.word, parts[at : at + _CHUNK]) for at in range(0, len(parts), _CHUNK)]
    return _joined(node.word, parts)


def _joined(word: str, parts: Sequence[tuple[str, int]]) -> tuple[str, int]:
    levels = max(level + (1 if at == 0 else 2) for at, (_, level) in enumerate(parts))
    return f"({f' {word} '.join(text for text, _ in parts)})", levels


class _Compiler:
    def __init__(self, source: str) -> None:
        self._sample = MemoryItem("", source)

    def node(self, filter: Filter, *, negated: bool) -> _Node:
        match filter:
            case Not(inner):
                return self.node(inner, negated=not negated)
            case All(filters):
                return _group("or" if negated else "and", [self.node(each, negated=negated) for each in filters])
            case AnyOf(filters):
                members = [self.node(each, negated=negated) for each in _joined_memberships(filters)]
                return _group("and" if negated else "or", members)
            case Compare(field, Op.NE, value):
                return self.node(Compare(field, Op.EQ, value), negated=not negated)
            case _:
                leaf = self._leaf(filter)
                if isinstance(leaf, bool):
                    return leaf is not negated
                return f"not coalesce({leaf}, false)" if negated else f"coalesce({leaf}, false)"

    def _leaf(self, filter: Compare | In | Exists | Contains) -> bool | str:
        """A condition that may be null where it is not met."""
        field = filter.field
        if field.name == "metadata":
            if not field.path:
                raise InvalidFilter("a filter on metadata names a key")
            return _metadata_leaf(filter, field.path)
        if field.name == "origin":
            return matches(filter, self._sample)
        if field.name in ("id", "content"):
            return _column_leaf(filter, field.name, Kind.STRING)
        if field.name not in ATTRIBUTES:
            raise InvalidFilter(f"unknown filter field {field.name!r}")
        kind = ATTRIBUTES[field.name]
        return _column_leaf(filter, _column(field.name, kind), kind)


def _column(name: str, kind: Kind) -> str:
    default = ATTRIBUTE_DEFAULTS.get(name)
    if default is None:
        return name
    return f"coalesce({name}, {sql.text(default) if kind is Kind.STRING else sql.double(default)})"


def _joined_memberships(filters: tuple[Filter, ...]) -> list[Filter]:
    """The same disjunction with equalities and memberships of one field as one membership."""
    wanted: dict[Field, list[Any]] = {}
    others: list[Filter] = []
    for each in filters:
        if isinstance(each, Compare) and each.op is Op.EQ:
            wanted.setdefault(each.field, []).append(each.value)
        elif isinstance(each, In):
            wanted.setdefault(each.field, []).extend(each.values)
        else:
            others.append(each)
    return [*others, *(In(field, tuple(values)) for field, values in wanted.items())]


# Columns: attributes, id and content.


def _column_leaf(filter: Compare | In | Exists | Contains, column: str, kind: Kind) -> bool | str:
    match filter:
        case Exists():
            return f"{column} is not null"
        case Contains(_, value):
            return f"contains({column}, {sql.text(value)})" if kind is Kind.STRING and isinstance(value, str) else False
        case In(_, values):
            return _either(_literals(kind, values), column)
        case Compare(_, Op.EQ, value):
            return _either(_literals(kind, (value,)), column)
        case Compare(_, op, value):
            return _ordered(column, kind, op, value)


def _literals(kind: Kind, values: Sequence[Any]) -> list[str]:
    """The literals that a column of the kind has to equal one of; values that it never equals are left out."""
    types = set(map(type, values))
    # Where there are very many they are of one type, and then the usual ones need no look at each.
    if kind is Kind.STRING and types == {str}:
        return sql.texts(values)
    if kind is Kind.INTEGER and types == {int} and min(values) > -(2**63) and max(values) < 2**63:
        return list(map(str, values))
    return [literal for value in values if (literal := _literal(kind, value)) is not None]


def _literal(kind: Kind, value: Any) -> str | None:
    """The literal that a column of the kind has to equal; None when it never does."""
    if kind is Kind.STRING:
        return sql.text(value) if isinstance(value, str) else None
    if kind is Kind.BOOLEAN:
        return str(value).lower() if isinstance(value, bool) else None
    if kind is Kind.TIME:
        return sql.time(value) if isinstance(value, datetime) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if kind is Kind.INTEGER:
        return sql.integer(int(value)) if value == int(value) and -(2**63) <= value < 2**63 else None
    nearest = _nearest_double(value)
    return sql.double(nearest) if nearest == value else None


def _either(literals: Sequence[str], column: str) -> bool | str:
    wanted = list(dict.fromkeys(literals))
    if not wanted:
        return False
    return f"{column} = {wanted[0]}" if len(wanted) == 1 else f"{column} in ({', '.join(wanted)})"


def _ordered(column: str, kind: Kind, op: Op, value: Any) -> bool | str:
    if kind is Kind.STRING:
        return f"{column} {_SIGNS[op]} {sql.text(value)}" if isinstance(value, str) else False
    if kind is Kind.TIME:
        return f"{column} {_SIGNS[op]} {sql.time(value)}" if isinstance(value, datetime) else False
    if kind is Kind.BOOLEAN or isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    bound = _integer_bound(op, value) if kind is Kind.INTEGER else _double_bound(op, value)
    if isinstance(bound, bool):
        return f"{column} is not null" if bound else False
    return f"{column} {bound}"


_SIGNS = {Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


def _integer_bound(op: Op, value: int | float) -> bool | str:
    """`op value` over 64-bit integers, exactly; a bool when it is met by every or by no integer."""
    if value != value:
        return False
    if math.isinf(value):
        return (value > 0) == (op in (Op.LT, Op.LE))
    # x < 2.5 is x < 3, and x <= 2.5 is x <= 2.
    edge = math.ceil(value) if op in (Op.LT, Op.GE) else math.floor(value)
    if -(2**63) <= edge < 2**63:
        return f"{_SIGNS[op]} {sql.integer(edge)}"
    return (edge > 0) == (op in (Op.LT, Op.LE))


def _double_bound(op: Op, value: int | float) -> bool | str:
    """`op value` over doubles, exactly also for an integer that no double equals."""
    if value != value:
        return False
    nearest = _nearest_double(value)
    if math.isinf(nearest):
        return (nearest > 0) == (op in (Op.LT, Op.LE))
    if nearest != value:
        # The doubles around the value are its bounds: below 2**53 + 1 lie those up to 2**53.
        around = (Op.LT, Op.GE) if nearest > value else (Op.LE, Op.GT)
        op = around[0] if op in (Op.LT, Op.LE) else around[1]
    return f"{_SIGNS[op]} {sql.double(nearest)}"


def _nearest_double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# Metadata.


def _metadata_leaf(filter: Compare | In | Exists | Contains, path: tuple[str, ...]) -> bool | str:
    match filter:
        case Exists():
            return _has_any([exists_token(path)])
        case In(_, values):
            return _has_any(value_tokens(path, values))
        case Compare(_, Op.EQ, value):
            return _has_any(value_tokens(path, (value,)))
        case Contains(_, value):
            member = member_token(path, value)
            held = _has_any([member]) if member else False
            if not isinstance(value, str):
                return held
            return f"coalesce({held}, false) or coalesce(contains({_at('string', path)}, {sql.text(value)}), false)"
        case Compare(_, op, value):
            return _metadata_ordered(path, op, value)


def _has_any(tokens: Sequence[str]) -> bool | str:
    wanted = list(dict.fromkeys(tokens))
    if not wanted:
        return False
    if len(wanted) == 1:
        return f"array_has(tokens, {sql.hashed(wanted)})"
    return f"array_has_any(tokens, make_array({sql.hashed(wanted)}))"


def _at(kind: str, path: tuple[str, ...]) -> str:
    """The value of that type at the path, null when there is none."""
    place = f"cast(array_position({kind}_paths, {sql.hashed([path_digest(path)])}) as bigint)"
    return f"array_element({kind}_values, {place})"


def _metadata_ordered(path: tuple[str, ...], op: Op, value: Any) -> bool | str:
    if isinstance(value, str):
        return f"{_at('string', path)} {_SIGNS[op]} {sql.text(value)}"
    if isinstance(value, datetime):
        return f"{_at('time', path)} {_SIGNS[op]} {sql.integer(sql.micros(value))}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    sides: list[str] = []
    for kind, bound in (("integer", _integer_bound(op, value)), ("double", _double_bound(op, value))):
        if bound is True:
            sides.append(f"coalesce({_at(kind, path)} is not null, false)")
        elif bound is not False:
            sides.append(f"coalesce({_at(kind, path)} {bound}, false)")
    return " or ".join(sides) or False
