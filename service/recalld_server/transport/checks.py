"""The checks of the contract, asked of requests while they are decoded.

Each method records the violations that it finds and goes on; what it returns for a violating value must not be used
before `raise_any` has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recalld.checks import STRING_ATTRIBUTES, Checks
from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld.v1 import filter_pb2, item_pb2
from recalld.wire import decode_filter, decode_scope, decode_write

#: What stands for an item with a violation.
_NO_ITEM = MemoryItem("", "")


class Scoped(Protocol):
    """A request of one tenant, on behalf of a user if it names one."""

    @property
    def scope(self) -> item_pb2.Scope: ...
    @property
    def on_behalf_of_user_id(self) -> str: ...


class RequestChecks(Checks):
    """The violations of one request."""

    def read_scope(self, request: Scoped) -> Scope:
        """The tenant; both parts are required."""
        scope = decode_scope(request.scope)
        self.scope(scope)
        return scope

    def read_user(self, request: Scoped) -> str:
        """On whose behalf the call is made; may be empty."""
        return self.read_text(request.on_behalf_of_user_id, "on_behalf_of_user_id", self.limits.max_attribute_bytes)

    def read_text(self, value: str, path: str, most: int) -> str:
        """A string of at most so many UTF-8 bytes."""
        self.text(value, path, most)
        return value

    def read_number(self, value: int, path: str, most: int, default: int) -> int:
        """An integer from 1; 0 stands for the default."""
        self.number(value, path, most)
        return value or default

    def read_where(self, filter: filter_pb2.Filter, path: str = "where") -> Filter | None:
        """A condition; None when it is unset, which matches everything."""
        return decode_filter(filter, path, self.filters)

    def read_batch(self, items: Sequence[item_pb2.MemoryItem], user: str) -> Sequence[MemoryItem]:
        """The items of a write, no id twice."""
        decoded: list[MemoryItem] = []

        def read(item: item_pb2.MemoryItem, path: str) -> None:
            decoded.append(self.read_item(item, path, user))

        self.batch(items, read)
        return decoded

    def read_item(self, item: item_pb2.MemoryItem, path: str, user: str) -> MemoryItem:
        """One item with what a caller may set. Its content may be empty."""
        self.text(item.id, f"{path}.id", self.limits.max_id_bytes)
        self.text(item.content, f"{path}.content", self.limits.max_content_bytes)
        texts = {name: getattr(item.attributes, name) for name in (*STRING_ATTRIBUTES, "supersedes_id")}
        self.attributes(texts, f"{path}.attributes")
        if not self.metadata_size(_metadata_bytes(item, self.limits.max_metadata_bytes), f"{path}.metadata"):
            # Not decoded: a list of what is wrong inside could be as long as the metadata.
            return _NO_ITEM
        decoded = decode_write(item, path, self.fields)
        if decoded is None:
            return _NO_ITEM
        self.owner(decoded.attributes, user, path)
        return decoded


def _metadata_bytes(item: item_pb2.MemoryItem, enough: int) -> int:
    """How many bytes the metadata takes on the wire; 0 when the whole item has no more than `enough`."""
    if item.ByteSize() <= enough:
        return 0
    return item_pb2.MapValue(fields=item.metadata).ByteSize()
