"""What a put, an update and a delete do to the rows of a scope, without I/O.

A group of changes works on one `Draft`: the rows as they were read plus what earlier changes of the group made of
them. So each change sees those before it, and the group becomes one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from recalld.errors import IdempotencyKeyReused, InvalidField, ItemNotFound, RevisionMismatch
from recalld.filters import Filter, matches
from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.limits import Limits
from recalld.wire import metadata_bytes
from recalld_server.adapters.lancedb import values
from recalld_server.adapters.lancedb.records import Body, Record, WriteReceipt, item_key, receipt_key
from recalld_server.ports import Commit, Patch, Receipt


@dataclass(slots=True)
class Draft:
    """The state that a group of changes works on."""

    source: str
    dimensions: int
    revision: int
    sequence: int
    rows: dict[str, Record]
    changed: dict[str, Record] = field(default_factory=dict[str, Record])

    def find(self, key: str) -> Record | None:
        return self.changed.get(key) or self.rows.get(key)

    def live(self, id: str) -> Record | None:
        found = self.find(item_key(id))
        return found if found is not None and found.live else None

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def keep(self, record: Record) -> None:
        self.changed[record.key] = record


def recall(found: WriteReceipt | None, receipt: Receipt) -> Commit | None:
    """What the write with this receipt answered; None when there was none. Raises IdempotencyKeyReused."""
    if found is None:
        return None
    if found.fingerprint != receipt.fingerprint:
        raise IdempotencyKeyReused(f"idempotency key {receipt.key!r} was used for other items")
    return Commit(found.revision, found.ids, replayed=True)


@dataclass(frozen=True, slots=True)
class NewRow:
    """One item of a put, ready to be stored."""

    key: str
    id: str
    attributes: MemoryAttributes
    body: Body


@dataclass(frozen=True, slots=True)
class Put:
    """Inserts or replaces."""

    rows: Sequence[NewRow]
    receipt: Receipt | None
    now: datetime

    @property
    def state_keys(self) -> Sequence[str]:
        keys = [row.key for row in self.rows]
        return [*keys, receipt_key(self.receipt.key)] if self.receipt else keys

    @property
    def row_keys(self) -> Sequence[str]:
        return ()

    def apply(self, draft: Draft) -> Commit:
        if self.receipt is not None:
            before = draft.find(receipt_key(self.receipt.key))
            replay = recall(before and before.receipt, self.receipt)
            if replay is not None:
                return replay
        for row in self.rows:
            draft.keep(self._stored(row, draft))
        commit = Commit(draft.revision, tuple(row.id for row in self.rows))
        if self.receipt is not None:
            kept = WriteReceipt(self.receipt.fingerprint, commit.revision, tuple(commit.ids))
            draft.keep(
                Record(
                    receipt_key(self.receipt.key),
                    commit.revision,
                    # When it was written is when it may be pruned.
                    attributes=MemoryAttributes(update_time=self.now),
                    receipt=kept,
                )
            )
        return commit

    def _stored(self, row: NewRow, draft: Draft) -> Record:
        before = draft.find(row.key)
        new = replace(row.attributes, update_time=self.now)
        if before is not None and before.live and not expired(before.attributes, self.now):
            old = before.attributes
            sequence = before.sequence
            new = replace(
                new,
                create_time=old.create_time,
                status=old.status,
                superseded_by_id=old.superseded_by_id,
                access_count=old.access_count,
                observation_count=old.observation_count,
                last_observed_time=old.last_observed_time,
                last_access_time=old.last_access_time,
            )
        else:
            # Deleted, expired or never there: a new memory, with a place of its own.
            sequence = draft.next_sequence()
            new = replace(new, create_time=self.now, status=MemoryStatus.ACTIVE)
        return Record(row.key, draft.next_revision(), row.id, True, sequence, new, row.body)


def expired(attributes: MemoryAttributes, now: datetime) -> bool:
    return attributes.expire_time is not None and attributes.expire_time <= now


def settable(given: MemoryAttributes | None) -> MemoryAttributes:
    """What a writer sets of the attributes; the rest unset. Nobody saying otherwise, a memory is private."""
    given = given or MemoryAttributes()
    taken = {name: getattr(given, name) for name in WRITABLE_ATTRIBUTES}
    taken["visibility"] = given.visibility or Visibility.PRIVATE
    return MemoryAttributes(**taken)


@dataclass(frozen=True, slots=True)
class Update:
    """Changes the named fields of one memory."""

    patch: Patch
    where: Filter
    now: datetime

    @property
    def state_keys(self) -> Sequence[str]:
        return ()

    @property
    def row_keys(self) -> Sequence[str]:
        return (item_key(self.patch.item.id or ""),)

    def apply(self, draft: Draft) -> tuple[MemoryItem, int]:
        id = self.patch.item.id or ""
        before = draft.live(id)
        if before is None or before.body is None or not matches(self.where, before.item(draft.source)):
            raise ItemNotFound(f"there is no item {id!r}", details={"id": id})
        expected = self.patch.if_revision
        if expected is not None and expected != before.revision:
            raise RevisionMismatch(
                f"item {id!r} has revision {before.revision}, not {expected}",
                details={"id": id, "expectedRevision": str(expected), "actualRevision": str(before.revision)},
            )
        body, attributes = self._changed(before, before.body, draft.dimensions)
        attributes = replace(attributes, update_time=self.now)
        after = replace(before, revision=draft.next_revision(), attributes=attributes, body=body)
        draft.keep(after)
        return after.item(draft.source), after.revision

    def _changed(self, before: Record, body: Body, dimensions: int) -> tuple[Body, MemoryAttributes]:
        given = self.patch.item
        content, vector = body.content, body.vector
        metadata: Mapping[str, Any] = values.load(body.metadata)
        merged = False
        attributes = before.attributes
        for path in self.patch.mask:
            match path:
                case ("content",):
                    if self.patch.embedding is None:
                        raise InvalidField("content was changed without its embedding")
                    content, vector = given.content, self.patch.embedding.vector
                    attributes = replace(attributes, embedding_truncated=self.patch.embedding.truncated)
                case ("metadata",):
                    metadata = given.metadata
                case ("metadata", key):
                    metadata = {name: value for name, value in metadata.items() if name != key}
                    if key in given.metadata:
                        metadata[key] = given.metadata[key]
                        merged = True
                case ("attributes", name) if name in WRITABLE_ATTRIBUTES:
                    attributes = replace(attributes, **{name: getattr(settable(given.attributes), name)})
                case _:
                    raise InvalidField(
                        violations={"update_mask": f"{'.'.join(path)} is not a field that can be changed"}
                    )
        if merged:
            _check_size(metadata)
        return Body.of(content, metadata, vector, dimensions), attributes


def _check_size(metadata: Mapping[str, Any]) -> None:
    """What came together key by key has the limit of metadata that comes whole, else a memory could outgrow a message
    and block every list that it is in. Raises InvalidField."""
    size, most = metadata_bytes(metadata), Limits().max_metadata_bytes
    if size > most:
        raise InvalidField(violations={"item.metadata": f"would have {size} bytes, more than {most}"})


@dataclass(frozen=True, slots=True)
class Delete:
    """Blanks memories. `ids` of a delete by filter are found by the writer, under the lock."""

    ids: Sequence[str]
    where: Filter
    now: datetime

    @property
    def state_keys(self) -> Sequence[str]:
        return ()

    @property
    def row_keys(self) -> Sequence[str]:
        return [item_key(id) for id in self.ids]

    def apply(self, draft: Draft) -> tuple[int, int]:
        count = 0
        for id in dict.fromkeys(self.ids):
            before = draft.live(id)
            if before is not None and matches(self.where, before.item(draft.source)):
                draft.keep(tombstone(before, draft.next_revision(), self.now))
                count += 1
        return count, draft.revision


@dataclass(frozen=True, slots=True)
class DeleteMatching:
    """Blanks every memory that meets an SQL condition. Works on what is committed, so it is a group of its own."""

    condition: str
    now: datetime

    @property
    def state_keys(self) -> Sequence[str]:
        return ()

    @property
    def row_keys(self) -> Sequence[str]:
        return ()

    def apply(self, draft: Draft) -> tuple[int, int]:
        found = list(draft.rows.values())
        for record in found:
            draft.keep(tombstone(record, draft.next_revision(), self.now))
        return len(found), draft.revision


@dataclass(frozen=True, slots=True)
class Settle:
    """Changes nothing: the writer completes what a crash left undone, an index or the way to the disk."""

    state_keys: Sequence[str] = ()
    row_keys: Sequence[str] = ()

    def apply(self, draft: Draft) -> None:
        return None


Change = Put | Update | Delete | DeleteMatching | Settle


def tombstone(before: Record, revision: int, now: datetime) -> Record:
    """What stays of a deleted memory: its key, place and revision, and when it went."""
    blank = MemoryAttributes(status=MemoryStatus.DELETED, update_time=now)
    return Record(before.key, revision, before.id, False, before.sequence, blank)
