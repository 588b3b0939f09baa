from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import MemoryAttributes, MemoryItem, RecalldError, rrf_rerank, score_sort_rerank
from recalld.fusion import merge_duplicates, rank_across_sources, reciprocal_rank_fusion


def item(
    content: str, source: str = "a", score: float | None = None, id: str | None = None, **metadata: Any
) -> MemoryItem:
    return MemoryItem(content, source, score, metadata, id=id)


def found_by_a_server(content: str, source: str, origin: str, id: str | None) -> MemoryItem:
    return MemoryItem(content, source, id=id, attributes=MemoryAttributes(origin=origin))


class TestMerging:
    def test_identical_content_is_one_fact_also_without_ids(self):
        merged = merge_duplicates([item("x", "vector", 0.4, "7", tag=1), item("y"), item("x", "journal", 0.9)])
        assert [one.content for one in merged] == ["x", "y"]
        assert merged[0] == item(
            "x", "vector", 0.9, "7", tag=1, dedupe_sources=["vector", "journal"], dedupe_count=2
        )  # fmt: skip

    def test_a_shared_id_is_one_fact_whatever_the_text(self):
        merged = merge_duplicates([item("new text", "a", id="1"), item("old text", "b", id="1")], "id")
        assert [one.content for one in merged] == ["new text"]
        assert merged[0].metadata["dedupe_count"] == 2

    def test_by_content_a_shared_id_with_other_text_is_two_facts(self):
        pool = [item("new text", "a", id="1"), item("old text", "b", id="1"), item("old text", "c", id="9")]
        merged = merge_duplicates(pool, "content")
        assert [one.content for one in merged] == ["new text", "old text"]
        assert merged[0] is pool[0]
        assert merged[1].metadata["dedupe_sources"] == ["b", "c"]

    def test_a_union_reaches_over_a_chain_that_closes_late(self):
        pool = [item("x", id="1"), item("y", id="2"), item("z", "b"), item("z", id="1"), item("y", "c", id="1")]
        merged = merge_duplicates(pool)
        assert [one.content for one in merged] == ["x"]
        assert merged[0].metadata["dedupe_count"] == 5
        assert merged[0].metadata["dedupe_sources"] == ["a", "b", "c"]

    def test_by_origin_an_id_is_one_fact_only_within_one_origin(self):
        pool = [item("new text", "a", id="1"), item("other text", "b", id="1"), item("old text", "a", id="1")]
        merged = merge_duplicates(pool, "origin")
        assert [one.content for one in merged] == ["new text", "other text"]
        assert merged[0].metadata["dedupe_count"] == 2
        assert merged[1] is pool[1]

    def test_by_origin_the_sources_behind_a_source_are_apart(self):
        pool = [found_by_a_server(text, "team", origin, "1") for text, origin in (("x", "memory"), ("y", "notes"))]
        assert merge_duplicates(pool, "origin") == pool

    def test_by_origin_two_memories_of_one_source_stay_two_also_beside_a_copy_elsewhere(self):
        pool = [item("x", "a", id="1"), item("x", "b", id="9"), item("x", "a", id="2"), item("x", "a")]
        merged = merge_duplicates(pool, "origin")
        assert [(one.source, one.id) for one in merged] == [("a", "1"), ("a", "2"), ("a", None)]
        assert merged[0].metadata["dedupe_sources"] == ["a", "b"]

    def test_ids_that_are_none_or_empty_join_nothing(self):
        pool = [item("x"), item("y"), item("z", id="")]
        assert merge_duplicates(pool) == pool

    def test_the_survivor_stands_where_the_first_copy_stood_with_the_highest_score(self):
        merged = merge_duplicates(
            [item("a"), item("x", score=0.1), item("b"), item("x", "b", 0.7), item("x", "c", 0.3)]
        )
        assert [(one.content, one.score) for one in merged] == [("a", None), ("x", 0.7), ("b", None)]

    @pytest.mark.parametrize(("scores", "best"), [((None, None), None), ((None, 0.0), 0.0), ((-2.0, None), -2.0)])
    def test_a_copy_without_a_score_does_not_lower_it(self, scores: tuple[Any, Any], best: Any):
        (merged,) = merge_duplicates([item("x", score=score) for score in scores])
        assert merged.score == best

    def test_sources_are_distinct_while_every_copy_counts(self):
        (merged,) = merge_duplicates([item("x", "b"), item("x", "a"), item("x", "b")])
        assert merged.metadata == {"dedupe_sources": ["b", "a"], "dedupe_count": 3}

    def test_items_that_met_no_copy_are_the_very_same_objects(self):
        pool = [item("x"), item("y", id="1"), item("z"), item("x")]
        merged = merge_duplicates(pool)
        assert merged[1] is pool[1]
        assert merged[2] is pool[2]

    def test_stamps_of_an_inner_composite_count_for_what_they_stand_for(self):
        inner = merge_duplicates([item("x", "a"), item("x", "b")])
        (merged,) = merge_duplicates([*inner, item("x", "c")])
        assert merged.metadata == {"dedupe_sources": ["a", "b", "c"], "dedupe_count": 3}

    @pytest.mark.parametrize("strange", [{"dedupe_sources": "a", "dedupe_count": "many"}, {"dedupe_count": -5}])
    def test_stamps_that_a_caller_made_up_break_nothing(self, strange: dict[str, Any]):
        (merged,) = merge_duplicates([item("x", "a", **strange), item("x", "b")])
        assert merged.metadata == {"dedupe_sources": ["a", "b"], "dedupe_count": 2}

    def test_none_keeps_every_copy(self):
        pool = [item("x"), item("x")]
        assert merge_duplicates(pool, None) == pool

    @pytest.mark.parametrize("word", ["ID", "", "both", 1])
    def test_another_word_is_refused(self, word: Any):
        with pytest.raises(ValueError, match="dedupe") as raised:
            merge_duplicates([], word)
        assert isinstance(raised.value, RecalldError)

    @given(
        st.lists(
            st.builds(
                item,
                st.sampled_from("uvwxyz"),
                st.sampled_from("abc"),
                st.none() | st.floats(-1, 1),
                st.none() | st.sampled_from("123456"),
            ),
            max_size=12,
        ),
        st.sampled_from(["id", "content", "origin"]),
    )
    def test_agrees_with_the_plain_reading(self, pool: list[MemoryItem], mode: Any):
        """Facts are the connected groups of the relation "same content, or same id"; found here by brute force."""

        def which(place: int) -> int:
            """How many memories of the same source with the same content come before."""
            one = pool[place]
            same = [p for p in range(place) if (pool[p].source, pool[p].content) == (one.source, one.content)]
            known = [pool[p].id for p in same]
            if one.id in known and one.id is not None:
                same = same[: known.index(one.id)]
            return len({pool[p].id or p for p in same})

        def are_one(one: int, other: int) -> bool:
            a, b = pool[one], pool[other]
            same_id = a.id is not None and a.id == b.id
            if mode == "origin":
                return same_id if a.source == b.source else a.content == b.content and which(one) == which(other)
            return a.content == b.content or (mode == "id" and same_id)

        rest, facts = list(range(len(pool))), list[list[int]]()
        while rest:
            fact = [rest.pop(0)]
            for place in fact:
                near = [other for other in rest if are_one(place, other)]
                fact.extend(near)
                rest = [other for other in rest if other not in near]
            facts.append(sorted(fact))
        merged = merge_duplicates(pool, mode)
        assert len(merged) == len(facts)
        for survivor, fact in zip(merged, facts, strict=True):
            copies = [pool[place] for place in fact]
            if len(copies) == 1:
                assert survivor is copies[0]
            else:
                assert (survivor.content, survivor.source, survivor.id) == (
                    copies[0].content,
                    copies[0].source,
                    copies[0].id,
                )
                assert survivor.score == max((c.score for c in copies if c.score is not None), default=None)
                assert survivor.metadata["dedupe_count"] == len(copies)
                assert survivor.metadata["dedupe_sources"] == list(dict.fromkeys(copy.source for copy in copies))

    @given(
        st.lists(st.builds(item, st.sampled_from("xy"), st.sampled_from("abc"), id=st.sampled_from("123")), max_size=9)
    )
    def test_by_origin_no_memory_of_a_source_is_lost(self, pool: list[MemoryItem]):
        """Where an id has one text within its source, as sources keep it, no two ids of a source become one fact."""
        texts: dict[tuple[str, str | None], str] = {}
        kept = [one for one in pool if texts.setdefault((one.source, one.id), one.content) == one.content]
        merged = merge_duplicates(kept, "origin")
        for source in "abc":
            ids = {one.id for one in kept if one.source == source}
            facts = [one for one in merged if source in one.metadata.get("dedupe_sources", [one.source])]
            assert len(facts) == len(ids)


