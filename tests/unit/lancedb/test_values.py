"""Metadata survives the store with its types, and its canonical form follows `recalld.filters.same`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recalld.filters import same
from recalld.item import MemoryItem
from recalld_server.adapters.lancedb import values

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["$time", "$map", ""])
numbers = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**53 + 1, 2.0**53, -0.0, 0, 1, 1.0])
)
times = st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)) | st.just(
    datetime(1, 1, 1, tzinfo=UTC)
)
scalars = st.none() | st.booleans() | numbers | texts | times
metadata_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def shape(value: Any) -> Any:
    """The value with each type spelled out, so that 1, 1.0, True and the two zeros differ."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(member) for member in value]
    return type(value), repr(value)


@given(st.dictionaries(texts, metadata_values, max_size=4))
def test_metadata_comes_back_with_its_types(metadata: dict[str, Any]) -> None:
    assert shape(values.load(values.dump(metadata))) == shape(metadata)


@given(st.dictionaries(texts, metadata_values, max_size=4))
def test_frozen_metadata_is_stored_alike(metadata: dict[str, Any]) -> None:
    assert values.dump(MemoryItem("", "", metadata=metadata).metadata) == values.dump(metadata)


@given(metadata_values, metadata_values)
def test_values_share_a_token_exactly_when_they_are_the_same(left: Any, right: Any) -> None:
    for one, other in ((left, right), (left, left)):
        alike = values.member_token(("p",), one) == values.member_token(("p",), other)
        assert alike == same(one, other)


@given(st.lists(metadata_values | texts | numbers, max_size=5))
def test_the_tokens_of_many_values_are_those_of_each(many: list[Any]) -> None:
    path = ("p", "")
    each = [token for value in many if (token := values.value_token(path, value)) is not None]
    assert values.value_tokens(path, many) == each


def test_numbers_that_equal_across_types_share_a_token() -> None:
    token = values.value_token
    assert token(("p",), 1) == token(("p",), 1.0)
    assert token(("p",), 0.0) == token(("p",), -0.0) == token(("p",), 0)
    assert token(("p",), 2**53 + 1) != token(("p",), float(2**53 + 1))
    assert token(("p",), 1) != token(("p",), True)
    assert token(("p",), None) is None
    assert token(("p",), float("nan")) is None


def test_paths_do_not_run_together() -> None:
    digests = {values.path_digest(path) for path in [("a", "b"), ("a.b",), ("ab",), ("a", "", "b"), ("a", "b", "")]}
    assert len(digests) == 5
