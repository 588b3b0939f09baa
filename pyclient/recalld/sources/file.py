"""A tree of text files as a source, found by their words."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Protocol

from recalld.errors import InvalidField, InvalidFilter, PathNotFound, PathRefused, ScopeViolation, SourceUnavailable
from recalld.filters import matches
from recalld.item import MemoryItem
from recalld.scope import CtxLike, Scope, observe, scope_of
from recalld.source import check_query
from recalld.store import RetrievalMode
from recalld.where import copy_where, parse_where

#: Texts of fewer characters are searched at once: going to a thread takes longer.
_SEARCHED_AT_ONCE = 4096


class FileTree(Protocol):
    """What `FileMemory` needs of a tree of files. Paths start with `/`."""

    async def view(self, path: str) -> str:
        """The text of a file; of a folder one child path a line, folders with a trailing `/`.

        Raises FileNotFoundError when there is neither.
        """
        ...

    async def create(self, path: str, text: str) -> None:
        """Write the file, in place of the one that was there, with the folders that it needs."""
        ...

    async def delete(self, path: str) -> None:
        """Remove the file. Raises FileNotFoundError when there is none."""
        ...


def path_parts(path: str) -> tuple[str, ...]:
    """The segments of a path below the root; none for the root itself. Repeated slashes and `.` count for nothing.

    Raises PathRefused for `..` and for control characters: a NUL ends a name early, a line break splits a listing.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise PathRefused(f"path {path!r} has a control character")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PathRefused(f"path {path!r} leads upwards")
    return parts


