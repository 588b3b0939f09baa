"""Searches, hits, splits and pages to the wire and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.errors import CompositeWriteError, InvalidField, SourceUnavailable
from recalld.filters import Compare, Field, Op
from recalld.item import MemoryItem
from recalld.store import (
    Degradation,
    ItemPage,
    RankFusion,
    RetrievalMode,
    SearchHit,
    SearchQuery,
    SearchResult,
    WriteOutcome,
)
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire import Violations
from recalld.wire.answers import (
    decode_degradation,
    decode_hit,
    decode_outcome,
    decode_page,
    decode_query,
    decode_result,
    encode_degradation,
    encode_hit,
    encode_outcome,
    encode_page,
    encode_query,
    encode_summary,
)

ADA = Compare(Field("user_id"), Op.EQ, "ada")

_WEIGHTS = st.none() | st.floats(0, 1_000_000)
_FUSIONS = st.builds(RankFusion, st.none() | st.integers(1, 10_000), _WEIGHTS, _WEIGHTS)
_QUERIES = st.builds(
    SearchQuery,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    k=st.integers(1, 1000),
    mode=st.sampled_from(RetrievalMode),
    fusion=_FUSIONS,
    candidates=st.none() | st.integers(1, 10_000),
    min_commit_token=st.sampled_from(["", "token"]),
)


@given(query=_QUERIES)
def test_a_search_comes_back_as_it_was(query: SearchQuery) -> None:
    violations: Violations = {}
    request = encode_query(query, ADA, violations)
    assert decode_query(request, ADA, violations) == SearchQuery(
        query.text, query.k, ADA, query.mode, query.fusion, query.candidates, query.min_commit_token
    )
    assert request.HasField("where")
    assert violations == {}


def test_a_request_that_says_nothing_asks_for_the_defaults() -> None:
    assert decode_query(pb.QueryRequest(), None, {}) == SearchQuery("", 10)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        (SearchQuery("x", k="3"), "k"),  # type: ignore[arg-type]
        (SearchQuery("x", k=True), "k"),
        (SearchQuery("x", k=2**31), "k"),
        (SearchQuery(7), "query"),  # type: ignore[arg-type]
        (SearchQuery("\ud800"), "query"),
        (SearchQuery("x", mode=9), "mode"),  # type: ignore[arg-type]
        (SearchQuery("x", mode="lexical"), "mode"),  # type: ignore[arg-type]
        (SearchQuery("x", candidates=2.5), "candidates"),  # type: ignore[arg-type]
        (SearchQuery("x", fusion=RankFusion(k="2")), "fusion.k"),  # type: ignore[arg-type]
        (SearchQuery("x", fusion=RankFusion(lexical_weight="2")), "fusion.lexical_weight"),  # type: ignore[arg-type]
        (SearchQuery("x", fusion=RankFusion(semantic_weight=10**400)), "fusion.semantic_weight"),
        (SearchQuery("x", fusion=RankFusion(semantic_weight=float("nan"))), "fusion.semantic_weight"),
        (SearchQuery("x", min_commit_token=b"t"), "min_commit_token"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_travel_is_named(query: SearchQuery, path: str) -> None:
    violations: Violations = {}
    encode_query(query, None, violations)
    assert list(violations) == [path]


def test_a_mode_that_is_unknown_is_named() -> None:
    violations: Violations = {}
    decode_query(pb.QueryRequest(mode=9), None, violations)  # type: ignore[arg-type]
    assert list(violations) == ["mode"]


@pytest.mark.parametrize(
    "hit",
    [
        SearchHit(MemoryItem("a", "memory", 0.5, {"n": 1}, id="a"), 1, 2.5, 3, -0.25),
        SearchHit(MemoryItem("a", "memory", 0.5, id="a"), lexical_rank=1, lexical_score=0.0),
        SearchHit(MemoryItem("a", "memory", id="a")),
    ],
)
def test_a_hit_keeps_how_it_was_ranked(hit: SearchHit) -> None:
    assert decode_hit(encode_hit(hit, "hits[0]", {}, explain=True), "hits[0]", {}) == hit
    unexplained = encode_hit(hit, "hits[0]", {}, explain=False)
    assert not unexplained.HasField("explanation")
    assert decode_hit(unexplained, "hits[0]", {}) == SearchHit(hit.item)


def test_an_item_that_does_not_read_is_named_by_its_place() -> None:
    message = encode_hit(SearchHit(MemoryItem("a", "memory")), "hits[3]", {}, explain=False)
    message.item.metadata["empty"].SetInParent()
    violations: Violations = {}
    assert decode_hit(message, "hits[3]", violations) is None
    assert list(violations) == ["hits[3].item.metadata.empty"]


@pytest.mark.parametrize("fusion", [None, RankFusion(2, 1.0, 0.0), RankFusion(60, 0.5, 0.5)])
def test_an_answer_keeps_degradations_token_and_fusion(fusion: RankFusion | None) -> None:
    hits = [SearchHit(MemoryItem("a", "memory", id="a"))]
    degraded = [Degradation("memory/semantic", "OVERLOADED", "busy"), Degradation("notes", "UNSPECIFIED", "")]
    result = SearchResult(hits, degraded, "seen", fusion)
    summary = encode_summary(result, elapsed_ns=3_000_000_500)
    assert decode_result(hits, summary) == result
    assert (summary.hit_count, summary.elapsed.seconds, summary.elapsed.nanos) == (1, 3, 500)


def test_a_degradation_may_name_a_path_that_is_no_text() -> None:
    assert decode_degradation(encode_degradation(Degradation("notes", "INTERNAL", "a\udcff.md"))) == Degradation(
        "notes", "INTERNAL", "a\\udcff.md"
    )


def test_a_split_comes_back_with_its_errors() -> None:
    wrong = InvalidField(violations={"items[1].content": "is empty"})
    outcome = WriteOutcome(
        ["memory"], ["files"], {"notes": wrong, "far": SourceUnavailable("away")}, ["a", "b"], "token", replayed=True
    )
    decoded = decode_outcome(encode_outcome(outcome))
    assert (decoded.accepted, decoded.refused, decoded.ids) == (["memory"], ["files"], ["a", "b"])
    assert (decoded.commit_token, decoded.replayed) == ("token", True)
    assert isinstance(decoded.failed["notes"], InvalidField)
    assert decoded.failed["notes"].violations == wrong.violations
    assert isinstance(decoded.failed["far"], SourceUnavailable)
    with pytest.raises(CompositeWriteError):
        decoded.raise_for_failures()


def test_a_page_comes_back() -> None:
    page = ItemPage([MemoryItem("a", "memory", id="a"), MemoryItem("b", "memory", id="b")], "next")
    assert decode_page(encode_page(page, {}), {}) == page


def test_an_item_of_a_page_that_does_not_read_is_named() -> None:
    message = encode_page(ItemPage([MemoryItem("a", "m"), MemoryItem("b", "m")]), {})
    message.items[1].metadata["empty"].SetInParent()
    violations: Violations = {}
    decode_page(message, violations)
    assert list(violations) == ["items[1].metadata.empty"]
