from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import MemoryAttributes, MemoryItem, RecalldError
from recalld.errors import InvalidFilter, WrongType
from recalld.filter_checks import NAMES
from recalld.filters import FIELDS, All, AnyOf, Compare, Contains, Exists, Field, Filter, In, Kind, Not, Op, matches
from recalld.frozen import FrozenDict, freeze
from recalld.where import MAX_IN_VALUES, check_operators, copy_where, format_where, parse_where

PAGE = Field("metadata", ("page",))

FITTING: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    Kind.INTEGER: st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    Kind.DOUBLE: st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False),
    Kind.BOOLEAN: st.booleans(),
    Kind.TIME: st.datetimes(timezones=st.just(UTC)),
}
scalars = st.none() | st.one_of(*FITTING.values())
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(freeze)
        | st.dictionaries(st.sampled_from(["a", "$gt", "$eq", ""]), inner, max_size=2).map(freeze)
    ),
    max_leaves=4,
)
metadata_fields = st.lists(
    st.sampled_from(["a", "", "id", "content", "metadata", "attributes", "$gt", "$and", "a.b", "\\", "x\\.y"]),
    min_size=1,
    max_size=3,
).map(lambda keys: Field("metadata", tuple(keys)))


def conditions_on(field: Field) -> st.SearchStrategy[Filter]:
    """Conditions that hold the field to values that it can have."""
    kind = FIELDS.get(field.name)
    names = NAMES.get(field.name)
    value = st.sampled_from(names) if names else FITTING[kind] if kind else anything
    ops = [Op.EQ, Op.NE] if kind is Kind.BOOLEAN else list(Op)
    some = [
        st.builds(Compare, st.just(field), st.sampled_from(ops), value),
        st.builds(In, st.just(field), st.lists(value, max_size=3).map(tuple)),
        st.just(Exists(field)),
    ]
    if kind in (None, Kind.STRING):
        some.append(st.builds(Contains, st.just(field), value))
    return st.one_of(*some)


filters: st.SearchStrategy[Filter] = st.recursive(
    (metadata_fields | st.sampled_from([Field(name) for name in FIELDS])).flatmap(conditions_on),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda members: All(tuple(members)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda members: AnyOf(tuple(members)))
        | inner.map(Not)
    ),
    max_leaves=6,
)


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
        ({"id": "7"}, Compare(Field("id"), Op.EQ, "7")),
        ({"content": {"$contains": "burr"}}, Contains(Field("content"), "burr")),
        ({"metadata.id": 7}, Compare(Field("metadata", ("id",)), Op.EQ, 7)),
        ({"metadata.content": 7}, Compare(Field("metadata", ("content",)), Op.EQ, 7)),
        ({"metadata.page": 3}, Compare(PAGE, Op.EQ, 3)),
        ({"metadata.metadata.x": 3}, Compare(Field("metadata", ("metadata", "x")), Op.EQ, 3)),
        ({"metadata.attributes.x": 3}, Compare(Field("metadata", ("attributes", "x")), Op.EQ, 3)),
        ({"metadata.$gt": 3}, Compare(Field("metadata", ("$gt",)), Op.EQ, 3)),
        ({"metadata": 3}, Compare(Field("metadata", ("metadata",)), Op.EQ, 3)),
        ({"id.x": 3}, Compare(Field("metadata", ("id", "x")), Op.EQ, 3)),
        ({"": 3}, Compare(Field("metadata", ("",)), Op.EQ, 3)),
        ({"metadata.": 3}, Compare(Field("metadata", ("",)), Op.EQ, 3)),
        ({"a..b": 3}, Compare(Field("metadata", ("a", "", "b")), Op.EQ, 3)),
        ({"page": {"$in": []}}, In(PAGE, ())),
        ({"page": {"$nin": []}}, Not(In(PAGE, ()))),
        ({"$not": Exists(PAGE)}, Not(Exists(PAGE))),
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
    {"page": {"$in": "text"}},
    {"page": {"$in": list(range(MAX_IN_VALUES + 1))}},
    {"page": {"$exists": 1}},
    {"attributes.no_such": 1},
    {"attributes.user_id.x": 1},
    {"a\\": 1},
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


keys = st.text() | st.sampled_from(["id", "content", "metadata", "attributes", "$gt"])


@given(keys, st.integers(-3, 3), st.integers(-3, 3))
def test_any_metadata_key_can_be_named(key: str, stored: int, wanted: int):
    condition = parse_where({"metadata." + key.replace("\\", "\\\\").replace(".", "\\."): wanted})
    assert condition is not None
    item = MemoryItem("c", "s", metadata={key: stored})
    assert matches(condition, item) is (stored == wanted)


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


