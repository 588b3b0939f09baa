"""Fusion: every score is the sum that its fusion states, in one order for one input."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.engine.fusion import fuse
from recalld.engine.ports import Lexical, Scored
from recalld.engine.weighing import weigh
from recalld.store import RankFusion

KEYS = st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=16)
WEIGHTS = st.none() | st.floats(0, 5)
SPECS = st.builds(RankFusion, st.none() | st.integers(1, 100), WEIGHTS, WEIGHTS)


def leg(keys: list[str], top: float = 1.0) -> list[Scored]:
    return [Scored(key, top / (rank + 1)) for rank, key in enumerate(keys)]


@given(KEYS, KEYS, SPECS)
def test_each_score_is_the_sum_that_the_fusion_states(words, meanings, spec):
    candidates, fusion = fuse(Lexical(leg(words, 9.0)), leg(meanings), spec)
    assert fusion is not None
    assert {each.id for each in candidates} == {*words, *meanings}
    for each in candidates:
        expected = 0.0
        if each.lexical_rank:
            assert words[each.lexical_rank - 1] == each.id
            expected += fusion.lexical_weight / (fusion.k + each.lexical_rank)
        if each.semantic_rank:
            assert meanings[each.semantic_rank - 1] == each.id
            expected += fusion.semantic_weight / (fusion.k + each.semantic_rank)
        assert each.score == expected
    assert candidates == sorted(candidates, key=lambda each: (-each.score, each.id))
    for said, used in [(spec.k, fusion.k), (spec.lexical_weight, fusion.lexical_weight)]:
        assert said is None or said == used


@given(st.lists(st.floats(0, 100), max_size=40), st.lists(st.floats(-1, 1), max_size=40), st.floats(0, 1))
def test_weights_are_shares_and_a_leg_that_found_nothing_has_no_say(words, meanings, coverage):
    lexical = [Scored(str(at), score) for at, score in enumerate(sorted(words, reverse=True))]
    semantic = [Scored(str(at), score) for at, score in enumerate(sorted(meanings, reverse=True))]
    lexical_weight, semantic_weight = weigh(Lexical(lexical, coverage), semantic)
    assert lexical_weight + semantic_weight == pytest.approx(1)
    if lexical and semantic:
        assert 0.1 <= lexical_weight <= 0.8 + 1e-9
    elif lexical or semantic:
        assert (lexical_weight, semantic_weight) == (float(bool(lexical)), float(bool(semantic)))


def test_the_leg_that_tells_its_candidates_apart_weighs_more():
    flat, spread = [0.50, 0.49, 0.49, 0.48], [0.9, 0.3, 0.2, 0.1]
    generator = random.Random(3)
    keys = [str(generator.random()) for _ in flat]

    def scored(scores: list[float], unit: float) -> list[Scored]:
        return [Scored(key, score * unit) for key, score in zip(keys, scores, strict=True)]

    sure_of_words, _ = weigh(Lexical(scored(spread, 20)), scored(flat, 1))
    sure_of_meaning, _ = weigh(Lexical(scored(flat, 20)), scored(spread, 1))
    assert sure_of_words == 0.8
    assert sure_of_meaning == pytest.approx(0.1)


def test_a_single_match_is_trusted_as_far_as_it_covers_the_query():
    semantic = leg([str(at) for at in range(50)])
    whole, _ = weigh(Lexical(leg(["a"], 12.0), coverage=1.0), semantic)
    by_chance, _ = weigh(Lexical(leg(["a"], 12.0), coverage=0.3), semantic)
    assert whole == pytest.approx(0.8)
    assert by_chance < 0.12


def test_a_leg_that_did_not_run_leaves_the_other_s_own_scores():
    candidates, fusion = fuse(Lexical(leg(["a", "b"], 9.0)), None, RankFusion())
    assert fusion is None
    assert [(each.id, each.score, each.lexical_rank) for each in candidates] == [("a", 9.0, 1), ("b", 4.5, 2)]
    candidates, fusion = fuse(None, leg(["b"]), RankFusion())
    assert fusion is None
    assert [(each.id, each.score, each.semantic_rank) for each in candidates] == [("b", 1.0, 1)]
