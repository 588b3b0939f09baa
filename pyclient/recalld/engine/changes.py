"""What a put, an update and a delete do to the records of a scope, without I/O.

A group of changes works on one `Draft`: the records as they were read plus what earlier changes of the group made of
them. So each change sees those before it, and the group becomes one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from recalld.checks import check_metadata_size
from recalld.engine.draft import Draft
from recalld.engine.ports import Embedding
from recalld.engine.records import Body, Receipt, Record
from recalld.engine.visibility import is_visible
from recalld.errors import IdempotencyKeyReused, InvalidField, ItemNotFound, RevisionMismatch
from recalld.filters import Filter
from recalld.identity import fingerprints_differ
from recalld.item import (
    WRITABLE_ATTRIBUTES,
    MemoryAttributes,
    MemoryItem,
    MemoryStatus,
    Visibility,
    writable_attributes,
)
from recalld.store import UNSET, AttributeChanges


class Change(Protocol):
    """One change of a scope. It applies whole or raises having changed nothing.

    ids: records that it reads; whole: those whose bodies it needs; receipts: keys of receipts that it reads. now: when
    it was made.
    """

    @property
    def now(self) -> datetime: ...
    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def whole(self) -> Sequence[str]: ...
    @property
    def receipts(self) -> Sequence[str]: ...

    def apply(self, draft: Draft) -> Any: ...


@dataclass(frozen=True, slots=True)
class Put:
    """Inserts or replaces items by id; every item has its id. user: on whose behalf, if anyone's.

    A replaced live item keeps its create time, place and counters; a deleted or expired id starts anew. Answers the
    receipt of the write, and whether it is that of an earlier one.
    """

    items: Sequence[MemoryItem]
    embeddings: Sequence[Embedding | None]
    user: str | None
    key: str
    fingerprint: str
    now: datetime

    whole = ()

    @property
    def ids(self) -> Sequence[str]:
        return [item.id or "" for item in self.items]

    @property
    def receipts(self) -> Sequence[str]:
        return (self.key,) if self.key else ()

    def apply(self, draft: Draft) -> tuple[Receipt, bool]:
        found = draft.receipt(self.key) if self.key else None
        if found is not None:
            return recall(found, self.fingerprint), True
        self._check_ids_are_free(draft)
        for item, embedding in zip(self.items, self.embeddings, strict=True):
            draft.keep(self._stored(item, embedding, draft))
        receipt = Receipt(self.key, self.fingerprint, draft.revision, tuple(self.ids), self.now)
        if self.key:
            draft.keep_receipt(receipt)
        return receipt, False

    def _check_ids_are_free(self, draft: Draft) -> None:
        taken: dict[str, str] = {}
        for index, item in enumerate(self.items):
            before = draft.live(item.id or "", self.now)
            if before is not None and not is_visible(before.attributes, self.user):
                taken[f"items[{index}].id"] = "is taken"
        if taken:
            raise InvalidField(violations=taken)

    def _stored(self, item: MemoryItem, embedding: Embedding | None, draft: Draft) -> Record:
        id = item.id or ""
        before = draft.live(id, self.now)
        new = replace(
            writable_attributes(item.attributes),
            update_time=self.now,
            embedding_truncated=embedding is not None and embedding.truncated,
        )
        if before is None:
            # Deleted, expired or never there: a new memory, with a place of its own.
            sequence = draft.next_sequence()
            new = replace(new, create_time=self.now, status=MemoryStatus.ACTIVE)
        else:
            sequence = before.sequence
            new = replace(new, **{name: getattr(before.attributes, name) for name in _KEPT})
        body = Body(item.content, item.metadata, embedding and embedding.vector)
        return Record(id, draft.next_revision(), sequence, new, body)


#: What a replaced item leaves to its successor.
_KEPT = (
    "create_time",
    "status",
    "superseded_by_id",
    "access_count",
    "observation_count",
    "last_observed_time",
    "last_access_time",
)


def recall(found: Receipt, fingerprint: str) -> Receipt:
    """The receipt of an earlier write under the same key. Raises IdempotencyKeyReused when that write said something
    else."""
    if fingerprints_differ(found.fingerprint, fingerprint):
        raise IdempotencyKeyReused(f"idempotency key {found.key!r} was used for other items")
    return found


@dataclass(frozen=True, slots=True)
class Patch:
    """What an update changes; UNSET leaves a part alone. embedding: of the new content."""

    content: str | None = None
    embedding: Embedding | None = None
    metadata: Mapping[str, Any] | None = None
    metadata_changes: Mapping[str, Any] | None = None
    attributes: Mapping[str, Any] | None = None


def read_attribute_changes(given: AttributeChanges) -> Mapping[str, Any]:
    """The attributes that an update names, with their new values; a cleared one has its unset value."""
    unset = MemoryAttributes()
    if isinstance(given, MemoryAttributes):
        writable = writable_attributes(given)
        names = [name for name in WRITABLE_ATTRIBUTES if getattr(given, name) != getattr(unset, name)]
        return {name: getattr(writable, name) for name in names}
    return {name: getattr(unset, name) if value is None else value for name, value in given.items()}


@dataclass(frozen=True, slots=True)
class Update:
    """Changes one live memory that the user may see. Answers the record as it is now."""

    id: str
    patch: Patch
    user: str | None
    if_revision: int | None
    now: datetime

    ids = ()
    receipts = ()

    @property
    def whole(self) -> Sequence[str]:
        return (self.id,)

    def apply(self, draft: Draft) -> Record:
        before = draft.live(self.id, self.now)
        if before is None or before.body is None or not is_visible(before.attributes, self.user):
            raise ItemNotFound(f"there is no item {self.id!r}", details={"id": self.id})
        if self.if_revision is not None and self.if_revision != before.revision:
            raise RevisionMismatch(
                f"item {self.id!r} has revision {before.revision}, not {self.if_revision}",
                details={
                    "id": self.id,
                    "expectedRevision": str(self.if_revision),
                    "actualRevision": str(before.revision),
                },
            )
        body = self._changed_body(before.body)
        attributes = self._changed_attributes(before.attributes)
        after = replace(before, revision=draft.next_revision(), attributes=attributes, body=body)
        draft.keep(after)
        return after

    def _changed_body(self, body: Body) -> Body:
        patch = self.patch
        metadata = body.metadata if patch.metadata is None else patch.metadata
        if patch.metadata_changes:
            metadata = {key: value for key, value in metadata.items() if key not in patch.metadata_changes}
            metadata |= {key: value for key, value in patch.metadata_changes.items() if value is not UNSET}
            # What came together key by key has the limit of metadata that comes whole, else a memory could outgrow a
            # message and block every list that it is in.
            check_metadata_size(metadata, "item.metadata")
        if patch.content is None:
            return replace(body, metadata=metadata)
        return Body(patch.content, metadata, patch.embedding and patch.embedding.vector)

    def _changed_attributes(self, attributes: MemoryAttributes) -> MemoryAttributes:
        patch = self.patch
        if patch.content is not None:
            truncated = patch.embedding is not None and patch.embedding.truncated
            attributes = replace(attributes, embedding_truncated=truncated)
        attributes = replace(attributes, **dict(patch.attributes or {}), update_time=self.now)
        if not attributes.visibility:
            attributes = replace(attributes, visibility=Visibility.PRIVATE)
        if not is_visible(attributes, self.user):
            raise InvalidField(
                violations={"item.attributes.user_id": "names another user, and the memory would be private"}
            )
        return attributes


@dataclass(frozen=True, slots=True)
class Delete:
    """Blanks live memories that the user may see; expired ones too. Answers how many."""

    wanted: Sequence[str]
    user: str | None
    now: datetime

    whole = ()
    receipts = ()

    @property
    def ids(self) -> Sequence[str]:
        return self.wanted

    def apply(self, draft: Draft) -> int:
        count = 0
        for id in dict.fromkeys(self.wanted):
            before = draft.find(id)
            if before is not None and before.live and is_visible(before.attributes, self.user):
                draft.keep(bury(before, draft.next_revision(), self.now))
                count += 1
        return count


@dataclass(frozen=True, slots=True)
class DeleteMatching:
    """Blanks what matches a condition, some at a time. It works on what is committed, so it is a group of its own;
    the turn puts what it found into the draft. Answers how many."""

    where: Filter
    now: datetime

    ids = ()
    whole = ()
    receipts = ()

    def apply(self, draft: Draft) -> int:
        found = [record for record in draft.read if record.live]
        for record in found:
            draft.keep(bury(record, draft.next_revision(), self.now))
        return len(found)


def bury(record: Record, revision: int, now: datetime) -> Record:
    """The tombstone of a memory: what stays is its id, place and revision, and when it went."""
    blank = MemoryAttributes(status=MemoryStatus.DELETED, update_time=now)
    return Record(record.id, revision, record.sequence, blank)
