"""Batches hold every text once, keep to the bound with their padding, and keep lengths together."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recalld_server.adapters.onnx.batches import around_first, by_length

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=80)
BOUND = st.integers(1, 600)


def padded(lengths: list[int], batch: list[int]) -> int:
    return len(batch) * max(lengths[index] for index in batch)


@given(LENGTHS, BOUND)
def test_by_length_takes_each_text_once_within_the_bound(lengths: list[int], bound: int) -> None:
    batches = list(by_length(lengths, bound))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or padded(lengths, batch) <= bound for batch in batches)
    assert [lengths[i] for batch in batches for i in batch] == sorted(lengths)


@given(LENGTHS, BOUND)
def test_by_length_closes_a_batch_only_when_the_next_text_does_not_fit(lengths: list[int], bound: int) -> None:
    batches = list(by_length(lengths, bound))
    for batch, following in pairwise(batches):
        assert padded(lengths, [*batch, following[0]]) > bound


@given(LENGTHS, BOUND)
def test_around_first_serves_the_first_within_the_bound(lengths: list[int], bound: int) -> None:
    batch = around_first(lengths, bound)
    assert batch[0] == 0
    assert len(set(batch)) == len(batch)
    assert len(batch) == 1 or padded(lengths, batch) <= bound


@given(LENGTHS, BOUND)
def test_around_first_leaves_out_nothing_that_would_fit(lengths: list[int], bound: int) -> None:
    batch = around_first(lengths, bound)
    left = set(range(len(lengths))) - set(batch)
    assert all(padded(lengths, [*batch, index]) > bound for index in left)


def test_around_first_prefers_its_own_length() -> None:
    assert around_first([10, 40, 11, 9, 39], 30) == [0, 2]
    assert around_first([10, 40, 11, 9, 39], 119) == [0, 2, 3]
    assert around_first([10, 40, 11, 9, 39], 160) == [0, 2, 3, 4]
