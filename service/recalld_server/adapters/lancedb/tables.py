"""The tables of a store: opening, making and keeping them open."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from recalld.scope import Scope
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.engine import compute, lancedb
from recalld_server.adapters.lancedb.failures import translated, unreadable
from recalld_server.adapters.lancedb.layout import Layout, table_name
from recalld_server.adapters.lancedb.schema import table_schema, verify
from recalld_server.adapters.lancedb.sql import hashed

#: The full-text index: what the words of a query are to LanceDB. See `analysis` for what happens before it.
FULL_TEXT = lancedb.index.FTS(
    base_tokenizer="icu/split",
    language="English",
    max_token_length=512,
    lower_case=True,
    stem=True,
    remove_stop_words=False,
    ascii_folding=True,
)


@dataclass(slots=True)
class Counters:
    """The highest revision and sequence of a table at a version of it."""

    version: int
    revision: int
    sequence: int


class OpenTable:
    """One open table. Reads see what any process committed before them."""

    def __init__(self, name: str, lance: Any, layout: Layout) -> None:
        self.name = name
        self.lance = lance
        self._layout = layout
        self._counters: Counters | None = None
        self.indexed = False
        self._none_match: dict[str, int] = {}

    def translated(self, doing: str) -> Any:
        """As `failures.translated`, for this table."""
        return translated(doing, self._layout, self.name)

    async def counters(self) -> Counters:
        """The counters now: remembered while the table has not moved, else read from two columns."""
        with self.translated("read the revision"):
            version = await self.lance.version()
            if self._counters is None or self._counters.version != version:
                found = await self.lance.query().select(["revision", "sequence"]).to_arrow()
                self._counters = Counters(version, _highest(found["revision"]), _highest(found["sequence"]))
        return self._counters

    async def version(self) -> int:
        """The version that a read would see now."""
        with self.translated("look at the table"):
            return await self.lance.version()

    def committed(self, version: int, revision: int, sequence: int) -> None:
        """Remembers what a commit of ours left, while we hold the lock."""
        self._counters = Counters(version, revision, sequence)

    def forget(self) -> None:
        """Drops what is remembered, after a commit that failed half way."""
        self._counters = None

    async def rows(self, keys: Sequence[str], columns: Sequence[str], condition: str = "") -> Any:
        """The rows of these keys as an Arrow table."""
        where = f"key in ({hashed(keys)})"
        if condition:
            where = f"{where} and {condition}"
        with self.translated("read items"):
            return await self.lance.query().where(where).select(list(columns)).to_arrow()

    async def none_match(self, condition: str) -> bool:
        """Whether no row matches; remembered while the table does not move. For conditions that do not change."""
        version = await self.version()
        if self._none_match.get(condition) == version:
            return True
        with self.translated("count items"):
            if await self.lance.count_rows(condition):
                return False
        # A commit between the two looks only makes this entry useless: the next look sees its version.
        self._none_match[condition] = version
        return True

    async def fragments(self) -> int:
        """How many files of rows the table has."""
        with self.translated("look at the table"):
            return (await self.lance.stats())["fragment_stats"]["num_fragments"]

    async def ensure_indexed(self) -> None:
        """Makes the full-text index when a crash between the first rows and the index left it out."""
        if self.indexed:
            return
        with self.translated("make the full-text index"):
            if not any("words" in index.columns for index in await self.lance.list_indices()):
                await self.lance.create_index("words", config=FULL_TEXT)
                self.forget()
        self.indexed = True


def _highest(column: Any) -> int:
    return compute.max(column).as_py() or 0


class Tables:
    """Opens each scope's table and keeps the last used open; all share one bounded cache."""

    def __init__(self, config: LanceConfig, layout: Layout, connection: Any) -> None:
        self._config = config
        self._layout = layout
        self._connection = connection
        self._open: OrderedDict[str, OpenTable] = OrderedDict()

    @classmethod
    async def connect(cls, config: LanceConfig, layout: Layout) -> Tables:
        session = lancedb.Session(config.index_cache_bytes, config.metadata_cache_bytes)
        with translated("connect", layout, ""):
            # At an interval of 0 every read looks for a newer version first, so two servers see each other's writes.
            connection = await lancedb.connect_async(
                layout.uri, session=session, read_consistency_interval=timedelta(0)
            )
        return cls(config, layout, connection)

    async def find(self, scope: Scope) -> OpenTable | None:
        """The table of a scope; None when it was never written.

        Raises StorageCorrupt when it does not read back, EmbeddingModelMismatch when its vectors are another model's.
        """
        name = table_name(scope)
        table = self._open.get(name)
        if table is None:
            lance = await self._opened(name)
            if lance is None:
                return None
            with translated("open a table", self._layout, name):
                schema = await lance.schema()
            verify(schema, scope, self._config.model, where=f"tables/{name}.lance")
            table = self._keep(OpenTable(name, lance, self._layout))
        self._open.move_to_end(name)
        return table

    async def _opened(self, name: str) -> Any:
        try:
            return await self._connection.open_table(name)
        except ValueError as error:
            if "was not found" in str(error) and not self._has_manifest(name):
                return None
            raise self._unreadable(name, error) from error
        except (RuntimeError, OSError) as error:
            raise self._unreadable(name, error) from error

    def _has_manifest(self, name: str) -> bool:
        path = self._layout.table_path(name)
        return path is not None and any((path / "_versions").glob("*.manifest"))

    def _unreadable(self, name: str, error: Exception) -> Exception:
        if self._layout.local is None:
            with translated("open a table", self._layout, name):
                raise error
        return unreadable(self._layout, name)

    async def create(self, scope: Scope, rows: Any) -> OpenTable:
        """Makes the table of a scope from its first rows, with its full-text index.

        The index comes after the rows: made over none, it ranks by the statistics of none.
        """
        name = table_name(scope)
        with translated("make a table", self._layout, name):
            lance = await self._connection.create_table(name, rows, mode="create", on_bad_vectors="null")
        table = OpenTable(name, lance, self._layout)
        await table.ensure_indexed()
        return self._keep(table)

    def schema(self, scope: Scope) -> Any:
        return table_schema(scope, self._config.model)

    def _keep(self, table: OpenTable) -> OpenTable:
        self._open[table.name] = table
        while len(self._open) > self._config.open_tables:
            self._open.popitem(last=False)
        return table

    def close(self) -> None:
        self._open.clear()
        self._connection.close()
