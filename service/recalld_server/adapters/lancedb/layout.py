"""Where things lie in a data directory, and whether a directory is one.

    recalld.json            the marker: which format the directory has
    tables/<table>.lance/   one LanceDB table per scope
    locks/<table>.lock      what serialises the writers of one table between processes
    sources/<name>/         the data directories of further sources

On an object store only `tables/` exists; there each table's own metadata says what it is.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from recalld.errors import SourceUnavailable, StorageCorrupt
from recalld.scope import Scope

log = logging.getLogger("recalld.lancedb")

FORMAT = 1
MARKER = "recalld.json"
_MARKER_BEING_WRITTEN = ".recalld.json."
#: What may lie in an otherwise empty directory, besides hidden files: further sources, and what file systems, network
#: storages and desktops put onto a volume by themselves. In lower case.
_NOBODYS = frozenset(
    {
        "sources",
        "lost+found",
        "aquota.user",
        "aquota.group",
        "@eadir",
        "@recycle",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "system volume information",
        "network trash folder",
        "temporary items",
        "desktop.ini",
        "thumbs.db",
    }
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A data directory. `local` is None on an object store.

    identity: what told the directory and its marker from others when it was opened.
    """

    uri: str
    local: Path | None
    identity: tuple[tuple[int, int], ...] = ()

    def table_path(self, table: str) -> Path | None:
        return self.local / "tables" / f"{table}.lance" if self.local else None

    def lock_path(self, table: str) -> Path | None:
        return self.local / "locks" / f"{table}.lock" if self.local else None

    def check(self) -> None:
        """Raises SourceUnavailable when the directory that was opened is not there any more: deleted, renamed, replaced
        by another one, or its disk was taken away. LanceDB would call every table of it one that was never written."""
        if self.local is None:
            return
        missing = [name for name in (MARKER, "tables") if not (self.local / name).exists()]
        # Some file systems number a directory anew when it is first written to, but not its marker at the same time.
        if not missing and any(now == then for now, then in zip(_identity(self.local), self.identity, strict=False)):
            return
        what = f"has no {missing[0]} any more" if missing else "is another one than was opened"
        log.error("data directory %s %s", self.local, what)
        raise SourceUnavailable(
            f"the data directory {what}: it was moved or deleted, or its disk is gone. Bring it back, then restart the "
            "server if it still says so"
        )

    def relative(self, path: Path) -> str:
        """The path as clients may read it."""
        return path.relative_to(self.local).as_posix() if self.local else path.name


def table_name(scope: Scope) -> str:
    """The table of a scope: a digest, since file systems fold the case and Unicode forms that tenants may differ in.

    The organisation goes in with its length, so that no two scopes run together.
    """
    org, domain = (scope.org_id or "").encode(), (scope.domain_id or "").encode()
    return "s" + sha256(b"%d:%s%s" % (len(org), org, domain)).hexdigest()[:48]


def open_layout(root: Path | str) -> Layout:
    """The layout at `root`; a directory that is new or empty is marked as ours, durably.

    Raises StorageCorrupt for a directory that is neither ours nor empty, and SourceUnavailable when the disk refuses.
    Nothing that was there before is changed.
    """
    text = str(root)
    if "://" in text and not text.startswith("file://"):
        return Layout(text.rstrip("/") + "/tables", None)
    directory = Path(text.removeprefix("file://")).expanduser().absolute()
    try:
        _claim(directory)
        for part in ("tables", "locks"):
            (directory / part).mkdir(exist_ok=True)
    except OSError as error:
        raise SourceUnavailable(f"data directory {directory} cannot be used: {error.strerror or error}") from error
    return Layout(str(directory / "tables"), directory, _identity(directory))


def _identity(directory: Path) -> tuple[tuple[int, int], ...]:
    """What tells this directory and its marker from others; empty when they are not there."""
    try:
        return tuple((found.st_dev, found.st_ino) for found in (directory.stat(), (directory / MARKER).stat()))
    except OSError:
        return ()


def _claim(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise StorageCorrupt(f"data directory {directory} is not a directory")
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    foreign = [name for name in sorted(os.listdir(directory)) if not _is_nobodys(name)]
    # A second server may have put the marker in place between the two looks, so the marker is looked for last.
    if marker.exists():
        _check(marker, directory)
    elif foreign:
        raise StorageCorrupt(
            f"data directory {directory} is not empty and has no {MARKER}, so it is not a recalld data directory; "
            f"it holds {foreign[0]!r}. Nothing was changed: name another directory, or an empty one"
        )
    else:
        _mark(marker)


def _is_nobodys(name: str) -> bool:
    return name.startswith(".") or name.lower() in _NOBODYS


def _check(marker: Path, directory: Path) -> None:
    try:
        found = json.loads(marker.read_bytes())["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageCorrupt(
            f"{MARKER} in data directory {directory} does not read back. Nothing was changed"
        ) from error
    if found != FORMAT:
        raise StorageCorrupt(
            f"data directory {directory} has format {found!r}; this server reads format {FORMAT}. Nothing was changed"
        )


def _mark(marker: Path) -> None:
    draft = marker.with_name(f"{_MARKER_BEING_WRITTEN}{os.getpid()}.{os.urandom(4).hex()}")
    with draft.open("xb") as file:
        file.write(json.dumps({"format": FORMAT}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(marker)
    for directory in (marker.parent, marker.parent.parent):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
