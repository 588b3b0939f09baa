"""What only a real directory has: links, pipes, other writers."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from recalld import Ctx, DirectoryFiles, FileMemory
from recalld.errors import InvalidField, PathRefused, SourceUnavailable
from recalld.sources import directory

pytestmark = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="DirectoryFiles needs openat")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret coffee")
    return outside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    (path / "plain.txt").write_text("plain coffee")
    return path


@pytest.fixture
def files(root: Path) -> DirectoryFiles:
    return DirectoryFiles(root)


async def test_an_absolute_path_is_a_path_below_the_root(files: DirectoryFiles, root: Path, secret: Path):
    with pytest.raises(FileNotFoundError):
        await files.view(str(secret / "secret.txt"))
    await files.create(str(secret / "secret.txt"), "mine")
    assert (secret / "secret.txt").read_text() == "secret coffee"
    assert (root / str(secret / "secret.txt").lstrip("/")).read_text() == "mine"


class TestLinks:
    @pytest.fixture(autouse=True)
    def links(self, root: Path, secret: Path) -> None:
        (root / "file").symlink_to(secret / "secret.txt")
        (root / "folder").symlink_to(secret)
        (root / "up").symlink_to("..")
        (root / "dangling").symlink_to(secret / "new.txt")
        (root / "inside").symlink_to(root / "plain.txt")

    PATHS = ("/file", "/folder", "/folder/secret.txt", "/up/outside/secret.txt", "/dangling", "/inside")

    @pytest.mark.parametrize("path", PATHS)
    async def test_are_refused_by_every_verb(self, files: DirectoryFiles, secret: Path, path: str):
        for call in (files.view(path), files.create(path, "changed"), files.delete(path)):
            with pytest.raises(PermissionError):
                await call
        assert [(file.name, file.read_text()) for file in secret.iterdir()] == [("secret.txt", "secret coffee")]

    async def test_are_not_listed_or_found(self, files: DirectoryFiles, ctx: Ctx):
        assert await files.view("/") == "/plain.txt"
        found = await FileMemory(files).query("coffee", k=9, ctx=ctx)
        assert [item.content for item in found] == ["plain coffee"]

    async def test_new_files_are_not_made_through_them(self, files: DirectoryFiles, secret: Path):
        with pytest.raises(PermissionError):
            await files.create("/folder/new/file.txt", "text")
        assert [file.name for file in secret.iterdir()] == ["secret.txt"]

    async def test_the_root_itself_may_be_one(self, tmp_path: Path, root: Path):
        (tmp_path / "alias").symlink_to(root)
        assert await DirectoryFiles(tmp_path / "alias").view("/plain.txt") == "plain coffee"


class TestSwappedIn:
    """A link that appears after the check and before the use."""

    @staticmethod
    def after_the_check(monkeypatch: pytest.MonkeyPatch, swap: object) -> None:
        real = directory._mode  # type: ignore[attr-defined]

        def check_then_swap(path: str, folder: int, name: str) -> int:
            try:
                return real(path, folder, name)
            finally:
                swap(name)  # type: ignore[operator]

        monkeypatch.setattr(directory, "_mode", check_then_swap)

    async def test_in_place_of_a_file(
        self, files: DirectoryFiles, root: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def swap(name: str) -> None:
            (root / name).unlink()
            (root / name).symlink_to(secret / "secret.txt")

        self.after_the_check(monkeypatch, swap)
        with pytest.raises(PermissionError):
            await files.view("/plain.txt")

    async def test_in_place_of_a_folder(
        self, files: DirectoryFiles, root: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
    ):
        (root / "folder").mkdir()

        def swap(name: str) -> None:
            if name == "folder":
                (root / name).rmdir()
                (root / name).symlink_to(secret)

        self.after_the_check(monkeypatch, swap)
        with pytest.raises(PermissionError):
            await files.view("/folder/secret.txt")

    async def test_in_place_of_a_file_about_to_be_written(
        self, files: DirectoryFiles, root: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def swap(name: str) -> None:
            (root / name).unlink()
            (root / name).symlink_to(secret / "secret.txt")

        self.after_the_check(monkeypatch, swap)
        await files.create("/plain.txt", "mine")
        assert (secret / "secret.txt").read_text() == "secret coffee"
        assert not (root / "plain.txt").is_symlink()
        assert (root / "plain.txt").read_text() == "mine"


async def test_pipes_are_neither_listed_nor_waited_for(files: DirectoryFiles, root: Path):
    os.mkfifo(root / "pipe")
    assert await files.view("/") == "/plain.txt"
    for call in (files.view("/pipe"), files.create("/pipe", "text"), files.delete("/pipe")):
        with pytest.raises(PermissionError):
            await call


class TestEncodings:
    TEXT = "Café au lait, 3 € — naïve coffee."

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
    async def test_are_read(self, files: DirectoryFiles, root: Path, ctx: Ctx, encoding: str):
        (root / "note.txt").write_bytes(self.TEXT.encode(encoding))
        assert await files.view("/note.txt") == self.TEXT
        found = await FileMemory(files).query("café €", k=9, ctx=ctx)
        assert [item.content for item in found] == [self.TEXT]

    @pytest.mark.parametrize(("mark", "encoding"), [("\ufeff", "utf-16-be"), ("\ufeff", "utf-32-be")])
    async def test_in_either_order_of_bytes(self, files: DirectoryFiles, root: Path, mark: str, encoding: str):
        (root / "note.txt").write_bytes((mark + self.TEXT + "日本\U0001f375").encode(encoding))
        assert await files.view("/note.txt") == self.TEXT + "日本\U0001f375"

    async def test_latin_1_is_read(self, files: DirectoryFiles, root: Path):
        (root / "note.txt").write_bytes("Zürich, \xa0Ærø, 20 °C\r\n".encode("latin-1"))
        assert await files.view("/note.txt") == "Zürich, \xa0Ærø, 20 °C\r\n"

    @pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE])
    async def test_an_empty_file_is_an_empty_text(self, files: DirectoryFiles, root: Path, content: bytes):
        (root / "empty").write_bytes(content)
        assert await files.view("/empty") == ""

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"\xff\xfe coffee", "begins as utf-16-le"),
            (codecs.BOM_UTF8 + b"coffee \xe9", "begins as utf-8"),
            ("coffee".encode("utf-16-le"), "NUL"),
            (b"coffee\0", "NUL"),
            (b"coffee \x81 is not in Windows-1252", "neither UTF-8 nor"),
            (b"\x89PNG\r\n\x1a\n coffee", "neither UTF-8 nor"),
            ("кофе и чай, coffee".encode("cp1251"), "neither UTF-8 nor"),
            ("コーヒー coffee".encode("euc-jp"), "neither UTF-8 nor"),
            ("café, coffee".encode() + b"\xff", "neither UTF-8 nor"),
            ("café, coffee".encode() + "à la crème".encode("cp1252"), "neither UTF-8 nor"),
            (bytes(range(256)), "NUL|neither UTF-8 nor"),
        ],
    )
    async def test_what_is_no_text_is_passed_over_and_told(
        self, files: DirectoryFiles, root: Path, ctx: Ctx, observed: Any, content: bytes, why: str
    ):
        (root / "noise").write_bytes(content)
        with pytest.raises(PathRefused, match=why):
            await files.view("/noise")
        found = await FileMemory(files).query("coffee", k=9, ctx=ctx)
        assert [item.content for item in found] == ["plain coffee"]
        ((event, fields),) = observed
        assert (event, fields["path"]) == ("memory.file_skipped", "/noise")

    @pytest.mark.parametrize("text", ["a\0b", "half a pair \ud83d", "\ufeffmarked"])
    async def test_what_would_not_read_back_is_not_written(self, files: DirectoryFiles, text: str):
        with pytest.raises(PathRefused, match="would not read back"):
            await files.create("/new.txt", text)
        assert await files.view("/") == "/plain.txt"


async def test_names_that_are_no_text_are_not_listed(files: DirectoryFiles, root: Path):
    for name in (b"bad\xff.txt", b"line\nbreak.txt"):
        Path(os.fsdecode(os.path.join(os.fsencode(root), name))).write_text("coffee")
    assert await files.view("/") == "/plain.txt"


async def test_a_name_that_is_too_long_is_refused(files: DirectoryFiles):
    for call in (files.view("/" + "x" * 999), files.create("/" + "x" * 999, "text")):
        with pytest.raises(PermissionError):
            await call


async def test_the_root_is_made_by_the_first_write_and_not_before(tmp_path: Path, ctx: Ctx):
    files = DirectoryFiles(tmp_path / "new" / "root")
    with pytest.raises(FileNotFoundError):
        await files.view("/")
    with pytest.raises(SourceUnavailable):
        await FileMemory(files).query("x", k=1, ctx=ctx)
    assert not (tmp_path / "new").exists()
    await files.create("/a.txt", "text")
    assert await files.view("/") == "/a.txt"


@pytest.mark.parametrize("left", ["nothing", "a file"])
async def test_a_root_that_has_vanished_is_told_apart_from_one_with_nothing_in_it(
    files: DirectoryFiles, root: Path, ctx: Ctx, left: str
):
    shutil.rmtree(root)
    if left == "a file":
        root.write_text("coffee")
    with pytest.raises(SourceUnavailable) as caught:
        await FileMemory(files, "handbook").query("coffee", k=9, ctx=ctx)
    assert str(caught.value) == "source 'handbook': the directory of its files is not there"
    told = "".join(traceback.format_exception(caught.value))
    assert str(root) in told  # for the log


async def test_a_write_that_fails_leaves_the_old_file_whole(
    files: DirectoryFiles, root: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        await files.create("/plain.txt", "half")
    assert (root / "plain.txt").read_text() == "plain coffee"
    assert [path.name for path in root.iterdir()] == ["plain.txt"]


async def test_files_that_are_not_complete_are_out_of_reach(files: DirectoryFiles, root: Path):
    (root / ".recalld-partial-1").write_text("half")
    assert await files.view("/") == "/plain.txt"
    for call in (files.view("/.recalld-partial-1"), files.create("/.recalld-partial-1/a", "text")):
        with pytest.raises(PermissionError):
            await call


async def test_the_disk_is_not_touched_on_the_event_loop(files: DirectoryFiles, monkeypatch: pytest.MonkeyPatch):
    threads: set[int] = set()
    real = os.open

    def recording(*args: object, **kwargs: object) -> int:
        threads.add(threading.get_ident())
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", recording)
    monkeypatch.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, recording})
    await files.view("/plain.txt")
    await files.create("/a/b.txt", "text")
    await files.delete("/a/b.txt")
    assert threads
    assert threading.get_ident() not in threads


class TestSize:
    async def test_a_file_of_the_limit_is_read_and_a_larger_one_is_not(self, root: Path, ctx: Ctx, observed: Any):
        files = DirectoryFiles(root, max_bytes=20)
        (root / "full.txt").write_text("coffee".ljust(20))
        (root / "over.txt").write_text("coffee".ljust(21))
        assert await files.view("/full.txt") == "coffee".ljust(20)
        with pytest.raises(PathRefused, match="20 bytes"):
            await files.view("/over.txt")
        found = await FileMemory(files).query("coffee", k=9, ctx=ctx)
        assert [item.metadata["path"] for item in found] == ["/full.txt", "/plain.txt"]
        ((event, fields),) = observed
        assert (event, fields["source"], fields["path"]) == ("memory.file_skipped", "files", "/over.txt")
        assert "20 bytes" in str(fields["error"])

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
    @pytest.mark.parametrize("text", ["x" * 20, "é" * 10, "日" * 6, "\U0001f375" * 5])
    async def test_it_is_the_text_that_counts(self, root: Path, encoding: str, text: str):
        files = DirectoryFiles(root, max_bytes=20)
        (root / "note").write_bytes(text.encode(encoding))
        assert await files.view("/note") == text
        (root / "note").write_bytes((text + text[0]).encode(encoding))
        with pytest.raises(PathRefused, match="20 bytes"):
            await files.view("/note")

    async def test_a_letter_that_is_longer_in_utf_8_counts_as_there(self, root: Path):
        (root / "old").write_bytes(b"caf\xe9 au lait, caf\xe9 ")
        with pytest.raises(PathRefused, match="20 bytes"):
            await DirectoryFiles(root, max_bytes=20).view("/old")
        assert await DirectoryFiles(root, max_bytes=22).view("/old") == "café au lait, café "

    async def test_what_could_not_be_read_again_is_not_written(self, root: Path):
        files = DirectoryFiles(root, max_bytes=20)
        await files.create("/new.txt", "x" * 20)
        with pytest.raises(PathRefused):
            await files.create("/new.txt", "é" * 11)
        assert await files.view("/new.txt") == "x" * 20

    async def test_by_default_it_is_a_mebibyte(self, files: DirectoryFiles, root: Path):
        (root / "large.txt").write_bytes(b"x" * 2**20)
        assert len(await files.view("/large.txt")) == 2**20
        (root / "large.txt").write_bytes(b"x" * (2**20 + 1))
        with pytest.raises(PathRefused):
            await files.view("/large.txt")

    @pytest.mark.parametrize("size", [0, -1])
    def test_it_is_positive(self, root: Path, size: int):
        with pytest.raises(InvalidField, match="max_bytes"):
            DirectoryFiles(root, max_bytes=size)


async def test_descriptors_that_run_out_close_nobody_elses(
    files: DirectoryFiles, root: Path, monkeypatch: pytest.MonkeyPatch
):
    (root / "folder").mkdir()
    closed: list[int] = []
    close = os.close

    def recording(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    def exhausted(descriptor: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "dup", exhausted)
    monkeypatch.setattr(os, "close", recording)
    with pytest.raises(OSError, match="Too many open files"):
        await files.view("/folder/a.txt")
    monkeypatch.undo()
    assert len(closed) == len(set(closed)) == 2


async def test_no_descriptor_is_left_open(files: DirectoryFiles, root: Path, secret: Path):
    (root / "link").symlink_to(secret)
    calls = [
        lambda: files.view("/"),
        lambda: files.view("/plain.txt"),
        lambda: files.create("/a/b/c.txt", "text"),
        lambda: files.view("/a/b"),
        lambda: files.delete("/a/b/c.txt"),
        lambda: files.view("/link/secret.txt"),
        lambda: files.view("/nothing/here"),
        lambda: files.create("/plain.txt/x", "text"),
    ]
    for call in calls:  # whatever is set up once
        await asyncio.gather(call(), return_exceptions=True)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for call in calls * 5:
        await asyncio.gather(call(), return_exceptions=True)
    assert (len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0) == before
