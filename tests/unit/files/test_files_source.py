"""A directory of texts as a source of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld.filters import Compare, Field, Op
from recalld.item import MemoryItem
from recalld.limits import Limits
from recalld.scope import Scope
from recalld_server.adapters.files.source import FilesSource
from recalld_server.ports import Batch, QuerySpec

SCOPE = Scope("acme", "support")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "travel").mkdir()
    (tmp_path / "travel" / "trains.md").write_text("Trains and more trains.")
    (tmp_path / "ferries.md").write_text("Ferries, and trains to them.")
    return tmp_path


async def test_finds_by_words_best_first_and_names_the_path(tree: Path):
    ranked = await FilesSource("handbook", tree).search(SCOPE, QuerySpec("trains", 5))
    assert [hit.item.metadata["path"] for hit in ranked.hits] == ["/travel/trains.md", "/ferries.md"]
    assert {hit.item.source for hit in ranked.hits} == {"handbook"}
    assert [hit.lexical_rank for hit in ranked.hits] == [1, 2]


async def test_the_filter_is_applied_before_the_cut(tree: Path):
    ferries = Compare(Field("metadata", ("path",)), Op.EQ, "/ferries.md")
    ranked = await FilesSource("handbook", tree).search(SCOPE, QuerySpec("trains", 1, ferries))
    assert [hit.item.metadata["path"] for hit in ranked.hits] == ["/ferries.md"]


async def test_the_filter_sees_the_origin_that_a_hit_has(tree: Path):
    for origin, found in (("handbook", 2), ("other", 0)):
        where = Compare(Field("origin"), Op.EQ, origin)
        assert len((await FilesSource("handbook", tree).search(SCOPE, QuerySpec("trains", 5, where))).hits) == found


async def test_a_file_larger_than_an_item_is_left_out_and_told(tree: Path):
    limit = Limits().max_content_bytes
    (tree / "largest.md").write_text("trains".ljust(limit))
    (tree / "larger.md").write_text("trains".ljust(limit + 1))
    ranked = await FilesSource("handbook", tree).search(SCOPE, QuerySpec("trains", 9))
    found = {hit.item.metadata["path"] for hit in ranked.hits}
    assert found == {"/largest.md", "/travel/trains.md", "/ferries.md"}
    (told,) = ranked.degradations
    assert (told.component, told.reason) == ("handbook", "INVALID_FIELD")
    assert "left out: 1" in told.message
    assert "/larger.md" in told.message
    assert str(limit) in told.message


async def test_many_files_left_out_are_one_degradation_that_counts_them(tree: Path):
    for number in range(20):
        (tree / f"{number}.md").write_text("a long text")
    (told,) = (await FilesSource("handbook", tree, max_bytes=5).search(SCOPE, QuerySpec("trains", 9))).degradations
    assert "left out: 22" in told.message
    assert len(told.message) < 500


async def test_a_complete_answer_has_no_degradation(tree: Path):
    assert not (await FilesSource("handbook", tree).search(SCOPE, QuerySpec("trains", 9))).degradations


async def test_the_best_are_found_wherever_they_stand(tree: Path):
    for number in range(300):
        (tree / f"{number:03}.md").write_text("trains " * (number % 150 + 3))
    ranked = await FilesSource("handbook", tree).search(SCOPE, QuerySpec("trains", 3))
    assert [hit.item.metadata["path"] for hit in ranked.hits] == ["/149.md", "/299.md", "/148.md"]


async def test_another_tenant_sees_nothing_of_a_tree_that_is_one_tenant_s(tree: Path):
    source = FilesSource("handbook", tree, only=SCOPE)
    assert (await source.search(SCOPE, QuerySpec("trains", 5))).hits
    for other in (Scope("acme", "sales"), Scope("Acme", "support"), Scope("acme")):
        assert not (await source.search(other, QuerySpec("trains", 5))).hits


async def test_a_write_changes_no_file(tree: Path):
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    source = FilesSource("handbook", tree)
    assert not source.accepts_writes
    await source.write(SCOPE, Batch([MemoryItem("new", "me", metadata={"path": "/new.md"}, id="n")]))
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before
