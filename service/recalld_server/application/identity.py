"""Which key an item gets, and when two batches are the same."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem
from recalld.scope import Scope


def keyed(items: Sequence[MemoryItem], *, scope: Scope, idempotency_key: str) -> Sequence[MemoryItem]:
    """The items with an id each: the caller's, else one derived from scope, idempotency key and place in the batch
    (so that a retry meets the same keys), else a fresh one."""
    return [
        item if item.id else replace(item, id=_derived(scope, idempotency_key, index) if idempotency_key else _fresh())
        for index, item in enumerate(items)
    ]


def _derived(scope: Scope, idempotency_key: str, index: int) -> str:
    parts = (scope.org_id or "", scope.domain_id or "", idempotency_key, str(index))
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = part.encode()
        # Length-prefixed: ("a", "bc") and ("ab", "c") must not meet.
        digest.update(len(text).to_bytes(4, "big") + text)
    return digest.hexdigest()


def _fresh() -> str:
    return uuid.uuid4().hex


def fingerprint(items: Sequence[MemoryItem]) -> str:
    """A digest of what a batch says. The order of map entries and output-only fields do not matter; types do."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        attributes = item.attributes or MemoryAttributes()
        said = [item.id, item.content, item.metadata, {name: getattr(attributes, name) for name in WRITABLE_ATTRIBUTES}]
        digest.update(json.dumps(_typed(said), sort_keys=True).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _typed(value: Any) -> Any:
    """`value` as JSON in which values that differ only in type differ."""
    if isinstance(value, Mapping):
        return {key: _typed(member) for key, member in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_typed(member) for member in cast("list[Any]", value)]
    if isinstance(value, datetime):
        return ["time", value.timestamp()]
    if isinstance(value, float):
        return ["double", value.hex()]
    return [type(value).__name__, str(value)]
