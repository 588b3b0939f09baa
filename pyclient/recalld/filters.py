"""What a filter is, and what it means: the one definition that every source and store must agree with.

Filters are two-valued. A field that is absent or null satisfies no comparison but NOT_EQUAL, and `Not` is plain
negation. Numbers compare exactly across int and float (also past 2**53, and 0.0 equals -0.0); a bool is not a number;
strings compare by code point, times by instant. Any other pair of types is unequal and has no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

from recalld.errors import InvalidFilter
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus, Visibility


class Op(Enum):
    """How `Compare` compares."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


class Kind(Enum):
    """The type that an attribute has, whatever the item."""

    STRING = "string"
    INTEGER = "integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIME = "time"


#: Every attribute that a filter can name, with its type.
ATTRIBUTES: Mapping[str, Kind] = {
    "memory_type": Kind.STRING,
    "namespace": Kind.STRING,
    "user_id": Kind.STRING,
    "session_id": Kind.STRING,
    "agent_id": Kind.STRING,
    "run_id": Kind.STRING,
    "visibility": Kind.STRING,
    "status": Kind.STRING,
    "importance": Kind.DOUBLE,
    "confidence": Kind.DOUBLE,
    "create_time": Kind.TIME,
    "update_time": Kind.TIME,
    "event_time": Kind.TIME,
    "last_observed_time": Kind.TIME,
    "last_access_time": Kind.TIME,
    "expire_time": Kind.TIME,
    "access_count": Kind.INTEGER,
    "observation_count": Kind.INTEGER,
    "supersedes_id": Kind.STRING,
    "superseded_by_id": Kind.STRING,
    "revision": Kind.INTEGER,
    "origin": Kind.STRING,
    "embedding_truncated": Kind.BOOLEAN,
}

#: Every field of an item that a filter can name, metadata apart, with its type.
FIELDS: Mapping[str, Kind] = {"id": Kind.STRING, "content": Kind.STRING, **ATTRIBUTES}

#: What an unset attribute counts as.
ATTRIBUTE_DEFAULTS: Mapping[str, Any] = {
    "memory_type": "semantic",
    "namespace": "default",
    "importance": 0.5,
    "confidence": 1.0,
}


def with_defaults(attributes: MemoryAttributes) -> MemoryAttributes:
    """The attributes as reads show them: unset ones with the defaults that filters see."""
    unset = {name: value for name, value in ATTRIBUTE_DEFAULTS.items() if getattr(attributes, name) in (None, "")}
    if not attributes.visibility:
        unset["visibility"] = Visibility.PRIVATE
    if not attributes.status:
        unset["status"] = MemoryStatus.ACTIVE
    return replace(attributes, **unset)


@dataclass(frozen=True)
class Field:
    """What a condition looks at.

    name: an attribute, `id`, `content`, or `metadata`. path: the keys below `metadata`, outermost first; a key may be
    any text, the empty one too. `str` writes it as `parse_field` reads it.
    """

    name: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return join_path((self.name, *self.path))


