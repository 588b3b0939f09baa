"""What a record store keeps: memories with their vectors, receipts of writes, and the head of a scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from recalld.filters import with_defaults
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus

#: A unit vector of floats. A record store and the embedder beside it agree on its type; the engine hands it on.
Vector = Any


@dataclass(frozen=True, slots=True)
class Body:
    """What is blanked when a memory is deleted. vector: None where the memory has no embedding."""

    content: str
    metadata: Mapping[str, Any]
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One memory as it is stored, or the tombstone of a deleted one.

    revision: grows with every change of the scope. sequence: the place in the order in which the scope's memories were
    first stored. attributes: unset ones stay unset; `revision` and `origin` in them mean nothing. body: None for a
    tombstone, and where only the state was read.
    """

    id: str
    revision: int
    sequence: int
    attributes: MemoryAttributes
    body: Body | None = None

    @property
    def live(self) -> bool:
        """Whether it is a memory and no tombstone."""
        return self.attributes.status is not MemoryStatus.DELETED

    def item(self, source: str) -> MemoryItem:
        """The memory as reads show it, under the store's name. Only for a record whose body was read."""
        assert self.body is not None  # noqa: S101 - the caller read it
        return MemoryItem(
            self.body.content,
            source,
            metadata=self.body.metadata,  # type: ignore[arg-type]
            id=self.id,
            attributes=shown_attributes(self.attributes, revision=self.revision, source=source),
        )


def shown_attributes(attributes: MemoryAttributes, *, revision: int, source: str) -> MemoryAttributes:
    """Stored attributes as reads show them: unset ones with the defaults that filters see."""
    return replace(with_defaults(attributes), revision=revision, origin=source)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a write with an idempotency key answered. fingerprint: a digest of what it said. time: when it was written,
    by which it may be pruned."""

    key: str
    fingerprint: str
    revision: int
    ids: tuple[str, ...]
    time: datetime


@dataclass(frozen=True, slots=True)
class Head:
    """The highest revision and sequence of a scope; zeros for one that was never written."""

    revision: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a turn reads: the head, the records by id and the receipts by key that were asked for and are there, all of
    one state, and durable."""

    head: Head
    records: Mapping[str, Record]
    receipts: Mapping[str, Receipt]


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of a scope, whole. base: the head that it was worked out at; head: the one after it."""

    base: Head
    head: Head
    records: Mapping[str, Record]
    receipts: Mapping[str, Receipt]
