"""Erases memories that expired long ago: they become tombstones, by a commit like any other."""

from __future__ import annotations

import asyncio
from datetime import datetime

from recalld.engine.changes import bury
from recalld.engine.records import Commit, Head, Record
from recalld_server.adapters.lancedb import sql
from recalld_server.adapters.lancedb.engine import compute, pa
from recalld_server.adapters.lancedb.records import to_batch, to_records
from recalld_server.adapters.lancedb.schema import STATE_COLUMNS
from recalld_server.adapters.lancedb.tables import OpenTable

#: How many become tombstones in one commit, since each takes as much memory as a vector.
_AT_ONCE = 10_000


async def erase_expired(table: OpenTable, before: datetime, *, now: datetime) -> int:
    """Erases what expired before `before`, as of `now`; gives how many. The caller holds the table. Raises HeadMoved
    when a server that takes no lock commits meanwhile; then what is left stays for the next time."""
    total = 0
    while True:
        head = (await table.head()).head
        with table.translated("look for expired items"):
            query = table.lance.query().where(f"live and expire_time < {sql.time(before)}")
            rows = await query.select(list(STATE_COLUMNS)).limit(_AT_ONCE).to_arrow()
        if not rows.num_rows:
            return total
        records = await asyncio.to_thread(to_records, rows)
        commit = _bury_all(records, head, now)
        await table.commit(await asyncio.to_thread(to_batch, commit, table.schema), commit)
        total += len(records)


async def find_next_expiry(table: OpenTable) -> datetime | None:
    """When the next memory expires, or the first of those that have; None when none ever does."""
    with table.translated("look for expired items"):
        query = table.lance.query().where("live and expire_time is not null")
        rows = await query.select(["expire_time"]).to_arrow()
    earliest = compute.min(rows["expire_time"].cast(pa.int64())).as_py()
    return None if earliest is None else sql.instant(earliest)


def _bury_all(records: list[Record], head: Head, now: datetime) -> Commit:
    tombstones = {record.id: bury(record, head.revision + 1 + at, now) for at, record in enumerate(records)}
    return Commit(head, Head(head.revision + len(records), head.sequence), tombstones, {})
