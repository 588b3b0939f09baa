"""Finds everything that is wrong with a request before it says so.

Each check records its violations and goes on; what it returns for a violating value must not be used before
`raise_any` has passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from recalld.errors import InvalidField, InvalidFilter, RecalldError, ScopeRequired
from recalld.filters import ATTRIBUTES, Filter, Kind
from recalld.item import WRITABLE_ATTRIBUTES, MemoryItem
from recalld.limits import Limits
from recalld.scope import Scope
from recalld.v1 import filter_pb2, item_pb2
from recalld.wire import Violations, decode_filter, decode_scope, decode_write

#: A request with this many violations is not looked at any further, and no more are told.
ENOUGH = 100

#: What stands for an item with a violation.
_NO_ITEM = MemoryItem("", "")

#: The strings that a caller may set, but for the one that is the id of an item.
_STRING_ATTRIBUTES = tuple(
    name
    for name in WRITABLE_ATTRIBUTES
    if ATTRIBUTES[name] is Kind.STRING and name not in ("visibility", "supersedes_id")
)


class Scoped(Protocol):
    """A request of one tenant, on behalf of a user if it names one."""

    @property
    def scope(self) -> item_pb2.Scope: ...
    @property
    def on_behalf_of_user_id(self) -> str: ...


class Checks:
    """The violations of one request."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._scope: Violations = {}
        self._fields: Violations = {}
        self._filter: Violations = {}

    def fail(self, path: str, why: str) -> None:
        """Records a violation of a field."""
        self._fields[path] = why

    def raise_any(self) -> None:
        """Raises one error with every violation: ScopeRequired, else InvalidField, else InvalidFilter."""
        found = {**self._scope, **self._fields, **self._filter}
        if not found:
            return
        told = dict(list(found.items())[:ENOUGH])
        if len(found) > ENOUGH:
            told["..."] = f"and {len(found) - ENOUGH} more violations"
        raise self._error(told)

    def _error(self, told: Violations) -> RecalldError:
        if self._scope:
            return ScopeRequired("; ".join(f"{path}: {why}" for path, why in told.items()), violations=told)
        return InvalidField(violations=told) if self._fields else InvalidFilter(violations=told)

    def scope(self, request: Scoped) -> Scope:
        """The tenant; both parts are required."""
        for name, value in (("org_id", request.scope.org_id), ("domain_id", request.scope.domain_id)):
            path = f"scope.{name}"
            if not value:
                self._scope[path] = "is required"
            elif len(value) > self.limits.max_scope_characters:
                self.fail(path, f"has {len(value)} characters, more than {self.limits.max_scope_characters}")
            elif any(character < " " or character == "\x7f" for character in value):
                self.fail(path, "holds a control character")
        return decode_scope(request.scope)

    def user(self, request: Scoped) -> str:
        """On whose behalf the call is made; may be empty."""
        return self.text(request.on_behalf_of_user_id, "on_behalf_of_user_id", self.limits.max_attribute_bytes)

    def text(self, value: str, path: str, most: int) -> str:
        """A string of at most so many UTF-8 bytes."""
        size = len(value.encode())
        if size > most:
            self.fail(path, f"has {size} bytes, more than {most}")
        return value

    def number(self, value: int, path: str, most: int, default: int) -> int:
        """An integer from 1; 0 stands for the default."""
        if not 0 <= value <= most:
            self.fail(path, f"is {value}, not in 0 to {most}")
        return value or default

    def weight(self, value: float, path: str) -> float:
        """A weight of a ranking."""
        if not (math.isfinite(value) and 0 <= value <= self.limits.max_weight):
            self.fail(path, f"is {value}, not in 0 to {self.limits.max_weight:g}")
        return value

    def names(self, values: Sequence[str], path: str) -> Sequence[str]:
        """Names of sources, each once."""
        seen: dict[str, int] = {}
        for index, name in enumerate(values):
            if name in seen:
                self.fail(f"{path}[{index}]", f"repeats {path}[{seen[name]}]")
            seen.setdefault(name, index)
        return list(values)

    def ids(self, values: Sequence[str], path: str) -> Sequence[str]:
        """Ids to look up, 1 to `max_ids`; they may repeat."""
        if not 1 <= len(values) <= self.limits.max_ids:
            self.fail(path, f"must hold 1 to {self.limits.max_ids} ids, not {len(values)}")
        for index, value in enumerate(values[: self.limits.max_ids]):
            if not value:
                self.fail(f"{path}[{index}]", "is empty")
            self.text(value, f"{path}[{index}]", self.limits.max_id_bytes)
        return list(values)

    def where(self, filter: filter_pb2.Filter, path: str = "where") -> Filter | None:
        """A condition; None when it is unset, which matches everything."""
        return decode_filter(filter, path, self._filter)

    def batch(self, items: Sequence[item_pb2.MemoryItem], path: str = "items") -> Sequence[MemoryItem]:
        """The items of a write, no id twice."""
        if not 1 <= len(items) <= self.limits.max_batch_items:
            self.fail(path, f"must hold 1 to {self.limits.max_batch_items} items, not {len(items)}")
        decoded: list[MemoryItem] = []
        places: dict[str, str] = {}
        for index, item in enumerate(items[: self.limits.max_batch_items]):
            if len(self._fields) > ENOUGH:
                break
            place = f"{path}[{index}]"
            if item.id in places:
                self.fail(f"{place}.id", f"repeats {places[item.id]}.id")
            elif item.id:
                places[item.id] = place
            if not item.content:
                self.fail(f"{place}.content", "is empty")
            decoded.append(self.item(item, place))
        return decoded

    def item(self, item: item_pb2.MemoryItem, path: str) -> MemoryItem:
        """One item with what a caller may set. Its content may be empty."""
        limits = self.limits
        self.text(item.id, f"{path}.id", limits.max_id_bytes)
        self.text(item.content, f"{path}.content", limits.max_content_bytes)
        for name in _STRING_ATTRIBUTES:
            self.text(getattr(item.attributes, name), f"{path}.attributes.{name}", limits.max_attribute_bytes)
        self.text(item.attributes.supersedes_id, f"{path}.attributes.supersedes_id", limits.max_id_bytes)
        size = _metadata_bytes(item, limits.max_metadata_bytes)
        if size > limits.max_metadata_bytes:
            # Not decoded: a list of what is wrong inside could be as long as the metadata.
            self.fail(f"{path}.metadata", f"has {size} bytes, more than {limits.max_metadata_bytes}")
            return _NO_ITEM
        return decode_write(item, path, self._fields) or _NO_ITEM


def _metadata_bytes(item: item_pb2.MemoryItem, enough: int) -> int:
    """How many bytes the metadata takes on the wire; 0 when the whole item has no more than `enough`."""
    if item.ByteSize() <= enough:
        return 0
    return item_pb2.MapValue(fields=item.metadata).ByteSize()