class TestScoreSort:
    async def test_best_first_and_stable(self):
        pool = [item("a", score=0.1), item("b", score=0.9), item("c", score=0.9), item("d", score=0.5)]
        assert [one.content for one in await score_sort_rerank("q", pool, k=10)] == ["b", "c", "d", "a"]

    async def test_items_without_a_score_sink_and_stay(self):
        pool = [item("a"), item("b", score=-5.0), item("c"), item("d", score=math.nan), item("e", score=1.0)]
        assert [one.content for one in await score_sort_rerank("q", pool, k=10)] == ["e", "b", "a", "c", "d"]

    @pytest.mark.parametrize(("k", "count"), [(2, 2), (0, 0), (-1, 0), (9, 3)])
    async def test_keeps_to_k_and_leaves_the_list_alone(self, k: int, count: int):
        pool = [item("a", score=0.1), item("b", score=0.2), item("c", score=0.3)]
        before = list(pool)
        assert len(await score_sort_rerank("q", pool, k=k)) == count
        assert pool == before


class TestRRFRerank:
    async def test_ranks_within_each_source_and_compares_no_scores(self):
        pool = [item("a1", "a", 900.0), item("a2", "a", 800.0), item("b1", "b", 0.2), item("b2", "b", 0.1)]
        ranked = await rrf_rerank()("q", pool, k=10)
        assert [one.content for one in ranked] == ["a1", "b1", "a2", "b2"]
        assert [one.score for one in ranked] == [1 / 61, 1 / 61, 1 / 62, 1 / 62]

    async def test_ranks_by_the_order_given(self):
        ranked = await rrf_rerank()("q", [item("first", score=0.1), item("second", score=0.9)], k=10)
        assert [one.content for one in ranked] == ["first", "second"]

    async def test_score_is_weight_over_k_plus_rank(self):
        pool = [item("a1", "a"), item("b1", "b"), item("b2", "b"), item("c1", "c")]
        ranked = await rrf_rerank(10, {"b": 3.0, "c": 0.0})("q", pool, k=10)
        assert [(one.content, one.score) for one in ranked] == [
            ("b1", 3 / 11), ("b2", 3 / 12), ("a1", 1 / 11), ("c1", 0.0),
        ]  # fmt: skip

    @pytest.mark.parametrize("k", [2, 0, -1])
    async def test_keeps_to_k(self, k: int):
        assert len(await rrf_rerank()("q", [item("a"), item("b"), item("c")], k=k)) == max(k, 0)

    @pytest.mark.parametrize(
        ("k", "weights"), [(-1, None), (60, {"a": -1.0}), (60, {"a": math.nan}), (60, {"a": math.inf})]
    )
    def test_numbers_out_of_range_are_refused(self, k: int, weights: Any):
        with pytest.raises(ValueError, match=r"constant|weight"):
            rrf_rerank(k, weights)