class InMemoryFiles:
    """A tree of files that lives in this object; empty at first. A folder is there as long as it has a file."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, ...], str] = {}

    async def view(self, path: str) -> str:
        parts = path_parts(path)
        if parts in self._texts:
            return self._texts[parts]
        children: set[str] = set()
        for file in self._texts:
            if file[: len(parts)] == parts:
                child = "/" + "/".join(file[: len(parts) + 1])
                children.add(child if len(file) == len(parts) + 1 else child + "/")
        if parts and not children:
            raise PathNotFound(f"nothing at {path!r}")
        return "\n".join(sorted(children))

    async def create(self, path: str, text: str) -> None:
        parts = path_parts(path)
        if not parts or path.endswith("/") or any(file[: len(parts)] == parts != file for file in self._texts):
            raise PathRefused(f"path {path!r} is a folder")
        if any(parts[:end] in self._texts for end in range(1, len(parts))):
            raise PathRefused(f"path {path!r} goes through a file")
        self._texts[parts] = text

    async def delete(self, path: str) -> None:
        parts = path_parts(path)
        if parts not in self._texts:
            if not parts or any(file[: len(parts)] == parts for file in self._texts):
                raise PathRefused(f"path {path!r} is a folder")
            raise PathNotFound(f"nothing at {path!r}")
        del self._texts[parts]


@dataclass(eq=False)
class FileMemory:
    """Find files by their words.

    files: any `FileTree`, for example `InMemoryFiles()` or `DirectoryFiles(root)`. A file's score is how often the
    words of the query occur in it, as parts of words too and whatever the case; files with none are left out, so an
    empty query finds nothing. Best first, then by path. Items carry `{"path": ...}`.

    `where={"path_prefix": "/notes"}` looks only at and below that path, by whole segments; every other key is a
    condition on the item, for example `{"path": {"$contains": ".md"}}`. Long texts are searched in threads.

    A file that cannot be read, is no text, or is larger than the tree gives out, is passed over and the context's
    observer is told (`memory.file_skipped` with `source`, `path` and `error`); so is a folder that cannot be read.
    Without the root of the tree a query raises SourceUnavailable.

    scope: the only scope that finds and writes the files; None for all, which then share the tree.
    """

    files: FileTree
    name: str = "files"
    _: KW_ONLY
    scope: Scope | None = None

    retrieval_modes: ClassVar[frozenset[RetrievalMode]] = frozenset({RetrievalMode.LEXICAL})

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        check_query(query, k=k)
        conditions = copy_where(where)
        prefix = _prefix(conditions.pop("path_prefix", ""))
        condition = parse_where(conditions)
        words = query.casefold().split()
        if k <= 0 or not words or not self._serves(ctx):
            return []
        found: list[MemoryItem] = []
        for path in await self._below("/", prefix, ctx):
            text = await self._text(path, ctx)
            if len(text) < _SEARCHED_AT_ONCE:
                count = _occurrences(words, text)
            else:
                count = await asyncio.to_thread(_occurrences, words, text)
            if not count:
                continue
            item = MemoryItem(text, self.name, float(count), {"path": path})
            if condition is None or matches(condition, item):
                found.append(item)
            if len(found) >= 2 * k + 64:  # so that a tree that matches everywhere is not held whole
                found = _first(found, k)
        return _first(found, k)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Write each item to the file at `metadata["path"]`, or else at the SHA-1 of its content.

        Every path is checked before the first file is written. Only the content is kept. Raises ScopeViolation for a
        scope that the tree is not for.
        """
        if not self._serves(ctx):
            raise ScopeViolation(f"source {self.name!r} is for another scope")
        files = [(_path_of(item), item.content) for item in items]
        for path, text in files:
            await self.files.create(path, text)

    def _serves(self, ctx: CtxLike) -> bool:
        return self.scope is None or scope_of(ctx) == self.scope

    async def _below(self, folder: str, prefix: tuple[str, ...], ctx: CtxLike) -> list[str]:
        """The paths of the files that the prefix takes in; folders beside it are not read."""
        try:
            lines = (await self.files.view(folder)).split("\n")
        except OSError as error:
            if folder == "/":
                why = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
                message = f"source {self.name!r}: the directory of its files {why}"
                # Where it is stands in the cause, for who owns it; the message may travel.
                raise SourceUnavailable(message, details={"source": self.name}) from error
            self._tell_skipped(folder, error, ctx)
            return []
        paths: list[str] = []
        for line in filter(None, lines):
            child = line if line.startswith("/") else folder + line
            parts = path_parts(child)
            inside = parts[: len(prefix)] == prefix
            if not child.endswith("/"):
                paths.extend([child] if inside else [])
            elif inside or prefix[: len(parts)] == parts:
                paths.extend(await self._below(child, prefix, ctx))
        return paths

    async def _text(self, path: str, ctx: CtxLike) -> str:
        try:
            return await self.files.view(path)
        except OSError as error:
            self._tell_skipped(path, error, ctx)
            return ""

    def _tell_skipped(self, path: str, error: OSError, ctx: CtxLike) -> None:
        if not isinstance(error, FileNotFoundError):  # which has only gone since it was listed
            observe(ctx, "memory.file_skipped", source=self.name, path=path, error=error)


def _occurrences(words: Sequence[str], text: str) -> int:
    folded = text.casefold()
    return sum(map(folded.count, words))


def _first(found: list[MemoryItem], k: int) -> list[MemoryItem]:
    return sorted(found, key=lambda item: (-(item.score or 0.0), item.metadata["path"]))[:k]


def _prefix(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise InvalidFilter(f"where: path_prefix is a string, not {type(value).__name__}")
    return path_parts(value)


def _path_of(item: MemoryItem) -> str:
    metadata: Mapping[str, Any] = item.metadata
    if "path" not in metadata:
        return "/" + hashlib.sha1(item.content.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    path: Any = metadata["path"]
    if not isinstance(path, str):
        raise InvalidField(violations={"metadata.path": f"must be a string, not {type(path).__name__}"})
    parts = path_parts(path)
    if not parts or path.endswith("/"):
        raise PathRefused(f"path {path!r} is a folder")
    return "/" + "/".join(parts)
