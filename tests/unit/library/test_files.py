"""FileMemory, and both of its trees by the same tests."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from recalld import Ctx, DirectoryFiles, FileMemory, InMemoryFiles, MemoryItem, RecalldError, Scope
from recalld.errors import InvalidFilter, ScopeViolation, SourceUnavailable


@pytest.fixture(params=["memory", "directory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> InMemoryFiles | DirectoryFiles:
    if request.param == "memory":
        return InMemoryFiles()
    (tmp_path / "root").mkdir()
    return DirectoryFiles(tmp_path / "root")


Tree = InMemoryFiles | DirectoryFiles


class TestTree:
    async def test_starts_empty(self, files: Tree):
        assert await files.view("/") == ""

    async def test_what_is_created_is_viewed(self, files: Tree):
        await files.create("/a/b.txt", "héllo\n")
        assert await files.view("/a/b.txt") == "héllo\n"

    async def test_a_folder_lists_full_child_paths_and_marks_folders(self, files: Tree):
        for path in ("/b.txt", "/a/x.txt", "/a/y/z.txt", "/ab.txt"):
            await files.create(path, "text")
        assert await files.view("/") == "/a/\n/ab.txt\n/b.txt"
        assert await files.view("/a") == await files.view("/a/") == "/a/x.txt\n/a/y/"

    async def test_creating_again_replaces(self, files: Tree):
        await files.create("/a.txt", "a long first text")
        await files.create("/a.txt", "second")
        assert await files.view("/a.txt") == "second"

    async def test_dots_and_repeated_slashes_count_for_nothing(self, files: Tree):
        await files.create("//a/./b.txt", "text")
        assert await files.view("/a/b.txt") == await files.view("a//b.txt") == "text"

    @pytest.mark.parametrize("path", ["/nothing", "/a.txt/below", "/a/nothing/at/all"])
    async def test_what_does_not_exist_is_not_found(self, files: Tree, path: str):
        await files.create("/a.txt", "text")
        await files.create("/a/b.txt", "text")
        for verb in (files.view, files.delete):
            with pytest.raises(FileNotFoundError) as raised:
                await verb(path)
            assert isinstance(raised.value, RecalldError)

    async def test_delete_removes_a_file(self, files: Tree):
        await files.create("/a/b.txt", "text")
        await files.create("/a/c.txt", "text")
        await files.delete("/a/b.txt")
        assert await files.view("/a") == "/a/c.txt"

    @pytest.mark.parametrize("path", ["/", "", "/a", "/a/", "/new/", "."])
    async def test_a_folder_is_no_file(self, files: Tree, path: str):
        await files.create("/a/b.txt", "text")
        with pytest.raises(PermissionError):
            await files.create(path, "text")
        if path != "/new/":
            with pytest.raises(PermissionError):
                await files.delete(path)
        assert await files.view("/a/b.txt") == "text"

    async def test_a_path_through_a_file_cannot_be_created(self, files: Tree):
        await files.create("/a.txt", "text")
        with pytest.raises(PermissionError):
            await files.create("/a.txt/below.txt", "text")
        assert await files.view("/a.txt") == "text"

    @pytest.mark.parametrize(
        "path", ["/..", "/../x", "../x", "/a/../../x", "/a/../b", "..", "/x\0y", "/x\ny", "/\x7f", "/a/..\0"]
    )
    async def test_ways_out_and_control_characters_are_refused_by_every_verb(self, files: Tree, path: str):
        await files.create("/a/b.txt", "text")
        for call in (files.view(path), files.create(path, "text"), files.delete(path)):
            with pytest.raises(PermissionError) as raised:
                await call
            assert isinstance(raised.value, RecalldError)
            assert isinstance(raised.value, ValueError)

    async def test_odd_names_are_names(self, files: Tree):
        for name in ("a b.txt", "...", "..a", "日本語.txt", "a\\b", "~", "-rf", "$HOME", "a\u2028b"):
            await files.create(f"/{name}", name)
            assert await files.view(f"/{name}") == name
            assert f"/{name}" in (await files.view("/")).split("\n")


async def memory_with(files: Tree, **texts: str) -> FileMemory:
    for name, text in texts.items():
        await files.create("/" + name.replace("__", "/"), text)
    return FileMemory(files)


def paths(items: list[MemoryItem]) -> list[str]:
    return [item.metadata["path"] for item in items]


class TestQuery:
    async def test_scores_by_how_often_the_words_occur(self, files: Tree, ctx: Ctx):
        memory = await memory_with(files, a="coffee", b="Coffee, coffee and tea", c="water", d__e="tea")
        found = await memory.query("coffee TEA", k=9, ctx=ctx)
        assert found == [
            MemoryItem("Coffee, coffee and tea", "files", 3.0, {"path": "/b"}),
            MemoryItem("coffee", "files", 1.0, {"path": "/a"}),
            MemoryItem("tea", "files", 1.0, {"path": "/d/e"}),
        ]

    async def test_words_are_case_folded(self, files: Tree, ctx: Ctx):
        memory = await memory_with(files, a="Die STRASSE")
        assert len(await memory.query("straße", k=9, ctx=ctx)) == 1

    @pytest.mark.parametrize("query", ["", " ", "\n\t"])
    async def test_an_empty_query_finds_nothing(self, files: Tree, ctx: Ctx, query: str):
        assert await (await memory_with(files, a="coffee")).query(query, k=9, ctx=ctx) == []

    async def test_keeps_to_k_and_breaks_ties_by_path(self, files: Tree, ctx: Ctx):
        memory = await memory_with(files, c="x", a="x", b="x")
        assert paths(await memory.query("x", k=2, ctx=ctx)) == ["/a", "/b"]
        assert await memory.query("x", k=0, ctx=ctx) == []

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("/foo", ["/foo", "/foo"]),
            ("foo/", ["/foo", "/foo"]),
            ("/foo/bar", ["/foo"]),
            ("/fo", []),
            ("/foo/bar.txt/x", []),
            ("/", ["/foo", "/foo", "/foobar", "/top.txt"]),
            ("", ["/foo", "/foo", "/foobar", "/top.txt"]),
            ("/top.txt", ["/top.txt"]),
        ],
    )
    async def test_path_prefix_matches_whole_segments(self, files: Tree, ctx: Ctx, prefix: str, expected: list[str]):
        for path in ("/foo/a.txt", "/foo/bar/b.txt", "/foobar/c.txt", "/top.txt"):
            await files.create(path, "coffee")
        found = await FileMemory(files).query("coffee", k=9, ctx=ctx, where={"path_prefix": prefix})
        assert [path if path == "/top.txt" else "/" + path.split("/")[1] for path in paths(found)] == expected

    async def test_path_prefix_takes_no_way_out(self, files: Tree, ctx: Ctx):
        with pytest.raises(ValueError, match="upwards"):
            await FileMemory(files).query("x", k=1, ctx=ctx, where={"path_prefix": "/../x"})
        with pytest.raises(InvalidFilter):
            await FileMemory(files).query("x", k=1, ctx=ctx, where={"path_prefix": 3})

    async def test_other_keys_are_conditions_on_the_item(self, files: Tree, ctx: Ctx):
        memory = await memory_with(files, **{"a.md": "x", "b.txt": "x", "d__c.md": "x"})
        where: dict[str, Any] = {"path": {"$contains": ".md"}, "path_prefix": "/d"}
        assert paths(await memory.query("x", k=9, ctx=ctx, where=where)) == ["/d/c.md"]

    async def test_a_wrong_filter_reaches_no_file(self, ctx: Ctx):
        class Untouchable(InMemoryFiles):
            async def view(self, path: str) -> str:
                raise AssertionError

        for where in ({"path": {"$near": 1}}, {"path_prefix": "/a", "$near": 1}):
            with pytest.raises(InvalidFilter):
                await FileMemory(Untouchable()).query("x", k=1, ctx=ctx, where=where)
        assert await FileMemory(Untouchable()).query("x", k=0, ctx=ctx) == []

    async def test_a_tree_that_lists_bare_names_serves_too(self, ctx: Ctx):
        class Bare(InMemoryFiles):
            async def view(self, path: str) -> str:
                return {"/": "notes/\n", "/notes/": "a.txt", "/notes/a.txt": "coffee"}[path]

        assert paths(await FileMemory(Bare()).query("coffee", k=1, ctx=ctx)) == ["/notes/a.txt"]

    async def test_a_file_that_goes_while_it_is_searched_is_passed_over(self, ctx: Ctx, observed: Any):
        class Vanishing(InMemoryFiles):
            async def view(self, path: str) -> str:
                if path == "/":
                    return "/gone.txt\n/kept.txt\n/gone/"
                return await super().view(path)

        files = Vanishing()
        await files.create("/kept.txt", "coffee")
        assert paths(await FileMemory(files).query("coffee", k=9, ctx=ctx)) == ["/kept.txt"]
        assert observed == []

    async def test_a_file_that_cannot_be_read_is_passed_over_and_observed(self, ctx: Ctx, observed: Any):
        class Locked(InMemoryFiles):
            async def view(self, path: str) -> str:
                if path == "/locked.txt":
                    raise PermissionError("no")
                return await super().view(path)

        files = Locked()
        for name in ("locked", "open"):
            await files.create(f"/{name}.txt", "coffee")
        assert paths(await FileMemory(files).query("coffee", k=9, ctx=ctx)) == ["/open.txt"]
        ((event, fields),) = observed
        assert (event, fields["source"], fields["path"]) == ("memory.file_skipped", "files", "/locked.txt")

    async def test_so_is_a_folder_but_not_the_root(self, ctx: Ctx, observed: Any):
        class Locked(InMemoryFiles):
            locked = "/locked"

            async def view(self, path: str) -> str:
                if path.rstrip("/") == self.locked:
                    raise PermissionError("no")
                return await super().view(path)

        files = Locked()
        for name in ("locked/in", "open/in"):
            await files.create(f"/{name}.txt", "coffee")
        assert paths(await FileMemory(files).query("coffee", k=9, ctx=ctx)) == ["/open/in.txt"]
        ((event, fields),) = observed
        assert (event, fields["path"]) == ("memory.file_skipped", "/locked/")
        files.locked = ""
        with pytest.raises(SourceUnavailable, match="source 'files': the directory of its files cannot be read"):
            await FileMemory(files).query("coffee", k=9, ctx=ctx)

    async def test_long_texts_are_searched_off_the_event_loop(self, ctx: Ctx):
        threads: set[int] = set()

        class Text(str):
            def casefold(self) -> str:
                threads.add(threading.get_ident())
                return super().casefold()

        class Long(InMemoryFiles):
            async def view(self, path: str) -> str:
                return "/long.txt" if path == "/" else Text("coffee " * 9000)

        (item,) = await FileMemory(Long()).query("coffee", k=1, ctx=ctx)
        assert item.score == 9000
        assert threads
        assert threading.get_ident() not in threads


class TestWrite:
    async def test_goes_to_the_path_in_metadata(self, files: Tree, ctx: Ctx):
        await FileMemory(files).write(iter([MemoryItem("text", "s", metadata={"path": "notes/a.txt"})]), ctx=ctx)
        assert await files.view("/notes/a.txt") == "text"

    async def test_or_to_the_sha_1_of_its_content(self, files: Tree, ctx: Ctx):
        await FileMemory(files).write([MemoryItem("héllo", "s")], ctx=ctx)
        digest = hashlib.sha1("héllo".encode()).hexdigest()  # noqa: S324 - a name, not a seal
        assert await files.view("/" + digest) == "héllo"

    async def test_what_was_recalled_is_written_back_to_its_place(self, files: Tree, ctx: Ctx):
        memory = await memory_with(files, a="coffee")
        found = await memory.query("coffee", k=1, ctx=ctx)
        await memory.write(found, ctx=ctx)
        assert await files.view("/") == "/a"

    async def test_for_one_scope_another_neither_finds_nor_writes(self, files: Tree, ctx: Ctx):
        await files.create("/a", "coffee")
        for scope in (Scope("acme", "sales"), Scope("acme"), Scope()):
            memory = FileMemory(files, scope=scope)
            assert await memory.query("coffee", k=9, ctx=ctx) == []
            with pytest.raises(ScopeViolation):
                await memory.write([MemoryItem("text", "s", metadata={"path": "/b"})], ctx=ctx)
        assert await files.view("/") == "/a"
        own = FileMemory(files, scope=Scope("acme", "support"))
        await own.write([MemoryItem("more coffee", "s", metadata={"path": "/b"})], ctx=ctx)
        assert len(await own.query("coffee", k=9, ctx=ctx)) == 2

    @pytest.mark.parametrize("path", [3, None, "/", "", "/a/", "/../a", "/a\0"])
    async def test_a_wrong_path_stores_nothing_of_the_batch(self, files: Tree, ctx: Ctx, path: Any):
        good, bad = MemoryItem("good", "s"), MemoryItem("bad", "s", metadata={"path": path})
        with pytest.raises(ValueError, match="path") as raised:
            await FileMemory(files).write([good, bad], ctx=ctx)
        assert isinstance(raised.value, RecalldError)
        assert await files.view("/") == ""
