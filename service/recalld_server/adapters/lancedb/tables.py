"""The tables of a store: opening, making and keeping them open."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from recalld.engine.ports import HeadMoved
from recalld.engine.records import Commit, Head
from recalld.errors import RecalldError, SourceUnavailable
from recalld.scope import Scope
from recalld_server.adapters.lancedb.config import LanceConfig
from recalld_server.adapters.lancedb.creation import BEING_MADE, make_empty
from recalld_server.adapters.lancedb.engine import compute, lancedb
from recalld_server.adapters.lancedb.failures import CommitConflict, translated, unreadable
from recalld_server.adapters.lancedb.layout import Layout, table_name
from recalld_server.adapters.lancedb.records import HEAD_KEY
from recalld_server.adapters.lancedb.schema import table_schema, verify, verify_format
from recalld_server.adapters.lancedb.sql import hashed

log = logging.getLogger("recalld.lancedb")

#: How many names of tables that were opened are remembered.
_SEEN = 4096

#: How often the full-text index is tried to be made, and the first pause in seconds; each next one is twice as long.
_INDEX_ATTEMPTS = 6
_FIRST_PAUSE = 0.01

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


@dataclass(frozen=True, slots=True)
class HeadAt:
    """The head of a table at a version of it. stored: whether it has a row of its own; tables of older versions have
    none until their next commit."""

    version: int
    head: Head
    stored: bool


class OpenTable:
    """One open table. Reads see what any process committed before them."""

    def __init__(self, name: str, lance: Any, schema: Any, layout: Layout) -> None:
        self.name = name
        self.lance = lance
        self.schema = schema
        self._layout = layout
        self._head: HeadAt | None = None
        self.indexed = False
        self._none_match: dict[str, tuple[int, bool]] = {}

    def translated(self, doing: str) -> Any:
        """As `failures.translated`, for this table."""
        return translated(doing, self._layout, self.name)

    async def head(self) -> HeadAt:
        """The head now: remembered while the table has not moved, else read from its row."""
        with self.translated("read the head"):
            version = await self.lance.version()
            if self._head is None or self._head.version != version:
                self._head = await self._read_head(version)
        return self._head

    async def _read_head(self, version: int) -> HeadAt:
        found = await self.lance.query().where(f"key = '{HEAD_KEY}'").select(["revision", "sequence"]).to_arrow()
        if found.num_rows:
            return HeadAt(version, Head(found["revision"][0].as_py(), found["sequence"][0].as_py() or 0), True)
        every = await self.lance.query().select(["revision", "sequence"]).to_arrow()
        return HeadAt(version, Head(_highest(every["revision"]), _highest(every["sequence"])), False)

    async def commit(self, batch: Any, commit: Commit) -> None:
        """Merges the rows of a commit, its head among them, if the head is still the one that it was worked out at.

        Raises HeadMoved, with nothing stored, when it is not: then the condition on the stored head divides by zero.
        Two commits at one head both replace the row of the head, so the second is run again on what the first left.
        """
        at = await self.head()
        if at.head != commit.base:
            raise HeadMoved("another commit was first")
        still = f"target.key <> '{HEAD_KEY}'"
        if at.stored:
            still = f"{still} OR target.revision = {commit.base.revision}"
        try:
            with self.translated("commit"):
                merge = (
                    self.lance.merge_insert("key")
                    .when_matched_update_all(where=f"1 / CAST(({still}) AS BIGINT) = 1")
                    .when_not_matched_insert_all()
                )
                # A row without a vector is no memory, or one without an embedding; LanceDB calls its vector bad.
                # Without `use_index(False)` an index on the key would bring back the duplicates that the primary key
                # rules out.
                result = await merge.use_index(False).execute(batch, on_bad_vectors="null")
        except CommitConflict as error:
            self._head = None
            raise HeadMoved("another commit was first") from error
        except RecalldError:
            self._head = None
            raise
        self._head = HeadAt(result.version, commit.head, True)

    async def version(self) -> int:
        """The version that a read would see now."""
        with self.translated("look at the table"):
            return await self.lance.version()

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
        at, none = self._none_match.get(condition, (-1, False))
        if at != version:
            with self.translated("count items"):
                none = not await self.lance.count_rows(condition)
            # A commit between the two looks only makes this entry useless: the next look sees its version.
            self._none_match[condition] = version, none
        return none

    async def lacks_index(self) -> bool:
        """Whether a table that was written to has no full-text index."""
        if (await self.head()).head == Head():
            return False  # its index comes with its first rows
        with self.translated("look at the table"):
            self.indexed = any("words" in index.columns for index in await self.lance.list_indices())
        return not self.indexed

    async def ensure_indexed(self) -> None:
        """Makes the full-text index of a table that was written to, where a crash left it out too. Where nothing can be
        locked, other servers' commits may get in its way; who comes next tries again."""
        pause = _FIRST_PAUSE
        for _ in range(_INDEX_ATTEMPTS):
            if self.indexed or not await self.lacks_index():
                return
            try:
                with self.translated("make the full-text index"):
                    await self.lance.create_index("words", config=FULL_TEXT)
                self.indexed = True
            except CommitConflict:
                await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads servers, keeps no secret
                pause *= 2


