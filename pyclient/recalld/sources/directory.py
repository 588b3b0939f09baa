"""A directory on disk as a tree of files that nothing leads out of."""

from __future__ import annotations

import asyncio
import os
import stat
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from recalld.errors import InvalidField, MissingExtra, PathNotFound, PathRefused
from recalld.sources.encodings import LONGEST_MARK, decode_text, most_bytes
from recalld.sources.file import path_parts

# Every step down opens one name relative to the folder before it and follows no link, so a link that is swapped in
# between a check and its use is refused like any other. Resolving a path and comparing prefixes has that gap.
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: opening a pipe would otherwise wait for somebody to write into it.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

#: The beginning of the names of files that are not yet complete; such names are neither listed nor accepted.
_PARTIAL = ".recalld-partial-"


class DirectoryFiles:
    """The files below one directory, for `FileMemory`.

    root: the directory; it may be a link itself, and the first `create` makes it if it is not there. Paths start with
    `/`, which is the root, so an absolute path leads nowhere else. `..`, control characters and symbolic links raise
    PathRefused (a PermissionError and a ValueError); links, pipes and devices are not listed. A file is replaced whole
    or not at all. Disk access runs in threads. Hard links cannot be told from files: whoever may link into the root may
    choose what it serves. Needs a system with `openat`: on others construction raises MissingExtra.

    Text is written in UTF-8 and read in whatever encoding `recalld.sources.encodings.decode_text` recognises: UTF-8,
    UTF-16 and UTF-32 with a byte order mark, Windows-1252. To view any other file raises PathRefused, which says why,
    so that `FileMemory` passes it over.

    max_bytes: the largest text in bytes of UTF-8, 1 MiB by default. A larger one is listed, but to view or create it
    raises PathRefused; it is never read whole. Raises InvalidField when it is not at least 1.
    """

    def __init__(self, root: str | os.PathLike[str], *, max_bytes: int = 1024 * 1024) -> None:
        if max_bytes < 1:
            raise InvalidField(violations={"max_bytes": f"is {max_bytes}; it must be at least 1"})
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise MissingExtra("DirectoryFiles needs openat and O_NOFOLLOW, which this system does not have")
        self.root = Path(root).absolute()
        self.max_bytes = max_bytes

    async def view(self, path: str) -> str:
        return await asyncio.to_thread(self._view, path)

    async def create(self, path: str, text: str) -> None:
        await asyncio.to_thread(self._create, path, text)

    async def delete(self, path: str) -> None:
        await asyncio.to_thread(self._delete, path)

    def _view(self, path: str) -> str:
        parts = _parts(path)
        with self._folder(path, parts[:-1]) as parent:
            if not parts:
                return _listing(parent, parts)
            mode = _mode(path, parent, parts[-1])
            if stat.S_ISDIR(mode):
                with _opened(path, parts[-1], _FOLDER, parent) as folder:
                    return _listing(folder, parts)
            if path.endswith("/"):
                raise PathNotFound(f"no folder at {path!r}")
            with _opened(path, parts[-1], _READ, parent) as descriptor:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PathRefused(f"path {path!r} is not a plain file")
                with open(descriptor, "rb", closefd=False) as file:
                    return self._text(path, file)

    def _text(self, path: str, file: BinaryIO) -> str:
        start = file.read(LONGEST_MARK)
        most = most_bytes(start, self.max_bytes)
        # One byte more than may be: a file can grow after it was measured.
        content = start + file.read(max(0, most - len(start) + 1))
        if len(content) > most:
            raise self._too_large(path)
        try:
            text = decode_text(content)
        except ValueError as error:
            raise PathRefused(f"path {path!r} {error}") from None
        self._check_size(path, text.encode())
        return text

    def _create(self, path: str, text: str) -> None:
        parts = _parts(path)
        if not parts or path.endswith("/"):
            raise PathRefused(f"path {path!r} is a folder")
        content = self._content(path, text)
        self.root.mkdir(parents=True, exist_ok=True)
        with self._folder(path, parts[:-1], create=True) as parent:
            with suppress(PathNotFound):
                if not stat.S_ISREG(_mode(path, parent, parts[-1])):
                    raise PathRefused(f"path {path!r} is not a plain file")
            partial = _PARTIAL + uuid.uuid4().hex
            try:
                with open(os.open(partial, _WRITE, 0o666, dir_fd=parent), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                # Renaming replaces a link that came up meanwhile; it never writes through it.
                os.replace(partial, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=parent)
                raise

    def _delete(self, path: str) -> None:
        parts = _parts(path)
        if not parts:
            raise PathRefused(f"path {path!r} is a folder")
        with self._folder(path, parts[:-1]) as parent:
            if not stat.S_ISREG(_mode(path, parent, parts[-1])):
                raise PathRefused(f"path {path!r} is not a plain file")
            os.unlink(parts[-1], dir_fd=parent)

    def _content(self, path: str, text: str) -> bytes:
        """The bytes to write; what `view` would not give back is not written."""
        content = text.encode("utf-8", "surrogatepass")
        self._check_size(path, content)
        try:
            same = decode_text(content) == text
        except ValueError:
            same = False
        if not same:
            raise PathRefused(
                f"path {path!r}: the text would not read back; it has a NUL, half a surrogate pair, or a byte order "
                "mark in front"
            )
        return content

    def _check_size(self, path: str, content: bytes) -> None:
        if len(content) > self.max_bytes:
            raise self._too_large(path)

    def _too_large(self, path: str) -> PathRefused:
        return PathRefused(f"path {path!r} holds more than {self.max_bytes} bytes")

    @contextmanager
    def _folder(self, path: str, parts: tuple[str, ...], *, create: bool = False) -> Generator[int]:
        """The descriptor of the folder at `parts`, reached step by step."""
        try:
            descriptor = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise PathNotFound("the root directory of these files does not exist") from error
        try:
            for part in parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                if not stat.S_ISDIR(_mode(path, descriptor, part)):
                    refusal = PathRefused if create else PathNotFound
                    raise refusal(f"path {path!r} goes through a file")
                with _opened(path, part, _FOLDER, descriptor) as below:
                    deeper = os.dup(below)
                    os.close(descriptor)
                    descriptor = deeper
            yield descriptor
        finally:
            os.close(descriptor)


def _parts(path: str) -> tuple[str, ...]:
    parts = path_parts(path)
    if any(part.startswith(_PARTIAL) for part in parts):
        raise PathRefused(f"path {path!r} is kept for files that are not complete")
    return parts


def _mode(path: str, folder: int, name: str) -> int:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        raise PathNotFound(f"nothing at {path!r}") from None
    except OSError as error:  # a name that is too long, or not allowed here
        raise PathRefused(f"path {path!r}: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise PathRefused(f"path {path!r} goes through a link")
    return mode


@contextmanager
def _opened(path: str, name: str, flags: int, folder: int) -> Generator[int]:
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise PathNotFound(f"nothing at {path!r}") from None
    except OSError as error:  # ELOOP or ENOTDIR: a link since the check; EACCES: not ours to read
        raise PathRefused(f"path {path!r}: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _listing(folder: int, parts: tuple[str, ...]) -> str:
    lines: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _listable(entry.name):
                continue
            child = "/" + "/".join((*parts, entry.name))
            if entry.is_dir(follow_symlinks=False):
                lines.append(child + "/")
            elif entry.is_file(follow_symlinks=False):
                lines.append(child)
    return "\n".join(sorted(lines))


def _listable(name: str) -> bool:
    """Whether the name can stand in a line of text and be asked for again."""
    try:
        name.encode()
        return bool(_parts(name))
    except (UnicodeEncodeError, PathRefused):
        return False
