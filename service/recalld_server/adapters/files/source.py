"""A directory tree of text files as a read-only source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recalld.filters import matches
from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import Ctx, Scope
from recalld.sources.directory import DirectoryFiles
from recalld.sources.file import FileMemory
from recalld_server.ports import Batch, Committed, Hit, QuerySpec, Ranked

#: More than any tree that is walked for each query should hold.
_ALL_FILES = 1_000_000


class FilesSource:
    """Finds by words in the files below `root`; scores are counts of matching words.

    only: the one scope that sees the files, None for every scope. Writes are dropped: a directory that people keep is
    not an agent's to change.
    """

    kind = "files"
    accepts_writes = False

    def __init__(self, name: str, root: Path, only: Scope | None = None) -> None:
        self.name = name
        self._only = only
        self._memory = FileMemory(DirectoryFiles(root), name=name)

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        if self._only is not None and scope != self._only:
            return Ranked(())
        items = await self._memory.query(spec.text, k=_ALL_FILES, ctx=Ctx(scope=scope))
        kept = [item for item in items if spec.where is None or matches(spec.where, item)]
        return Ranked([Hit(_named(item, self.name), rank, item.score) for rank, item in enumerate(kept[: spec.k], 1)])

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        return Committed(())

    async def close(self) -> None:
        return None


def _named(item: MemoryItem, origin: str) -> MemoryItem:
    return replace(item, attributes=MemoryAttributes(origin=origin))