@dataclass(frozen=True)
class All:
    """Every condition holds. At least one condition."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one condition holds. At least one condition."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class Not:
    """The condition does not hold."""

    filter: Filter


@dataclass(frozen=True)
class Compare:
    """The field compares to the value."""

    field: Field
    op: Op
    value: Any


@dataclass(frozen=True)
class In:
    """The field equals one of the values."""

    field: Field
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Exists:
    """The field is present and not null."""

    field: Field


@dataclass(frozen=True)
class Contains:
    """A list field holds the value, or a string field has it as a substring."""

    field: Field
    value: Any


Filter = All | AnyOf | Not | Compare | In | Exists | Contains

_SHOWN = 64


def parse_field(text: str) -> Field:
    """The field that a wire filter names: an attribute, `id`, `content` or `metadata.<key>[.<key>...]`.

    Keys are read as `split_path` does. Raises InvalidFilter for anything else.
    """
    keys = split_path(text)
    if keys[0] == "metadata":
        if len(keys) < 2:
            raise InvalidFilter(f"filter field {text[:_SHOWN]!r} names no metadata key")
        return Field("metadata", keys[1:])
    if len(keys) == 1 and keys[0] in FIELDS:
        return Field(keys[0])
    raise InvalidFilter(f"unknown filter field {text[:_SHOWN]!r}")


def join_path(keys: Iterable[str]) -> str:
    """The dotted path of keys, which `split_path` takes apart again."""
    return ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in keys)


def split_path(text: str) -> tuple[str, ...]:
    """The keys of a dotted path; a backslash takes the next character as part of the key, whatever it is.

    A key may be empty: `metadata.` names the metadata key that is the empty string. Raises InvalidFilter for a
    backslash at the end, which takes nothing.
    """
    if "\\" not in text:
        return tuple(text.split("."))
    keys: list[str] = []
    key: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            taken = next(characters, None)
            if taken is None:
                raise InvalidFilter(f"filter field {text[-_SHOWN:]!r} ends in a backslash, which takes a character")
            key.append(taken)
        elif character == ".":
            keys.append("".join(key))
            key = []
        else:
            key.append(character)
    keys.append("".join(key))
    return tuple(keys)


def walk(filter: Filter) -> Iterator[Filter]:
    """The filter and every condition below it, outermost first."""
    pending: list[Filter] = [filter]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (All, AnyOf)):
            pending.extend(reversed(node.filters))
        elif isinstance(node, Not):
            pending.append(node.filter)


def fields_of(filter: Filter) -> Iterator[Field]:
    """Every field that the filter looks at."""
    for node in walk(filter):
        if not isinstance(node, (All, AnyOf, Not)):
            yield node.field


def matches(filter: Filter, item: MemoryItem) -> bool:
    """Whether the condition holds for the item."""
    match filter:
        case All(filters):
            return all(matches(each, item) for each in filters)
        case AnyOf(filters):
            return any(matches(each, item) for each in filters)
        case Not(inner):
            return not matches(inner, item)
        case Exists(field):
            return value_of(item, field) is not None
        case Compare(field, op, value):
            return _compare(value_of(item, field), op, value)
        case In(field, values):
            found = value_of(item, field)
            return found is not None and any(same(found, value) for value in values)
        case Contains(field, value):
            return _contains(value_of(item, field), value)


def value_of(item: MemoryItem, field: Field) -> Any:
    """The value that a condition sees; None when absent or null. Unset attributes show their defaults."""
    if field.name == "metadata":
        found: Any = item.metadata
        for key in field.path:
            if not isinstance(found, Mapping):
                return None
            found = cast("Mapping[str, Any]", found).get(key)
        return found
    if field.name == "id":
        return item.id
    if field.name == "content":
        return item.content
    return _attribute(item.attributes or _UNSET, field.name, item.source)


_UNSET = MemoryAttributes()


def _attribute(attributes: MemoryAttributes, name: str, source: str) -> Any:
    if name == "visibility":
        return "org" if attributes.visibility == Visibility.ORG else "private"
    if name == "status":
        status = attributes.status
        return "active" if status == MemoryStatus.UNSPECIFIED else MemoryStatus(status).name.lower()
    if name == "origin":
        return attributes.origin or source or None
    found = getattr(attributes, name)
    if found is None or found == "":
        return ATTRIBUTE_DEFAULTS.get(name)
    return found


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal: of one type (int and float being one), lists and maps member by member."""
    kind = _kind(left)
    if kind is None or kind != _kind(right):
        return False
    if kind == "list":
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if kind == "map":
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if kind == "time":
        # Between two zones Python calls the repeated hour of a clock change unequal to everything.
        return bool(left.astimezone(UTC) == right.astimezone(UTC))
    return bool(left == right)


def _kind(value: Any) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, datetime):
        # A time without a zone is no instant, and Python refuses to order it against one that is.
        return None if value.utcoffset() is None else "time"
    if isinstance(value, Mapping):
        return "map"
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return "list"
    return None


_ORDERED = frozenset({"number", "string", "time"})


def _compare(found: Any, op: Op, value: Any) -> bool:
    if op is Op.NE:
        return found is None or not same(found, value)
    if found is None:
        return False
    if op is Op.EQ:
        return same(found, value)
    kind = _kind(found)
    if kind not in _ORDERED or kind != _kind(value):
        return False
    if op is Op.LT:
        return bool(found < value)
    if op is Op.LE:
        return bool(found <= value)
    if op is Op.GT:
        return bool(found > value)
    return bool(found >= value)


def _contains(found: Any, value: Any) -> bool:
    kind = _kind(found)
    if kind == "string":
        return isinstance(value, str) and value in found
    if kind == "list":
        return any(same(member, value) for member in found)
    return False
