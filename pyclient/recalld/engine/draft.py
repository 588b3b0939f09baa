"""The state that a group of changes works on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from recalld.engine.records import Commit, Head, Receipt, Record, Snapshot
from recalld.engine.visibility import is_expired


class Draft:
    """What a turn read, and on top of it what the changes so far made of it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._records: dict[str, Record] = {}
        self._receipts: dict[str, Receipt] = {}
        self._head = snapshot.head

    @property
    def revision(self) -> int:
        """The highest revision so far."""
        return self._head.revision

    @property
    def read(self) -> Sequence[Record]:
        """The records as they were read."""
        return list(self._snapshot.records.values())

    def find(self, id: str) -> Record | None:
        """The record as it stands now, tombstones too."""
        return self._records.get(id) or self._snapshot.records.get(id)

    def live(self, id: str, now: datetime) -> Record | None:
        """The record of a memory that is neither deleted nor expired at `now`."""
        found = self.find(id)
        return found if found is not None and found.live and not is_expired(found.attributes, now) else None

    def receipt(self, key: str) -> Receipt | None:
        return self._receipts.get(key) or self._snapshot.receipts.get(key)

    def next_revision(self) -> int:
        self._head = Head(self._head.revision + 1, self._head.sequence)
        return self._head.revision

    def next_sequence(self) -> int:
        self._head = Head(self._head.revision, self._head.sequence + 1)
        return self._head.sequence

    def keep(self, record: Record) -> None:
        self._records[record.id] = record

    def keep_receipt(self, receipt: Receipt) -> None:
        self._receipts[receipt.key] = receipt

    def commit(self) -> Commit | None:
        """The whole change; None when nothing changed."""
        if not self._records and not self._receipts:
            return None
        return Commit(self._snapshot.head, self._head, self._records, self._receipts)
