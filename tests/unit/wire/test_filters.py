"""Filters to the wire and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.errors import InvalidFilter
from recalld.filter_checks import NAMES
from recalld.filters import FIELDS, All, AnyOf, Compare, Contains, Exists, Field, Filter, In, Kind, Not, Op
from recalld.v1 import filter_pb2, memory_service_pb2
from recalld.wire import MAX_CONDITIONS, MAX_FILTER_LEVELS, MAX_VALUE_LEVELS, decode_filter, encode_filter

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from([".", "\\", "a.b\\"])
_METADATA = st.lists(_KEYS, min_size=1, max_size=3).map(lambda keys: Field("metadata", tuple(keys)))
_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
# repr shows fold, == does not.
_TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0))
_SCALARS = st.none() | st.booleans() | _NUMBERS | _TEXT | _TIMES
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=3) | st.dictionaries(_TEXT, _SCALARS, max_size=1)  # maps have no order
_FITTING = {
    Kind.STRING: _TEXT,
    Kind.INTEGER: _NUMBERS,
    Kind.DOUBLE: _NUMBERS,
    Kind.BOOLEAN: st.booleans(),
    Kind.TIME: _TIMES,
}


def _conditions_on(field: Field) -> st.SearchStrategy[Filter]:
    kind = FIELDS.get(field.name)
    names = NAMES.get(field.name)
    values = st.sampled_from(names) if names else _FITTING[kind] if kind else _VALUES
    ops = [Op.EQ, Op.NE] if kind is Kind.BOOLEAN else list(Op)
    some = [
        st.builds(Compare, st.just(field), st.sampled_from(ops), values),
        # Of one type and of several: they are not read in the same way.
        st.builds(In, st.just(field), st.lists(values, max_size=4).map(tuple)),
        st.just(Exists(field)),
    ]
    if kind in (None, Kind.STRING):
        some.append(st.builds(Contains, st.just(field), values))
    if kind is None:
        some.append(st.builds(In, st.just(field), st.lists(_NUMBERS, max_size=4).map(tuple)))
    return st.one_of(*some)


_LEAVES = (_METADATA | st.sampled_from([Field(name) for name in FIELDS])).flatmap(_conditions_on)


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
    getattr(members.add(), "not").exists = "metadata.x\\"
    received, violations = _decoded(message)
    assert received is None
    assert set(violations) == {
        "where.all.filters[1].compare.field",
        "where.all.filters[1].compare.operator",
        "where.all.filters[1].compare.value",
        "where.all.filters[2]",
        "where.all.filters[3].any.filters",
        "where.all.filters[4].in.field",
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


def test_a_membership_test_against_too_many_values_is_refused_by_both_sides() -> None:
    most = In(_PAGE, tuple(range(1000)))
    message = encode_filter(most)
    assert _decoded(message) == (most, {})
    getattr(message, "in").values.add().integer_value = 1000
    assert list(_decoded(message)[1]) == ["where.in.values"]
    with pytest.raises(InvalidFilter, match=r"where\.in\.values"):
        encode_filter(In(_PAGE, tuple(range(1001))))


def test_a_value_among_many_that_means_nothing_is_named_by_its_place() -> None:
    message = encode_filter(In(_PAGE, (1, 2, 3, 4)))
    values = getattr(message, "in").values
    values[1].Clear()
    values[3].double_value = float("inf")
    assert list(_decoded(message)[1]) == ["where.in.values[1]", "where.in.values[3]"]
    for value in values:
        value.double_value = float("nan")
    assert list(_decoded(message)[1]) == [f"where.in.values[{at}]" for at in range(4)]


def test_values_of_any_mixture_come_back_as_they_were() -> None:
    for values in (
        (0, 1, 0.0, -0.0, "", "a", False, True, None),
        ("a", "", 0),
        (0.5, 0.0, 0),
        (True, 0, False),
        (0, ""),
    ):
        received, violations = _decoded(encode_filter(In(_PAGE, values)))
        assert violations == {}
        assert repr(received) == repr(In(_PAGE, values))


def test_a_filter_of_violations_is_not_looked_at_to_its_end() -> None:
    message = filter_pb2.Filter()
    for _ in range(MAX_CONDITIONS - 1):
        inside: filter_pb2.Membership = getattr(message.all.filters.add(), "in")
        inside.field = "revision"
        for _ in range(90):
            inside.values.add().string_value = "x"
    assert len(_decoded(message)[1]) == 180


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
