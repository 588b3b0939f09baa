"""A directory of texts as a server composes it: read-only, found by words, for one tenant or for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld import Ctx, DirectoryFiles, FileMemory, ReadOnlyMemory
from recalld.filters import Compare, Field, Op
from recalld.item import MemoryItem
from recalld.limits import Limits
from recalld.scope import Scope
from recalld.store import RetrievalMode, SearchQuery, WriteBatch

SCOPE = Scope("acme", "support")
CTX = Ctx(SCOPE)


def handbook(tree: Path, only: Scope | None = None, max_bytes: int = Limits().max_content_bytes) -> ReadOnlyMemory:
    files = DirectoryFiles(tree, max_bytes=max_bytes)
    return ReadOnlyMemory(FileMemory(files, "handbook", scope=only), on_write="ignore")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "travel").mkdir()
    (tmp_path / "travel" / "trains.md").write_text("Trains and more trains.")
    (tmp_path / "ferries.md").write_text("Ferries, and trains to them.")
    return tmp_path


async def test_finds_by_words_best_first_and_names_the_path(tree: Path):
    ranked = await handbook(tree).search(SearchQuery("trains", 5), ctx=CTX)
    assert [hit.item.metadata["path"] for hit in ranked.hits] == ["/travel/trains.md", "/ferries.md"]
    assert {hit.item.source for hit in ranked.hits} == {"handbook"}
    assert [hit.lexical_rank for hit in ranked.hits] == [1, 2]


async def test_the_filter_is_applied_before_the_cut(tree: Path):
    ferries = Compare(Field("metadata", ("path",)), Op.EQ, "/ferries.md")
    ranked = await handbook(tree).search(SearchQuery("trains", 1, ferries), ctx=CTX)
    assert [hit.item.metadata["path"] for hit in ranked.hits] == ["/ferries.md"]


async def test_the_filter_sees_the_origin_that_a_hit_has(tree: Path):
    for origin, found in (("handbook", 2), ("other", 0)):
        where = Compare(Field("origin"), Op.EQ, origin)
        assert len((await handbook(tree).search(SearchQuery("trains", 5, where), ctx=CTX)).hits) == found


async def test_a_file_larger_than_an_item_is_left_out_and_told(tree: Path):
    limit = Limits().max_content_bytes
    (tree / "largest.md").write_text("trains".ljust(limit))
    (tree / "larger.md").write_text("trains".ljust(limit + 1))
    ranked = await handbook(tree).search(SearchQuery("trains", 9), ctx=CTX)
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
    (told,) = (await handbook(tree, max_bytes=5).search(SearchQuery("trains", 9), ctx=CTX)).degradations
    assert "left out: 22" in told.message
    assert len(told.message) < 500


async def test_a_complete_answer_has_no_degradation(tree: Path):
    assert not (await handbook(tree).search(SearchQuery("trains", 9), ctx=CTX)).degradations


async def test_the_best_are_found_wherever_they_stand(tree: Path):
    for number in range(300):
        (tree / f"{number:03}.md").write_text("trains " * (number % 150 + 3))
    ranked = await handbook(tree).search(SearchQuery("trains", 3), ctx=CTX)
    assert [hit.item.metadata["path"] for hit in ranked.hits] == ["/149.md", "/299.md", "/148.md"]


async def test_another_tenant_sees_nothing_of_a_tree_that_is_one_tenant_s(tree: Path):
    source = handbook(tree, SCOPE)
    assert (await source.search(SearchQuery("trains", 5), ctx=CTX)).hits
    for other in (Scope("acme", "sales"), Scope("Acme", "support"), Scope("acme")):
        assert not (await source.search(SearchQuery("trains", 5), ctx=Ctx(other))).hits


async def test_a_write_changes_no_file(tree: Path):
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    source = handbook(tree)
    assert not source.accepts_writes
    outcome = await source.commit(WriteBatch([MemoryItem("new", "me", metadata={"path": "/new.md"}, id="n")]), ctx=CTX)
    assert list(outcome.refused) == ["handbook"]
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


async def test_what_it_cannot_do_by_meaning_is_a_degradation(tree: Path):
    result = await handbook(tree).search(SearchQuery("trains", mode=RetrievalMode.SEMANTIC), ctx=CTX)
    assert not result.hits
    assert [each.component for each in result.degradations] == ["handbook/semantic"]
    lexical = await handbook(tree).search(SearchQuery("trains", mode=RetrievalMode.LEXICAL), ctx=CTX)
    assert [hit.lexical_score for hit in lexical.hits] == [2.0, 1.0]