@pytest.mark.parametrize("where", ["turn=1", "", [], [("page", 1)], 0, False, {"page"}])
def test_what_is_no_where_is_refused_by_its_type(where: Any):
    for take in (parse_where, copy_where, check_operators):
        with pytest.raises(TypeError, match=f"must be a dict or a filter, not {type(where).__name__}") as raised:
            take(where)
        assert isinstance(raised.value, WrongType)


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ({"page": {"$in": [1, {"a": {1}}]}}, "where.page.$in[1].a"),
        ({"$or": [{"x": 1}, {"$not": {"page": {"$near": 1}}}]}, "where.$or[1].$not.page.$near"),
        ({"$and": [{"attributes.nobody": 1}]}, "where.$and[0].attributes.nobody"),
        ({"page": {"$not": {"$exists": "yes"}}}, "where.page.$not.$exists"),
        ({"attributes.status": {"$in": ["active", "Active"]}}, "where.attributes.status.$in[1]"),
    ],
)
def test_a_refusal_names_the_place(where: dict[str, Any], path: str):
    with pytest.raises(InvalidFilter) as raised:
        parse_where(where)
    assert list(raised.value.violations) == [path]


def test_a_type_is_called_what_its_author_called_it():
    with pytest.raises(InvalidFilter, match="is a set, which metadata cannot hold"):
        parse_where({"page": {1, 2}})
    with pytest.raises(InvalidFilter, match="is a set, which metadata cannot hold"):
        parse_where(FrozenDict({"page": {1, 2}}))


def test_an_empty_list_holds_nothing():
    for page in (1, None, []):
        item = MemoryItem("c", "s", metadata={"page": page})
        nothing, everything = parse_where({"page": {"$in": []}}), parse_where({"page": {"$nin": []}})
        assert nothing is not None
        assert everything is not None
        assert not matches(nothing, item)
        assert matches(everything, item)


class TestFormatWhere:
    @pytest.mark.parametrize(
        ("condition", "where"),
        [
            (Compare(PAGE, Op.EQ, 3), {"page": 3}),
            (Compare(PAGE, Op.EQ, {"$gt": 3}), {"page": {"$eq": {"$gt": 3}}}),
            (Compare(PAGE, Op.GE, 3), {"page": {"$gte": 3}}),
            (All((Compare(PAGE, Op.EQ, 3), Exists(Field("id")))), {"page": 3, "id": {"$exists": True}}),
            (
                All((Compare(PAGE, Op.GE, 3), Compare(PAGE, Op.LT, 9))),
                {"$and": [{"page": {"$gte": 3}}, {"page": {"$lt": 9}}]},
            ),
            (Not(In(Field("user_id"), ("a",))), {"$not": {"attributes.user_id": {"$in": ["a"]}}}),
            (Exists(Field("metadata", ("id",))), {"metadata.id": {"$exists": True}}),
            (Exists(Field("metadata", ("a.b", "c"))), {r"a\.b.c": {"$exists": True}}),
        ],
    )
    def test_it_is_written_as_a_person_would(self, condition: Filter, where: dict[str, Any]):
        assert format_where(condition) == where

    @given(filters)
    def test_it_is_read_as_the_same_filter(self, condition: Filter):
        where = format_where(condition)
        # repr tells 1 from 1.0 and True, which == does not.
        assert repr(parse_where(where)) == repr(condition)
        assert repr(parse_where(copy_where(condition))) == repr(All((condition,)))

    def test_a_filter_is_taken_as_it_is(self):
        condition = Compare(PAGE, Op.EQ, 3)
        assert parse_where(condition) is condition

    def test_a_copy_is_the_callers_own(self):
        where = {"page": 3}
        copied = copy_where(where)
        copied["more"] = 1
        assert where == {"page": 3}
        assert copy_where(None) == {}

    def test_a_typed_filter_has_no_words_of_a_source(self):
        condition = Compare(Field("metadata", ("path_prefix",)), Op.EQ, "/a")
        assert copy_where(condition) == {"$and": [{"path_prefix": "/a"}]}

    def test_what_nests_too_deep_to_be_written_is_refused(self):
        deep: Filter = Exists(PAGE)
        for _ in range(5000):
            deep = Not(deep)
        with pytest.raises(InvalidFilter, match="nests too deep"):
            format_where(deep)


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
