"""The `Store` on LanceDB."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from recalld.errors import InvalidField, SourceUnavailable
from recalld.filters import All, AnyOf, Compare, Exists, Field, Filter, Op, fields_of, matches
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb import search
from recalld_server.adapters.lancedb.changes import (
    Change,
    Delete,
    DeleteMatching,
    NewRow,
    Put,
    Settle,
    Update,
    recall,
    settable,
)
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.failures import IndexMissing
from recalld_server.adapters.lancedb.filters import LIVE, compile_filter
from recalld_server.adapters.lancedb.layout import Layout, open_layout, table_name
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.records import Body, item_key, receipt_key, to_items, to_records
from recalld_server.adapters.lancedb.schema import ITEM_COLUMNS, STATE_COLUMNS
from recalld_server.adapters.lancedb.tables import OpenTable, Tables
from recalld_server.adapters.lancedb.writer import TableWriter
from recalld_server.ports import Commit, Lexical, Listed, Patch, Receipt, Row, Scored, Vector

#: From how many rows on conversions leave the event loop.
_LARGE = 64


#: The fields of a memory's life, a memory that is active and never expires, and every other.
_LIFE = (Field("status"), Field("expire_time"))
_PLAIN = MemoryItem("", "")
_NOT_PLAIN = AnyOf((Compare(_LIFE[0], Op.NE, "active"), Exists(_LIFE[1])))


async def open_store(config: LanceConfig) -> LanceStore:
    """The store at `config.root`.

    Raises StorageCorrupt for a directory that is neither empty nor a data directory of this format, and
    SourceUnavailable when it cannot be reached. Nothing that was there is changed.
    """
    layout = await asyncio.to_thread(open_layout, config.root)
    return LanceStore(config, layout, await Tables.connect(config, layout))


class LanceStore:
    """One LanceDB table a scope; see `ports.Store` for what callers rely on."""

    def __init__(self, config: LanceConfig, layout: Layout, tables: Tables) -> None:
        self._config = config
        self._layout = layout
        self._tables = tables
        self._locks = TableLocks()
        self._writers: OrderedDict[str, TableWriter] = OrderedDict()
        self._closed = False

    # Reads.

    async def lexical(self, scope: Scope, text: str, where: Filter | None, *, limit: int) -> Lexical:
        table = await self._find(scope)
        if table is None:
            return Lexical()
        condition = await self._leg_condition(table, where)
        try:
            return await search.lexical(table, text, condition, limit)
        except IndexMissing:
            # A crash between the first rows and the index; the writer completes it before anything else.
            await self._writer(scope).submit(Settle())
            return await search.lexical(table, text, condition, limit)

    async def semantic(self, scope: Scope, vector: Vector, where: Filter | None, *, limit: int) -> Sequence[Scored]:
        table = await self._find(scope)
        if table is None:
            return []
        return await search.semantic(table, vector, await self._leg_condition(table, where), limit)

    async def read(self, scope: Scope, ids: Sequence[str], where: Filter | None) -> Sequence[MemoryItem]:
        table = await self._find(scope)
        if table is None or not ids:
            return []
        rows = await table.rows(list(dict.fromkeys(map(item_key, ids))), ITEM_COLUMNS, LIVE)
        # In SQL the filter would be worked out over the whole table and cost more than the rows.
        return await self._items(rows, where)

    async def newest(self, scope: Scope, where: Filter | None, *, limit: int, before: int | None) -> Listed:
        condition = self._condition(where)
        table = await self._find(scope)
        if table is None or limit <= 0:
            return Listed()
        if before is not None:
            condition = f"sequence < {int(before)} and {condition}"
        found = await search.newest(table, ["sequence", *ITEM_COLUMNS], condition, limit + 1)
        sequences = found["sequence"].to_pylist()
        # One row beyond the limit says whether the list goes on.
        more = len(sequences) > limit
        items = await self._items(found.slice(0, limit))
        return Listed(items, sequences[limit - 1] if more else None)

    async def revision(self, scope: Scope) -> int:
        table = await self._find(scope)
        return (await table.counters()).revision if table else 0

    async def receipt(self, scope: Scope, receipt: Receipt) -> Commit | None:
        table = await self._find(scope)
        if table is None:
            return None
        found = to_records(await table.rows([receipt_key(receipt.key)], STATE_COLUMNS))
        replay = recall(found[0].receipt, receipt) if found else None
        if replay is not None:
            await self._make_durable(scope, table)
        return replay

    # Changes.

    async def put(self, scope: Scope, rows: Sequence[Row], receipt: Receipt | None, *, now: datetime) -> Commit:
        async def prepared() -> Change:
            return Put(await asyncio.to_thread(self._prepared, rows), receipt, now)

        return cast("Commit", await self._writer(scope).submit(prepared, rows=len(rows)))

    async def update(self, scope: Scope, patch: Patch, where: Filter, *, now: datetime) -> tuple[MemoryItem, int]:
        answer = await self._writer(scope).submit(Update(patch, where, now))
        return cast("tuple[MemoryItem, int]", answer)

    async def delete(
        self, scope: Scope, selected: Sequence[str] | Filter, where: Filter, *, dry_run: bool, now: datetime
    ) -> tuple[int, int]:
        condition = self._condition(All((selected, where)) if isinstance(selected, Filter) else where)
        table = await self._find(scope)
        if table is None:
            return 0, 0
        if dry_run:
            if not isinstance(selected, Filter):
                return len(await self.read(scope, selected, where)), await self.revision(scope)
            with table.translated("count items"):
                return await table.lance.count_rows(condition), await self.revision(scope)
        writer = self._writer(scope)
        if isinstance(selected, Filter):
            answer = await writer.submit(DeleteMatching(condition, now))
        else:
            answer = await writer.submit(Delete(selected, where, now), rows=len(selected))
        return cast("tuple[int, int]", answer)

    async def close(self) -> None:
        """Finishes the changes that wait, then closes."""
        self._closed = True
        for writer in list(self._writers.values()):
            await writer.close()
        self._locks.close()
        self._tables.close()

    # Inside.

    def _prepared(self, rows: Sequence[Row]) -> list[NewRow]:
        return [self._new_row(row) for row in rows]

    def _new_row(self, row: Row) -> NewRow:
        item = row.item
        if not item.id:
            raise InvalidField("an item has no id")
        body = Body.of(item.content, item.metadata, row.vector, self._config.model.dimensions)
        attributes = replace(settable(item.attributes), embedding_truncated=row.truncated)
        return NewRow(item_key(item.id), item.id, attributes, body)

    async def _leg_condition(self, table: OpenTable, where: Filter | None) -> str:
        """The condition of a search; empty where it would leave nothing out, since a filter triples a vector search.

        A filter that asks for status and expiry alone, and that an active item without an expiry passes, leaves nothing
        out while the table has only such items. Rows that are no live memory have neither words nor vector.
        """
        condition = self._condition(where)
        if where is None:
            return ""
        if all(field in _LIFE for field in fields_of(where)) and matches(where, _PLAIN):
            others = self._condition(_NOT_PLAIN)
            return "" if await table.none_match(others) else condition
        return condition

    def _condition(self, where: Filter | None) -> str:
        return compile_filter(where, self._config.name)

    async def _find(self, scope: Scope) -> OpenTable | None:
        if self._closed:
            raise SourceUnavailable("the store is closed", details={"source": self._config.name})
        return await self._tables.find(scope)

    def _writer(self, scope: Scope) -> TableWriter:
        if self._closed:
            raise SourceUnavailable("the store is closed", details={"source": self._config.name})
        name = table_name(scope)
        writer = self._writers.get(name)
        if writer is None:
            writer = TableWriter(scope, self._config, self._layout, self._tables, self._locks)
            self._forget_writers()
            self._writers[name] = writer
        self._writers.move_to_end(name)
        return writer

    def _forget_writers(self) -> None:
        """Drops writers with nothing to do, the longest unused first, while there are more than open tables."""
        for name, writer in list(self._writers.items()):
            if len(self._writers) < self._config.open_tables:
                return
            if writer.idle:
                del self._writers[name]

    async def _make_durable(self, scope: Scope, table: OpenTable) -> None:
        """Waits until what was read of the table would survive a power cut; the process that wrote it may have died
        between its commit and its sync."""
        if not self._writer(scope).is_durable(await table.version()):
            await self._writer(scope).submit(Settle())

    async def _items(self, rows: Any, where: Filter | None = None) -> Sequence[MemoryItem]:
        if rows.num_rows > _LARGE:
            return await asyncio.to_thread(self._matching, rows, where)
        return self._matching(rows, where)

    def _matching(self, rows: Any, where: Filter | None) -> Sequence[MemoryItem]:
        items = to_items(rows, self._config.name)
        return items if where is None else [item for item in items if matches(where, item)]