class TestRankAcrossSources:
    async def test_a_single_source_keeps_its_ranking_and_scores(self):
        pool = [item("a1", "a", 0.2), item("a2", "a", 0.9), item("a3", "a")]
        assert await rank_across_sources("q", pool, k=2) == pool[:2]

    async def test_several_are_ranked_by_rank_within_each(self):
        pool = [item("a1", "a", 900.0), item("a2", "a", 800.0), item("b1", "b", 0.2)]
        ranked = await rank_across_sources("q", pool, k=2)
        assert [(one.content, one.score) for one in ranked] == [("a1", 1 / 61), ("b1", 1 / 61)]

    async def test_nothing_is_nothing(self):
        assert await rank_across_sources("q", [], k=3) == await rank_across_sources("q", [item("a")], k=-1) == []


rankings = st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=6), min_size=1, max_size=4)


class TestReciprocalRankFusion:
    def test_adds_one_share_a_ranking(self):
        fused = reciprocal_rank_fusion([["x", "y"], ["y", "z"]], k=60, weights=[1.0, 2.0])
        assert fused == [("y", pytest.approx(1 / 62 + 2 / 61)), ("z", 2 / 62), ("x", 1 / 61)]

    def test_ties_are_broken_by_id(self):
        assert [key for key, _ in reciprocal_rank_fusion([["b"], ["a"], ["c"]])] == ["a", "b", "c"]

    def test_a_repeat_within_a_ranking_counts_once(self):
        assert reciprocal_rank_fusion([["x", "x", "y"]]) == [("x", 1 / 61), ("y", 1 / 62)]

    def test_nothing_fuses_to_nothing(self):
        assert reciprocal_rank_fusion([]) == reciprocal_rank_fusion([[], []]) == []

    @pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, math.nan]])
    def test_weights_that_do_not_fit_are_refused(self, weights: list[float]):
        with pytest.raises(ValueError, match="weight"):
            reciprocal_rank_fusion([["a"], ["b"]], weights=weights)

    @given(rankings, st.randoms(use_true_random=False))
    def test_the_order_of_the_rankings_does_not_matter(self, some: list[list[str]], shuffler: random.Random):
        weighted = [(ranking, float(place + 1)) for place, ranking in enumerate(some)]
        shuffled = list(weighted)
        shuffler.shuffle(shuffled)
        one, other = (
            reciprocal_rank_fusion([r for r, _ in pairs], weights=[w for _, w in pairs])
            for pairs in (weighted, shuffled)
        )
        assert one == other

    @given(rankings)
    def test_who_is_ahead_everywhere_is_ahead(self, some: list[list[str]]):
        order = [key for key, _ in reciprocal_rank_fusion(some)]
        assert set(order) == {key for ranking in some for key in ranking}
        for ahead in order:
            for behind in order:
                if all(ahead in r and behind in r and r.index(ahead) < r.index(behind) for r in some):
                    assert order.index(ahead) < order.index(behind)
