"""Which key an item gets, and when two batches are the same."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, cast

from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem
from recalld.scope import Scope

#: The way in which a fingerprint is made. One that was made in another way cannot be compared.
_VERSION = "1"

_UNSET: Mapping[str, Any] = {field.name: field.default for field in fields(MemoryAttributes)}


def assign_ids(items: Sequence[MemoryItem], *, scope: Scope, idempotency_key: str) -> list[MemoryItem]:
    """The items with an id each: the caller's, else one derived from scope, idempotency key and place in the batch
    (so that a retry meets the same keys), else a fresh one."""
    return [
        item if item.id else replace(item, id=_derived(scope, idempotency_key, index) if idempotency_key else _fresh())
        for index, item in enumerate(items)
    ]


def _derived(scope: Scope, idempotency_key: str, index: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (scope.org_id or "", scope.domain_id or "", idempotency_key, str(index)):
        text = part.encode()
        # Length-prefixed: ("a", "bc") and ("ab", "c") must not meet.
        digest.update(len(text).to_bytes(4, "big") + text)
    return digest.hexdigest()


def _fresh() -> str:
    return uuid.uuid4().hex


def derive_part_key(idempotency_key: str, number: int) -> str:
    """The key of a part of a write that is cut into several, numbered from 0; the first part has the write's own."""
    if number == 0:
        return idempotency_key
    return hashlib.blake2b(f"{number}:{idempotency_key}".encode(), digest_size=16).hexdigest()


def compute_fingerprint(items: Iterable[MemoryItem]) -> str:
    """A digest of what a batch says, behind the version of its making. Types matter; the order of map entries,
    output-only attributes and unset ones do not, so that an attribute that a later version adds changes no digest."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        parts: list[bytes] = []
        attributes = item.attributes or MemoryAttributes()
        said = {name: getattr(attributes, name) for name in WRITABLE_ATTRIBUTES}
        set_ones = {name: value for name, value in said.items() if value != _UNSET[name]}
        _encode([item.id, item.content, item.metadata, set_ones], parts)
        digest.update(b"".join(parts))
    return f"{_VERSION}:{digest.hexdigest()}"


def fingerprints_differ(one: str, other: str) -> bool:
    """Whether two fingerprints are of different batches; of different versions they cannot be told apart."""
    return one.partition(":")[0] == other.partition(":")[0] and one != other


def _encode(value: Any, parts: list[bytes]) -> None:
    """Appends bytes that are equal exactly for equal values of equal types."""
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        parts.append(b"s%d:" % len(text))
        parts.append(text)
    elif value is None or isinstance(value, bool):
        parts.append(b"%a;" % value)
    elif isinstance(value, int):
        parts.append(b"i%d;" % value)
    elif isinstance(value, float):
        parts.append(b"f%s;" % (b"nan" if math.isnan(value) else value.hex().encode()))
    elif isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        parts.append(b"{%d:" % len(members))
        for key in sorted(members):
            _encode(key, parts)
            _encode(members[key], parts)
    elif isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        parts.append(b"[%d:" % len(items))
        for member in items:
            _encode(member, parts)
    elif isinstance(value, datetime):
        parts.append(b"t%s;" % value.astimezone(UTC).isoformat().encode())
    else:
        _encode([type(value).__name__, str(value)], parts)
