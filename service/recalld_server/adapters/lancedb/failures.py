"""What LanceDB raises, turned into what recalld raises, in one place.

Almost everything LanceDB raises is a RuntimeError or ValueError that only its text tells apart, and the text holds
absolute paths and SQL. So the text goes to the log, and the caller gets a class and a sentence of ours.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from recalld.errors import InternalFailure, RecalldError, SourceUnavailable, StorageCorrupt, StorageFull
from recalld_server.adapters.lancedb.layout import Layout

log = logging.getLogger("recalld.lancedb")


class CommitConflict(RecalldError):
    """Another writer committed first; the change has to be worked out anew. Never leaves this package."""


_CONFLICT = (
    "commit conflict",
    "concurrent writers",
    "incompatible with concurrent",
    "toomuchwritecontention",
    "preempted by concurrent",
    "already exists",
    # The condition of a commit whose head has moved; nothing else that we send divides.
    "divide by zero",
)
_UNREADABLE = (
    "invalid range", "corrupt", "magic number", "not found", "no such file", "file size", "unexpected end",
    "decode error", "failed to fill", "eof", "out of bounds", "too small", "invalid file", "error decoding", "protobuf",
)  # fmt: skip
_FULL = ("no space left", "quota exceeded", "storagefull")
_DISK = ("permission denied", "read-only file system", "too many open files", "timed out", "timeout")


@contextmanager
def translated(doing: str, layout: Layout, table: str) -> Generator[None]:
    """Turns what LanceDB raises inside into a RecalldError; `doing` completes "could not ..."."""
    try:
        yield
    except RecalldError:
        raise
    except Exception as error:
        raise _translate(error, doing, layout, table) from error
    except BaseException as error:
        # A panic inside the engine arrives as a BaseException that is neither an exit nor a cancellation.
        if "panic" not in type(error).__name__.lower():
            raise
        log.error("the engine panicked: could not %s of table %s: %s", doing, table, error)
        raise InternalFailure(f"could not {doing}: the storage engine failed") from error


def _translate(error: Exception, doing: str, layout: Layout, table: str) -> RecalldError:
    text = str(error).lower()
    if any(mark in text for mark in _CONFLICT):
        return CommitConflict(f"could not {doing}: another writer was first")
    log.error("could not %s of table %s: %s: %s", doing, table, type(error).__name__, error)
    if any(mark in text for mark in _FULL):
        return disk_full(layout, doing)
    if any(mark in text for mark in _DISK):
        return SourceUnavailable(f"could not {doing}: the storage did not take it; the server's log says why")
    if any(mark in text for mark in _UNREADABLE):
        try:
            layout.check()
        except SourceUnavailable as gone:
            return gone
        return unreadable(layout, table)
    return InternalFailure(f"could not {doing}: the storage engine failed; the server's log says why")


def refused(error: OSError, layout: Layout, doing: str) -> RecalldError:
    """The error of a file system that did not do what was asked of it."""
    log.error("could not %s: %s", doing, error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(layout, doing)
    try:
        layout.check()
    except SourceUnavailable as gone:
        return gone
    return SourceUnavailable(f"could not {doing}: the storage did not take it; the server's log says why")


def disk_full(layout: Layout, doing: str) -> RecalldError:
    """The error of a disk that has no room; says what to do, since deleting takes room before it gives any back."""
    left = ""
    if layout.local is not None and layout.local.exists():
        usage = shutil.disk_usage(layout.local)
        left = f" ({usage.free >> 20} of {usage.total >> 20} MiB are free)"
    return StorageFull(
        f"could not {doing}: the disk of the data directory is full{left}. Free some space on it and try again; a "
        "delete needs a little too, and what was deleted frees its space some minutes later"
    )


def unreadable(layout: Layout, table: str) -> StorageCorrupt:
    """The error of a table that does not read back; names the file, where it can be told, as clients may read it."""
    path = layout.table_path(table)
    suspect = _newest_manifest(path) if path else None
    if suspect is not None and suspect.stat().st_size == 0:
        named, what = layout.relative(suspect), "is empty"
    else:
        named, what = (layout.relative(path) if path else f"{table}.lance"), "does not read back"
    log.error("storage does not read back: %s %s; it is left as it is and its scope is not served", named, what)
    return StorageCorrupt(
        f"stored data does not read back: {named} {what}; it was left as it is", details={"file": named}
    )


def _newest_manifest(table: Path) -> Path | None:
    """The manifest LanceDB opens. Names are 2**64-1 minus the version, padded, so the newest sorts first."""
    return min((table / "_versions").glob("*.manifest"), key=lambda path: path.name.zfill(40), default=None)
