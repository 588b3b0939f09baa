"""What a data directory's files say of tables that nobody has opened: which have something to tidy."""

from __future__ import annotations

import os
from dataclasses import dataclass

from recalld_server.adapters.lancedb.layout import Layout


@dataclass(frozen=True, slots=True)
class Leftover:
    """A table by its name. untidy: whether it has older versions or rows in several files."""

    name: str
    untidy: bool


def find_leftovers(layout: Layout) -> list[Leftover]:
    """Every table of a local data directory, by a look at the names of its files: well below a millisecond a table."""
    if layout.local is None:
        return []
    found: list[Leftover] = []
    for entry in _entries(str(layout.local / "tables")):
        if not entry.endswith(".lance"):
            continue
        table = str(layout.local / "tables" / entry)
        versions = count_versions(table)
        if versions:
            files = sum(name.endswith(".lance") for name in _entries(f"{table}/data"))
            found.append(Leftover(entry.removesuffix(".lance"), versions > 1 or files > 1))
    return found


def count_versions(table: str) -> int:
    """How many versions of a table its files hold; 0 for one that was never made."""
    return sum(name.endswith(".manifest") for name in _entries(f"{table}/_versions"))


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
