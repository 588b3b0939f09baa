"""Makes what LanceDB wrote survive a power cut: it never calls fsync itself."""

from __future__ import annotations

import os
from pathlib import Path


class SyncedFiles:
    """The files and directories of one table that are known to be on the disk.

    LanceDB never changes a file that it has written, so each name is synced once. Files that another process wrote are
    synced too, whoever wrote them: our manifest may refer to what that process had not synced when it was killed.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._known: set[str] = set()

    def sync(self) -> int:
        """Blocks until every file of the table is on the disk; gives how many had to be synced.

        Files first, then the directories that name them, innermost first, up to the one that names the table.
        """
        seen: set[str] = set()
        fresh: list[str] = []
        folders: set[str] = set()
        for folder, _, names in os.walk(self._table):
            for path in (os.path.join(folder, name) for name in names):
                seen.add(path)
                if path not in self._known:
                    fresh.append(path)
                    folders.add(folder)
        for path in fresh:
            if not _fsync(path):
                seen.discard(path)
        if fresh and not self._known:
            folders.update(folder for folder, _, _ in os.walk(self._table))
            folders.add(str(self._table.parent))
        else:
            # A new index brings a new folder; its own name lies in the folder above.
            folders.update({os.path.dirname(folder) for folder in folders if folder != str(self._table)})
        for folder in sorted(folders, key=len, reverse=True):
            _fsync(folder)
        self._known = seen
        return len(fresh)


def _fsync(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False  # cleaned up meanwhile, by another process
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return True
