from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import MemoryAttributes, MemoryItem, RecalldError
from recalld.errors import InvalidFilter
from recalld.filters import All, AnyOf, Compare, Contains, Exists, Field, In, Not, Op, matches
from recalld.where import MAX_IN_VALUES, check_operators, parse_where

PAGE = Field("metadata", ("page",))


@pytest.mark.parametrize("where", [None, {}])
def test_no_conditions_are_no_filter(where: Any):
    assert parse_where(where) is None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"page": 3}, Compare(PAGE, Op.EQ, 3)),
        ({"page": None}, Compare(PAGE, Op.EQ, None)),
        ({"page": [1, 2]}, Compare(PAGE, Op.EQ, [1, 2])),
        ({"page": {"a": 1}}, Compare(PAGE, Op.EQ, {"a": 1})),
        ({"page": {}}, Compare(PAGE, Op.EQ, {})),
        ({"page": {"$eq": 3}}, Compare(PAGE, Op.EQ, 3)),
        ({"page": {"$ne": 3}}, Compare(PAGE, Op.NE, 3)),
        ({"page": {"$gt": 3}}, Compare(PAGE, Op.GT, 3)),
        ({"page": {"$gte": 3}}, Compare(PAGE, Op.GE, 3)),
        ({"page": {"$lt": 3}}, Compare(PAGE, Op.LT, 3)),
        ({"page": {"$lte": 3}}, Compare(PAGE, Op.LE, 3)),
        ({"page": {"$in": [1, "a"]}}, In(PAGE, (1, "a"))),
        ({"page": {"$nin": (1,)}}, Not(In(PAGE, (1,)))),
        ({"page": {"$exists": True}}, Exists(PAGE)),
        ({"page": {"$exists": False}}, Not(Exists(PAGE))),
        ({"page": {"$contains": "x"}}, Contains(PAGE, "x")),
        ({"page": {"$not": {"$gt": 3}}}, Not(Compare(PAGE, Op.GT, 3))),
        ({"page": {"$gte": 3, "$lt": 9}}, All((Compare(PAGE, Op.GE, 3), Compare(PAGE, Op.LT, 9)))),
        ({"$not": {"page": 3}}, Not(Compare(PAGE, Op.EQ, 3))),
        ({"$or": [{"page": 3}, {"page": 4}]}, AnyOf((Compare(PAGE, Op.EQ, 3), Compare(PAGE, Op.EQ, 4)))),
        ({"$and": [{"page": 3}]}, All((Compare(PAGE, Op.EQ, 3),))),
        ({"page": 3, "tag": "x"}, All((Compare(PAGE, Op.EQ, 3), Compare(Field("metadata", ("tag",)), Op.EQ, "x")))),
        ({"a.b": 1}, Compare(Field("metadata", ("a", "b")), Op.EQ, 1)),
        ({r"a\.b": 1}, Compare(Field("metadata", ("a.b",)), Op.EQ, 1)),
        ({r"\$gt": 1}, Compare(Field("metadata", ("$gt",)), Op.EQ, 1)),
        ({"attributes.user_id": "ada"}, Compare(Field("user_id"), Op.EQ, "ada")),
        ({"attributes": 1}, Compare(Field("metadata", ("attributes",)), Op.EQ, 1)),
        ({r"attributes\.user_id": 1}, Compare(Field("metadata", ("attributes.user_id",)), Op.EQ, 1)),
    ],
)  # fmt: skip
def test_reads(where: dict[str, Any], expected: Any):
    assert parse_where(where) == expected


def looped() -> dict[str, Any]:
    where: dict[str, Any] = {}
    where["$not"] = where
    return where


REFUSED: list[dict[Any, Any]] = [
    {"$near": 3},
    {"page": {"$near": 3}},
    {"page": {"$gt": 3, "$near": 3}},
    {"page": {"$gt": 3, "plain": 3}},
    {"$or": []},
    {"$or": {"page": 3}},
    {"$or": [{}]},
    {"$or": [3]},
    {"$and": [{"$near": 3}]},
    {"$not": {}},
    {"$not": [{"page": 3}]},
    {"page": {"$not": 3}},
    {"page": {"$not": {"$near": 1}}},
    {"page": {"$in": []}},
    {"page": {"$in": "text"}},
    {"page": {"$in": list(range(MAX_IN_VALUES + 1))}},
    {"page": {"$exists": 1}},
    {"attributes.no_such": 1},
    {"attributes.user_id.x": 1},
    {"": 1},
    {"a..b": 1},
    {3: 1},
    {"page": float("nan")},
    {"page": {"$lt": float("inf")}},
    {"page": 2**63},
    {"page": -(2**63) - 1},
    {"page": b"bytes"},
    {"page": {1, 2}},
    {"page": [1, {"a": object()}]},
    {"page": {1: "a"}},
    {"page": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point of the test
]


@pytest.mark.parametrize("where", REFUSED, ids=lambda where: repr(where)[:60])
def test_refuses(where: dict[Any, Any]):
    with pytest.raises(ValueError, match=r"where|filter field") as raised:
        parse_where(where)
    assert isinstance(raised.value, RecalldError)
    assert isinstance(raised.value, InvalidFilter)


def test_refuses_what_contains_itself():
    with pytest.raises(InvalidFilter, match="contains itself"):
        parse_where(looped())
    with pytest.raises(InvalidFilter, match="contains itself"):
        check_operators(looped())


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 1.5, "x", True, None, datetime(2026, 1, 1, tzinfo=UTC)])
def test_takes_every_value_that_metadata_can_hold(value: Any):
    assert parse_where({"page": value}) == Compare(PAGE, Op.EQ, value)


def test_a_filter_does_not_follow_later_changes_of_the_dict():
    values = [1, [2]]
    parsed = parse_where({"page": {"$eq": values}})
    values.append(3)
    assert parsed == Compare(PAGE, Op.EQ, [1, [2]])


keys = st.text(min_size=1).map(lambda key: key.replace("\\", "\\\\").replace(".", "\\.").replace("$", "\\$"))


@given(keys, st.integers(-3, 3), st.integers(-3, 3))
def test_any_key_can_be_named(key: str, stored: int, wanted: int):
    name = parse_where({key: wanted})
    assert isinstance(name, Compare)
    item = MemoryItem("c", "s", metadata={name.field.path[0]: stored})
    assert matches(name, item) is (stored == wanted)


def test_attributes_and_metadata_are_apart():
    item = MemoryItem("c", "s", metadata={"user_id": "bob"}, attributes=MemoryAttributes(user_id="ada"))
    for where, expected in (
        ({"user_id": "bob"}, True),
        ({"user_id": "ada"}, False),
        ({"attributes.user_id": "ada"}, True),
    ):
        condition = parse_where(where)
        assert condition is not None
        assert matches(condition, item) is expected


class TestCheckOperators:
    @pytest.mark.parametrize(
        "where",
        [
            None, {}, {"site": "docs"}, {"since": object(), 3: b"x"}, {"page": {"$gte": 3}}, {"list": [1, {"a": 1}]},
            {"$or": [{"page": {"$not": {"$in": [1]}}}]}, {"attributes.whatever": 1},
        ],
    )  # fmt: skip
    def test_leaves_all_else_alone(self, where: Any):
        check_operators(where)

    @pytest.mark.parametrize(
        "where", [{"$near": 3}, {"page": {"$near": 3}}, {"$or": [{"$nor": []}]}, {"page": {"$not": {"$near": 1}}}]
    )
    def test_refuses_an_unknown_operator(self, where: Any):
        with pytest.raises(InvalidFilter, match="unknown operator"):
            check_operators(where)
