"""Filters to the wire and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.errors import InvalidFilter
from recalld.filters import ATTRIBUTES, All, AnyOf, Compare, Contains, Exists, Field, Filter, In, Not, Op
from recalld.v1 import filter_pb2, memory_service_pb2
from recalld.wire import MAX_CONDITIONS, MAX_FILTER_LEVELS, MAX_VALUE_LEVELS, decode_filter, encode_filter

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(
    [".", "\\", "a.b\\"]
)
_FIELDS = st.sampled_from([Field(name) for name in (*ATTRIBUTES, "id", "content")]) | st.lists(
    _KEYS, min_size=1, max_size=3
).map(lambda keys: Field("metadata", tuple(keys)))
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
    | st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0))  # repr shows it, == does not
)
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=3) | st.dictionaries(_TEXT, _SCALARS, max_size=1)  # maps have no order
_LEAVES = (
    st.builds(Compare, _FIELDS, st.sampled_from(Op), _VALUES)
    | st.builds(In, _FIELDS, st.lists(_VALUES, min_size=1, max_size=4).map(tuple))
    | st.builds(Exists, _FIELDS)
    | st.builds(Contains, _FIELDS, _VALUES)
)


def _branches(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.builds(All, several) | st.builds(AnyOf, several) | st.builds(Not, inner)


_FILTERS: st.SearchStrategy[Filter] = st.recursive(_LEAVES, _branches, max_leaves=12)

_PAGE = Field("metadata", ("page",))


def _decoded(message: filter_pb2.Filter) -> tuple[Filter | None, dict[str, str]]:
    violations: dict[str, str] = {}
    return decode_filter(message, "where", violations), violations


def _nots(levels: int) -> Filter:
    nested: Filter = Exists(_PAGE)
    for _ in range(levels - 1):
        nested = Not(nested)
    return nested


@given(_FILTERS)
def test_a_filter_comes_back_as_it_was(filter: Filter) -> None:
    sent = encode_filter(filter).SerializeToString()
    received, violations = _decoded(filter_pb2.Filter.FromString(sent))
    assert violations == {}
    # repr tells 1 from 1.0 and True, which == does not.
    assert repr(received) == repr(filter)


def test_an_unset_filter_matches_everything_and_is_no_violation() -> None:
    assert _decoded(filter_pb2.Filter()) == (None, {})


def test_an_unset_operator_means_equal() -> None:
    message = filter_pb2.Filter()
    message.compare.field = "user_id"
    message.compare.value.string_value = "ada"
    assert _decoded(message) == (Compare(Field("user_id"), Op.EQ, "ada"), {})


def test_every_violation_of_a_filter_is_named_by_its_path() -> None:
    message = filter_pb2.Filter()
    members = message.all.filters
    members.add().exists = "metadata.fine"
    compare = members.add().compare
    compare.field = "no_such_attribute"
    compare.operator = 99  # type: ignore[assignment]
    members.add()
    members.add().any.SetInParent()
    inside: filter_pb2.Membership = getattr(members.add(), "in")
    inside.field = "metadata"
    members.add().contains.field = "content"
    getattr(members.add(), "not").exists = "metadata..x"
    received, violations = _decoded(message)
    assert received is None
    assert set(violations) == {
        "where.all.filters[1].compare.field",
        "where.all.filters[1].compare.operator",
        "where.all.filters[1].compare.value",
        "where.all.filters[2]",
        "where.all.filters[3].any.filters",
        "where.all.filters[4].in.field",
        "where.all.filters[4].in.values",
        "where.all.filters[5].contains.value",
        "where.all.filters[6].not.exists",
    }


def test_conditions_nest_as_deep_as_allowed_and_no_deeper() -> None:
    deepest = _nots(MAX_FILTER_LEVELS)
    message = encode_filter(deepest)
    assert _decoded(message) == (deepest, {})
    outer = filter_pb2.Filter()
    getattr(outer, "not").CopyFrom(message)
    _, violations = _decoded(outer)
    assert list(violations) == ["where" + ".not" * MAX_FILTER_LEVELS]
    with pytest.raises(InvalidFilter, match="levels deep"):
        encode_filter(_nots(MAX_FILTER_LEVELS + 1))
    with pytest.raises(InvalidFilter, match="levels deep"):
        encode_filter(_nots(900))


def test_the_deepest_filter_on_the_deepest_value_still_parses_in_a_request() -> None:
    value: Any = 1
    for _ in range(MAX_VALUE_LEVELS):
        value = {"k": value}
    deepest: Filter = Compare(_PAGE, Op.EQ, value)
    for _ in range(MAX_FILTER_LEVELS - 1):
        deepest = All((deepest,))
    request = memory_service_pb2.QueryRequest(where=encode_filter(deepest))
    parsed = memory_service_pb2.QueryRequest.FromString(request.SerializeToString())
    assert _decoded(parsed.where) == (deepest, {})


def test_a_filter_holds_as_many_conditions_as_allowed_and_no_more() -> None:
    most = AnyOf((Exists(_PAGE),) * (MAX_CONDITIONS - 1))
    message = encode_filter(most)
    assert _decoded(message) == (most, {})
    message.any.filters.add().exists = "id"
    assert list(_decoded(message)[1]) == [f"where.any.filters[{MAX_CONDITIONS - 1}]"]
    with pytest.raises(InvalidFilter, match="conditions"):
        encode_filter(AnyOf((Exists(_PAGE),) * MAX_CONDITIONS))


@pytest.mark.parametrize("count", [0, 1001])
def test_a_membership_test_against_too_few_or_too_many_values_is_refused(count: int) -> None:
    with pytest.raises(InvalidFilter, match=r"where\.in\.values"):
        encode_filter(In(_PAGE, tuple(range(count))))


@pytest.mark.parametrize("value", [float("nan"), 2**63, "\ud800", {1}, datetime(2024, 1, 1)])  # noqa: DTZ001
def test_a_value_that_cannot_travel_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(InvalidFilter) as caught:
        encode_filter(All((Exists(_PAGE), Compare(_PAGE, Op.LT, value))))
    assert list(caught.value.violations) == ["where.all.filters[1].compare.value"]


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidFilter, match="levels deep"):
        encode_filter(Compare(_PAGE, Op.EQ, loop))


def test_a_value_that_is_huge_only_when_written_out_is_refused_before_it_fills_memory() -> None:
    value: Any = ("x",) * 30
    for _ in range(MAX_VALUE_LEVELS - 1):
        value = (value,) * 30
    with pytest.raises(InvalidFilter, match="more than 65536 values"):
        encode_filter(Compare(_PAGE, Op.EQ, value))
