"""A scope's turn on its table."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from recalld.engine.ports import HeadMoved
from recalld.engine.records import Commit, Head, Receipt, Record, Snapshot
from recalld.filters import Filter
from recalld.scope import Scope
from recalld_server.adapters.lancedb.access import TableAccess
from recalld_server.adapters.lancedb.conditions import Conditions
from recalld_server.adapters.lancedb.offload import convert
from recalld_server.adapters.lancedb.records import item_key, receipt_key, to_batch, to_receipts, to_records
from recalld_server.adapters.lancedb.schema import ROW_COLUMNS, STATE_COLUMNS
from recalld_server.adapters.lancedb.tables import OpenTable, Tables
from recalld_server.adapters.lancedb.upkeep import Upkeep


class LanceTurn:
    """A `Turn`; whoever made it holds the table."""

    def __init__(
        self, scope: Scope, tables: Tables, access: TableAccess, conditions: Conditions, upkeep: Upkeep
    ) -> None:
        self._scope = scope
        self._tables = tables
        self._access = access
        self._conditions = conditions
        self._upkeep = upkeep

    async def snapshot(
        self, ids: Collection[str] = (), *, whole: Collection[str] = (), receipts: Collection[str] = ()
    ) -> Snapshot:
        table = await self._find()
        if table is None:
            return Snapshot(Head(), {}, {})
        # What is told may be of a commit that was cut off before its sync.
        await self._access.make_durable(table)
        head = (await table.head()).head
        states = {item_key(id): id for id in ids}
        keys = {receipt_key(key): key for key in receipts}
        records: Sequence[Record] = ()
        found: Sequence[Receipt] = ()
        if states or keys:
            rows = await table.rows([*states, *keys], STATE_COLUMNS)
            records, found = await convert(rows, lambda rows: (to_records(rows), to_receipts(rows, keys)))
        if whole:
            rows = await table.rows(list(dict.fromkeys(map(item_key, whole))), ROW_COLUMNS)
            records = [*records, *await convert(rows, to_records)]
        return Snapshot(head, {record.id: record for record in records}, {each.key: each for each in found})

    async def matching(self, where: Filter, *, limit: int) -> Sequence[Record]:
        table = await self._find()
        if table is None:
            return []
        condition = await self._conditions.compile(where)
        with table.translated("select items"):
            rows = await table.lance.query().where(condition).select(list(STATE_COLUMNS)).limit(limit).to_arrow()
        return await convert(rows, to_records)

    async def commit(self, commit: Commit) -> None:
        # The words and filter columns of one long text may take milliseconds.
        batch = await asyncio.to_thread(to_batch, commit, self._tables.schema(self._scope))
        table = await self._find()
        if table is None:
            if commit.base != Head():
                raise HeadMoved("the scope is not there any more")
            table = await self._tables.make(self._scope)
        await table.commit(batch, commit)
        self._upkeep.note_commit(self._access, commit)
        await table.ensure_indexed()
        await self._access.make_durable(table)

    async def _find(self) -> OpenTable | None:
        table = await self._tables.find(self._scope)
        if table is not None:
            await table.ensure_indexed()
        return table
