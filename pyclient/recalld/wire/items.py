"""Items and scopes, to and from the wire.

Two views of an item: `encode_item` and `decode_item` carry every field, as reads return it; `encode_write` and
`decode_write` carry what a caller may set and leave out the output-only fields, which a write ignores.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from recalld.errors import InvalidField
from recalld.filters import ATTRIBUTES, Kind
from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.scope import Scope, ScopeLike
from recalld.v1 import item_pb2
from recalld.values import ValueChecks, Violations, find_integer_fault, name_type
from recalld.wire.values import checked_text, decode_fields, decode_time, encode_time, fill_fields

_ENUMS: Mapping[str, type[Visibility] | type[MemoryStatus]] = {"visibility": Visibility, "status": MemoryStatus}


def encode_scope(scope: ScopeLike) -> item_pb2.Scope:
    """The scope on the wire; an unset part is empty. Raises InvalidField for text that UTF-8 cannot carry."""
    violations: Violations = {}
    encoded = item_pb2.Scope(
        org_id=checked_text(scope.org_id or "", "scope.org_id", violations),
        domain_id=checked_text(scope.domain_id or "", "scope.domain_id", violations),
    )
    if violations:
        raise InvalidField(violations=violations)
    return encoded


def decode_scope(scope: item_pb2.Scope) -> Scope:
    """The scope of a message; an empty part is None."""
    return Scope(scope.org_id or None, scope.domain_id or None)


def encode_writes(items: Iterable[Any], path: str = "items") -> list[item_pb2.MemoryItem]:
    """The items of a write. Raises InvalidField with every violation, among them an item that is no MemoryItem."""
    violations: Violations = {}
    encoded: list[item_pb2.MemoryItem] = []
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        if isinstance(item, MemoryItem):
            encoded.append(encode_write(item, place, violations))
        else:
            violations[place] = f"must be a MemoryItem, not {name_type(item)}"
    if violations:
        raise InvalidField(violations=violations)
    return encoded


def encode_write(item: MemoryItem, path: str, violations: Violations) -> item_pb2.MemoryItem:
    """The item as a write sends it: id, content, metadata and the attributes that a caller may set."""
    return _encode(item, path, violations, WRITABLE_ATTRIBUTES)


def metadata_bytes(metadata: Mapping[str, Any]) -> int:
    """How many bytes metadata takes on the wire, as its limit counts them. Raises InvalidField if it cannot travel."""
    violations: Violations = {}
    ValueChecks(violations).fields(metadata, "metadata")
    if violations:
        raise InvalidField(violations=violations)
    encoded = item_pb2.MapValue()
    fill_fields(encoded.fields, metadata)
    return encoded.ByteSize()


def encode_item(item: MemoryItem, path: str, violations: Violations) -> item_pb2.MemoryItem:
    """The item as a read returns it, with every field."""
    encoded = _encode(item, path, violations, ATTRIBUTES)
    encoded.source = checked_text(item.source, f"{path}.source", violations)
    if item.score is not None:
        encoded.score = item.score
    return encoded


def _encode(item: MemoryItem, path: str, violations: Violations, attributes: Collection[str]) -> item_pb2.MemoryItem:
    encoded = item_pb2.MemoryItem(
        id=checked_text(item.id or "", f"{path}.id", violations),
        content=checked_text(item.content, f"{path}.content", violations),
    )
    _fill_metadata(encoded, item.metadata, f"{path}.metadata", violations)
    if item.attributes is not None:
        encoded.attributes.SetInParent()
        for name in attributes:
            value = getattr(item.attributes, name)
            if value is not None and value != "":
                _encode_attribute(encoded.attributes, name, value, f"{path}.attributes.{name}", violations)
    return encoded


def _fill_metadata(target: item_pb2.MemoryItem, metadata: Mapping[str, Any], path: str, violations: Violations) -> None:
    found: Violations = {}
    ValueChecks(found).fields(metadata, path)
    if found:
        violations.update(found)
    else:
        fill_fields(target.metadata, metadata)


def _encode_attribute(
    target: item_pb2.MemoryAttributes, name: str, value: Any, path: str, violations: Violations
) -> None:
    if name in _ENUMS:
        number = _enum_number(name, value)
        if number is None:
            violations[path] = f"is not a known {name}"
        else:
            setattr(target, name, number)
        return
    match ATTRIBUTES[name]:
        case Kind.STRING:
            setattr(target, name, checked_text(value, path, violations))
        case Kind.TIME:
            getattr(target, name).CopyFrom(encode_time(value, path, violations))
        case Kind.DOUBLE:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                violations[path] = f"must be a number, not {name_type(value)}"
            else:
                setattr(target, name, _checked_fraction(value, path, violations))
        case Kind.INTEGER:
            if isinstance(value, bool) or not isinstance(value, int):
                violations[path] = f"must be an integer, not {name_type(value)}"
            elif fault := find_integer_fault(value):
                violations[path] = fault
            else:
                setattr(target, name, value)
        case Kind.BOOLEAN:
            setattr(target, name, bool(value))


def _enum_number(name: str, value: Any) -> int | None:
    try:
        return int(_ENUMS[name](value))
    except ValueError:
        return None


def _checked_fraction(value: float, path: str, violations: Violations) -> float:
    if not (math.isfinite(value) and 0 <= value <= 1):
        violations[path] = f"is {value}, which is not in 0 to 1"
        return 0.0
    return float(value)


def decode_write(item: item_pb2.MemoryItem, path: str, violations: Violations) -> MemoryItem | None:
    """The item that a caller wants written; None when it has a violation. Output-only fields are ignored: `source` is
    empty and `score` None. An unknown visibility is a violation."""
    found: Violations = {}
    number = item.attributes.visibility
    if _enum_number("visibility", number) is None:
        found[f"{path}.attributes.visibility"] = f"is {int(number)}, which is not a known visibility"
    decoded = _decode(item, path, found, WRITABLE_ATTRIBUTES)
    violations.update(found)
    return None if found else decoded


def decode_item(item: item_pb2.MemoryItem, path: str, violations: Violations) -> MemoryItem | None:
    """The item that a read returned; None when it has a violation. An enum number that this version does not know
    counts as unspecified, so that a newer server can be read."""
    found: Violations = {}
    decoded = _decode(item, path, found, ATTRIBUTES)
    violations.update(found)
    return None if found else decoded


def _decode(item: item_pb2.MemoryItem, path: str, violations: Violations, attributes: Collection[str]) -> MemoryItem:
    whole = attributes is ATTRIBUTES
    return MemoryItem(
        item.content,
        item.source if whole else "",
        item.score if whole and item.HasField("score") else None,
        decode_fields(item.metadata, f"{path}.metadata", violations),
        id=item.id or None,
        attributes=_decode_attributes(item.attributes, attributes, f"{path}.attributes", violations)
        if item.HasField("attributes")
        else None,
    )


def _decode_attributes(
    attributes: item_pb2.MemoryAttributes, names: Collection[str], path: str, violations: Violations
) -> MemoryAttributes:
    values: dict[str, Any] = {}
    for name in names:
        kind = ATTRIBUTES[name]
        if kind is Kind.TIME:
            values[name] = _decode_set_time(attributes, name, f"{path}.{name}", violations)
        elif kind is Kind.DOUBLE:
            if attributes.HasField(name):
                values[name] = _checked_fraction(getattr(attributes, name), f"{path}.{name}", violations)
        elif name in _ENUMS:
            values[name] = _ENUMS[name](_enum_number(name, getattr(attributes, name)) or 0)
        else:
            values[name] = getattr(attributes, name)
    return MemoryAttributes(**values)


def _decode_set_time(
    attributes: item_pb2.MemoryAttributes, name: str, path: str, violations: Violations
) -> datetime | None:
    return decode_time(getattr(attributes, name), path, violations) if attributes.HasField(name) else None