def _highest(column: Any) -> int:
    return compute.max(column).as_py() or 0


class Tables:
    """Opens each scope's table and keeps the last used open; all share one bounded cache."""

    def __init__(self, config: LanceConfig, layout: Layout, connection: Any) -> None:
        self._config = config
        self._layout = layout
        self._connection = connection
        self._open: OrderedDict[str, OpenTable] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        #: Called with the name of a table that is opened for the first time, or after long.
        self.on_first_open: Callable[[str], None] = lambda name: None

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
            table = await self._load(name)
            if table is None:
                return None
            verify(table.schema, scope, self._config.model, where=f"tables/{name}.lance")
            self._keep(table)
        self._open.move_to_end(name)
        return table

    async def borrow(self, name: str) -> OpenTable | None:
        """The table of this name, whatever model made its vectors; it is not kept open for it."""
        table = self._open.get(name) or await self._load(name)
        if table is not None:
            verify_format(table.schema, where=f"tables/{name}.lance")
        return table

    async def _load(self, name: str) -> OpenTable | None:
        lance = await self._opened(name)
        if lance is None:
            # Never written, or is the place gone where it would be?
            self._layout.check()
            return None
        with translated("open a table", self._layout, name):
            return OpenTable(name, lance, await lance.schema(), self._layout)

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
        self._layout.check()
        return unreadable(self._layout, name)

    async def list_being_made(self) -> list[str]:
        """Names of tables that a crash may have left before they were in place; some may be of servers at work."""
        with translated("list the tables", self._layout, ""):
            names = (await self._connection.list_tables(page_token=BEING_MADE, limit=100)).tables
        return [name for name in names if name.startswith(BEING_MADE)]

    async def drop(self, name: str) -> None:
        """Removes a table that never came to be."""
        with translated("drop a table", self._layout, name):
            await self._connection.drop_table(name, ignore_missing=True)

    async def check(self) -> None:
        """Raises SourceUnavailable when the place where the tables are is not there any more or does not answer."""
        if self._layout.local is not None:
            await asyncio.to_thread(self._layout.check)
            return
        try:
            await self._connection.list_tables(limit=1)
        except Exception as error:
            log.error("the object store does not answer: %s", error)
            raise SourceUnavailable("the object store does not answer; the server's log says why") from error

    async def make(self, scope: Scope) -> OpenTable:
        """The table of a scope, made empty where there is none yet; whoever else makes it at the same time makes this
        one. Its full-text index comes with its first rows: made over none, it ranks by the statistics of none."""
        with translated("make a table", self._layout, table_name(scope)):
            await make_empty(self._connection, self._layout, table_name(scope), self.schema(scope))
        table = await self.find(scope)
        if table is None:
            raise unreadable(self._layout, table_name(scope))
        return table

    def schema(self, scope: Scope) -> Any:
        return table_schema(scope, self._config.model)

    def _keep(self, table: OpenTable) -> None:
        self._open[table.name] = table
        while len(self._open) > self._config.open_tables:
            self._open.popitem(last=False)
        if table.name not in self._seen:
            self._seen[table.name] = None
            while len(self._seen) > _SEEN:
                self._seen.popitem(last=False)
            self.on_first_open(table.name)

    def close(self) -> None:
        self._open.clear()
        self._connection.close()
