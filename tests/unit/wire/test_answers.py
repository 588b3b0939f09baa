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
from recalld.wire import Violations, encode_filter, encode_item
from recalld.wire.answers import (
    decode_degradation,
    decode_fusion,
    decode_hit,
    decode_outcome,
    decode_page,
    decode_result,
    encode_degradation,
    encode_hit,
    encode_outcome,
    encode_query,
    encode_summary,
)

ADA = Compare(Field("user_id"), Op.EQ, "ada")

_WEIGHTS = st.none() | st.floats(0, 1_000_000)


@given(fusion=st.builds(RankFusion, st.none() | st.integers(1, 10_000), _WEIGHTS, _WEIGHTS))
def test_a_fusion_comes_back_as_it_was(fusion: RankFusion) -> None:
    request = encode_query(SearchQuery("words", fusion=fusion), None)
    assert decode_fusion(request.fusion) == fusion


def test_a_search_says_what_it_asks_and_leaves_the_rest_to_the_server() -> None:
    asked = SearchQuery("words", 7, mode=RetrievalMode.LEXICAL, candidates=90, min_commit_token="t")  # noqa: S106
    assert encode_query(asked, ADA) == pb.QueryRequest(
        query="words",
        k=7,
        mode=pb.RETRIEVAL_MODE_LEXICAL,
        candidates=90,
        min_commit_token="t",  # noqa: S106 - a commit token
        where=encode_filter(ADA),
    )
    plain = encode_query(SearchQuery("words"), None)
    assert plain == pb.QueryRequest(query="words", k=10, mode=pb.RETRIEVAL_MODE_HYBRID)


def _encode(hit: SearchHit, *, explain: bool) -> pb.QueryHit:
    return encode_hit(hit, encode_item(hit.item, "item", {}), explain=explain)


@pytest.mark.parametrize(
    "hit",
    [
        SearchHit(MemoryItem("a", "memory", 0.5, {"n": 1}, id="a"), 1, 2.5, 3, -0.25),
        SearchHit(MemoryItem("a", "memory", 0.5, id="a"), lexical_rank=1, lexical_score=0.0),
        SearchHit(MemoryItem("a", "memory", id="a")),
    ],
)
def test_a_hit_keeps_how_it_was_ranked(hit: SearchHit) -> None:
    assert decode_hit(_encode(hit, explain=True), "hits[0]", {}) == hit
    unexplained = _encode(hit, explain=False)
    assert not unexplained.HasField("explanation")
    assert decode_hit(unexplained, "hits[0]", {}) == SearchHit(hit.item)


def test_an_item_that_does_not_read_is_named_by_its_place() -> None:
    message = _encode(SearchHit(MemoryItem("a", "memory")), explain=False)
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
    message = pb.ListResponse(items=[encode_item(item, "item", {}) for item in page.items], next_page_token="next")  # noqa: S106
    assert decode_page(message, {}) == page
    message.items[1].metadata["empty"].SetInParent()
    violations: Violations = {}
    decode_page(message, violations)
    assert list(violations) == ["items[1].metadata.empty"]
