"""A directory tree of text files as a read-only source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from recalld.errors import InternalFailure, RecalldError
from recalld.filters import matches
from recalld.item import MemoryAttributes, MemoryItem
from recalld.limits import Limits
from recalld.scope import Ctx, Scope
from recalld.sources.directory import DirectoryFiles
from recalld.sources.file import FileMemory
from recalld_server.ports import Batch, Committed, Degradation, Hit, QuerySpec, Ranked

#: How many of the files that were left out are named.
_NAMED = 3


class FilesSource:
    """Finds by words in the files below `root`; scores are counts of matching words.

    only: the one scope that sees the files, None for every scope. Writes are dropped: a directory that people keep is
    not an agent's to change.

    A hit is a whole file. Files of more than `max_bytes`, by default what an item's content may hold, are left out, and
    so are those that cannot be read; the answer then has a degradation that says how many.
    """

    kind = "files"
    accepts_writes = False

    def __init__(
        self, name: str, root: Path, only: Scope | None = None, *, max_bytes: int = Limits().max_content_bytes
    ) -> None:
        self.name = name
        self._only = only
        self._memory = FileMemory(DirectoryFiles(root, max_bytes=max_bytes), name=name)

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        if self._only is not None and scope != self._only:
            return Ranked(())
        left_out: dict[str, Exception] = {}

        def observe(event: str, fields: Mapping[str, Any]) -> None:
            if event == "memory.file_skipped":
                left_out[fields["path"]] = fields["error"]

        def accept(item: MemoryItem) -> bool:
            return spec.where is None or matches(spec.where, _named(item, self.name))

        ctx = Ctx(scope=scope, observe=observe)
        items = await self._memory.best(spec.text, k=spec.k, ctx=ctx, accept=accept)
        hits = [Hit(_named(item, self.name), rank, item.score) for rank, item in enumerate(items, 1)]
        return Ranked(hits, [_degradation(self.name, left_out)] if left_out else ())

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        return Committed(())

    async def close(self) -> None:
        return None


def _named(item: MemoryItem, origin: str) -> MemoryItem:
    return replace(item, attributes=MemoryAttributes(origin=origin))


def _degradation(name: str, left_out: Mapping[str, Exception]) -> Degradation:
    first = next(iter(left_out.values()))
    reason = first.reason if isinstance(first, RecalldError) else InternalFailure.reason
    # What is no RecalldError may tell of the server's own paths.
    causes = [
        str(error) if isinstance(error, RecalldError) else f"path {path!r} cannot be read"
        for path, error in list(left_out.items())[:_NAMED]
    ]
    more = ", ..." if len(left_out) > _NAMED else ""
    return Degradation(name, reason, f"files left out: {len(left_out)} ({', '.join(causes)}{more})")
