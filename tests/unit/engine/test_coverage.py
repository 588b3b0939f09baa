"""Coverage tells a match that is what was asked for from one by chance."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.engine.coverage import LexicalQuery, coverage


def idf(rows: int, matching: int) -> float:
    return math.log(1 + (rows - matching + 0.5) / (matching + 0.5))


def covered(text: str, *, rows: int, score: float, found: int, anchored: int = 0) -> float:
    return coverage(LexicalQuery.of(text), rows=rows, top_score=score, found=found, anchored=anchored)


def test_a_single_word_found_in_one_row_is_covered_whole():
    assert covered("kiln", rows=1000, score=idf(1000, 1), found=1) == pytest.approx(1)


def test_one_of_three_words_found_by_chance_covers_a_third_at_most():
    assert covered("commute office winter", rows=40, score=idf(40, 2), found=2) < 0.34


def test_a_common_word_covers_little():
    assert covered("memory", rows=1000, score=idf(1000, 500), found=500) < 0.15


def test_an_identifier_that_is_found_covers_the_question_around_it_however_long_its_row():
    question = "what does ERR-4271-XK mean and who is responsible for it"
    query = LexicalQuery.of(question)
    assert query.anchors == "err4271xk"
    assert covered(question, rows=1000, score=1.0, found=40, anchored=1) == pytest.approx(1)
    assert covered(question, rows=1000, score=1.0, found=40, anchored=0) < 0.2


@pytest.mark.parametrize("text", ["when is it", "the harbour in May", "room 12", "C++ or C#"])
def test_ordinary_words_are_no_identifiers(text):
    assert LexicalQuery.of(text).anchors == ""


def test_a_filter_that_leaves_one_row_does_not_make_a_common_word_rare():
    assert covered("memory", rows=10_000, score=idf(10_000, 5_000), found=1) < 0.5


def test_nothing_found_covers_nothing():
    assert covered("kiln", rows=10, score=0.0, found=0) == 0


@given(st.text(max_size=60), st.integers(0, 10**7), st.floats(0, 1e6), st.integers(0, 132), st.integers(0, 132))
def test_coverage_is_a_share(text, rows, score, found, anchored):
    assert 0 <= covered(text, rows=rows, score=score, found=found, anchored=anchored) <= 1
