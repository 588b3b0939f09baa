"""The `RecordStore` on LanceDB."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from recalld.engine.ports import Lexical, NewestItems, Scored
from recalld.engine.records import Head, Receipt, Vector
from recalld.errors import SourceUnavailable
from recalld.filters import AnyOf, Compare, Exists, Field, Filter, Op, fields_of, matches
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.adapters.lancedb import search
from recalld_server.adapters.lancedb.access import TableAccess
from recalld_server.adapters.lancedb.conditions import Conditions
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.filters import LIVE
from recalld_server.adapters.lancedb.layout import Layout, open_layout, table_name
from recalld_server.adapters.lancedb.locks import TableLocks
from recalld_server.adapters.lancedb.offload import convert
from recalld_server.adapters.lancedb.records import item_key, receipt_key, to_items, to_receipts
from recalld_server.adapters.lancedb.schema import ITEM_COLUMNS, STATE_COLUMNS
from recalld_server.adapters.lancedb.tables import OpenTable, Tables
from recalld_server.adapters.lancedb.turn import LanceTurn
from recalld_server.adapters.lancedb.upkeep import Upkeep

#: The fields of a memory's life, a memory that is active and never expires, and every other.
_LIFE = (Field("status"), Field("expire_time"))
_PLAIN = MemoryItem("", "")
_NOT_PLAIN = AnyOf((Compare(_LIFE[0], Op.NE, "active"), Exists(_LIFE[1])))


async def open_records(config: LanceConfig) -> LanceRecords:
    """The store at `config.root`.

    Raises StorageCorrupt for a directory that is neither empty nor a data directory of this format, and
    SourceUnavailable when it cannot be reached. Nothing that was there is changed.
    """
    layout = await asyncio.to_thread(open_layout, config.root)
    records = LanceRecords(config, layout, await Tables.connect(config, layout))
    records.start_upkeep()
    return records


class LanceRecords:
    """One LanceDB table a scope; see `RecordStore` for what callers rely on."""

    def __init__(self, config: LanceConfig, layout: Layout, tables: Tables) -> None:
        self._config = config
        self._layout = layout
        self._tables = tables
        self._locks = TableLocks()
        self._accesses: OrderedDict[str, TableAccess] = OrderedDict()
        self._conditions = Conditions(config.name)
        self._upkeep = Upkeep(config, layout, tables, self._access)
        self._closed = False

    def start_upkeep(self) -> None:
        """Begins to tidy tables, those too that a process before left untidy. Called once, on the loop of all calls."""
        self._tables.on_first_open = self._upkeep.note_opened
        self._upkeep.start()

    @property
    def name(self) -> str:
        return self._config.name

    # Changes.

    @asynccontextmanager
    async def turn(self, scope: Scope) -> AsyncGenerator[LanceTurn]:
        self._check_open()
        access = self._access(table_name(scope))
        async with access.held():
            yield LanceTurn(scope, self._tables, access, self._conditions, self._upkeep)

    # Reads.

    async def lexical(self, scope: Scope, text: str, where: Filter | None, *, limit: int) -> Lexical:
        table = await self._find(scope)
        if table is None:
            return Lexical()
        if not table.indexed and await table.lacks_index():
            # A crash between the first rows and the index; who holds the table completes it.
            async with self._access(table.name).held():
                await table.ensure_indexed()
        return await search.lexical(table, text, await self._leg_condition(table, where), limit)

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

    async def newest(self, scope: Scope, where: Filter | None, *, limit: int, before: int | None = None) -> NewestItems:
        condition = await self._conditions.compile(where)
        table = await self._find(scope)
        if table is None or limit <= 0:
            return NewestItems()
        if before is not None:
            condition = f"sequence < {int(before)} and {condition}"
        found = await search.newest(table, ["sequence", *ITEM_COLUMNS], condition, limit + 1)
        sequences = found["sequence"].to_pylist()
        # One row beyond the limit says whether the list goes on.
        more = len(sequences) > limit
        items = await self._items(found.slice(0, limit))
        return NewestItems(items, sequences[limit - 1] if more else None)

    async def count(self, scope: Scope, where: Filter | None) -> int:
        condition = await self._conditions.compile(where)
        table = await self._find(scope)
        if table is None:
            return 0
        with table.translated("count items"):
            return await table.lance.count_rows(condition)

    async def head(self, scope: Scope) -> Head:
        table = await self._find(scope)
        return (await table.head()).head if table else Head()

    async def receipt(self, scope: Scope, key: str) -> Receipt | None:
        table = await self._find(scope)
        if table is None:
            return None
        row_key = receipt_key(key)
        found = to_receipts(await table.rows([row_key], STATE_COLUMNS), {row_key: key})
        if not found:
            return None
        # The process that wrote it may have died between its commit and its sync.
        access = self._access(table.name)
        if not await access.is_durable(table):
            async with access.held():
                await access.make_durable(table)
        return found[0]

    async def check(self) -> None:
        """Raises SourceUnavailable when the data directory is not the one that was opened any more, or the object store
        does not answer: then nothing found does not mean that nothing is there."""
        self._check_open()
        await self._tables.check()

    async def close(self) -> None:
        """Finishes what is under way, then closes."""
        self._closed = True
        await self._upkeep.close()
        self._locks.close()
        self._tables.close()

    # Inside.

    async def _leg_condition(self, table: OpenTable, where: Filter | None) -> str:
        """The condition of a search; empty where it would leave nothing out, since a filter triples a vector search.

        A filter that asks for status and expiry alone, and that an active item without an expiry passes, leaves nothing
        out while the table has only such items. Rows that are no live memory have neither words nor vector.
        """
        if where is None:
            return ""
        if all(field in _LIFE for field in fields_of(where)) and matches(where, _PLAIN):
            others = await self._conditions.compile(_NOT_PLAIN)
            return "" if await table.none_match(others) else await self._conditions.compile(where)
        return await self._conditions.compile(where)

    async def _find(self, scope: Scope) -> OpenTable | None:
        self._check_open()
        return await self._tables.find(scope)

    def _access(self, name: str) -> TableAccess:
        access = self._accesses.get(name)
        if access is None:
            access = TableAccess(name, self._config, self._layout, self._locks)
            self._forget_accesses()
            self._accesses[name] = access
        self._accesses.move_to_end(name)
        return access

    def _check_open(self) -> None:
        if self._closed:
            raise SourceUnavailable("the store is closed", details={"source": self._config.name})

    def _forget_accesses(self) -> None:
        """Drops those with nothing to do, the longest unused first, while there are more than open tables."""
        for name, access in list(self._accesses.items()):
            if len(self._accesses) < self._config.open_tables:
                return
            if access.idle:
                del self._accesses[name]

    async def _items(self, rows: Any, where: Filter | None = None) -> Sequence[MemoryItem]:
        return await convert(rows, lambda rows: self._matching(rows, where), where=where)

    def _matching(self, rows: Any, where: Filter | None) -> Sequence[MemoryItem]:
        items = to_items(rows, self._config.name)
        return items if where is None else [item for item in items if matches(where, item)]
