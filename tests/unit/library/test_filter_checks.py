"""A condition that can never hold is refused, in `where` and on the wire alike, and the refusal says what fits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recalld.engine.visibility import active_unless_named, every, unexpired, visible_to
from recalld.errors import InvalidFilter
from recalld.filter_checks import check_filter
from recalld.filters import (
    FIELDS,
    All,
    AnyOf,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Kind,
    Not,
    Op,
)
from recalld.limits import LIMITS
from recalld.v1 import filter_pb2
from recalld.where import parse_where
from recalld.wire import decode_filter
from recalld.wire.values import fill_value

NOW = datetime(2026, 3, 1, tzinfo=UTC)

#: A value of each type that a filter may hold.
VALUES: dict[str, Any] = {
    "null": None, "boolean": True, "integer": 7, "double": 0.5, "string": "Active", "time": NOW, "list": ["a"],
    "map": {"a": 1},
}  # fmt: skip
FITTING = {
    Kind.STRING: {"string"},
    Kind.INTEGER: {"integer", "double"},
    Kind.DOUBLE: {"integer", "double"},
    Kind.BOOLEAN: {"boolean"},
    Kind.TIME: {"time"},
}
FREE = [name for name in FIELDS if name not in ("status", "visibility")]
TAKES = {
    Kind.STRING: "takes a string",
    Kind.INTEGER: "takes a number",
    Kind.DOUBLE: "takes a number",
    Kind.BOOLEAN: "takes true or false",
    Kind.TIME: "takes a time: an aware datetime, on the wire a timestamp_value",
}
SIGNS = {Op.EQ: "$eq", Op.NE: "$ne", Op.LT: "$lt", Op.LE: "$lte", Op.GT: "$gt", Op.GE: "$gte"}
OPERATORS = {Op.EQ: 1, Op.NE: 2, Op.LT: 3, Op.LE: 4, Op.GT: 5, Op.GE: 6}


def in_where(name: str, operator: str, operand: Any) -> dict[str, str]:
    """What `where` says of it."""
    key = name if name in ("id", "content") else f"attributes.{name}"
    try:
        parse_where({key: {operator: operand}})
    except InvalidFilter as error:
        return {path.removeprefix(f"where.{key}.{operator}"): why for path, why in error.violations.items()}
    return {}


def on_the_wire(message: filter_pb2.Filter, place: str) -> dict[str, str]:
    """What the wire says of it."""
    violations: dict[str, str] = {}
    decoded = decode_filter(message, "where", violations)
    assert (decoded is None) is bool(violations)
    return {path.removeprefix(f"where.{place}"): why for path, why in violations.items()}


def checked(filter: Filter, place: str) -> dict[str, str]:
    """What is said of the typed filter."""
    violations: dict[str, str] = {}
    check_filter(filter, "where", violations)
    return {path.removeprefix(f"where.{place}"): why for path, why in violations.items()}


def comparing(name: str, op: Op, value: Any) -> dict[str, str]:
    """What all three say of a comparison: the same."""
    message = filter_pb2.Filter()
    message.compare.field = name
    message.compare.operator = OPERATORS[op]  # type: ignore[assignment]
    fill_value(message.compare.value, value)
    told = in_where(name, SIGNS[op], value)
    assert on_the_wire(message, "compare.value") == told
    assert checked(Compare(Field(name), op, value), "compare.value") == told
    return told


def containing(name: str, value: Any) -> dict[str, str]:
    message = filter_pb2.Filter()
    message.contains.field = name
    fill_value(message.contains.value, value)
    told = in_where(name, "$contains", value)
    assert on_the_wire(message, "contains.value") == told
    assert checked(Contains(Field(name), value), "contains.value") == told
    return told


def among(name: str, values: list[Any]) -> dict[str, str]:
    message = filter_pb2.Filter()
    inside: filter_pb2.Membership = getattr(message, "in")
    inside.field = name
    for value in values:
        fill_value(inside.values.add(), value)
    told = in_where(name, "$in", values)
    assert on_the_wire(message, "in.values") == told
    assert in_where(name, "$nin", values) == told
    assert checked(In(Field(name), tuple(values)), "in.values") == told
    return told


@pytest.mark.parametrize("name", FREE)
def test_a_field_is_compared_to_values_of_its_own_type(name: str) -> None:
    kind = FIELDS[name]
    for type_name, value in VALUES.items():
        fits = type_name in FITTING[kind]
        for op in Op:
            ordered = kind is Kind.BOOLEAN and op not in (Op.EQ, Op.NE)
            told = comparing(name, op, value)
            assert bool(told) is (not fits or ordered), (op, value)
            assert all(TAKES[kind] in why and name in why for why in told.values())
        assert bool(among(name, [value])) is not fits
        assert bool(containing(name, value)) is not (fits and kind is Kind.STRING)


def test_a_boolean_has_no_order() -> None:
    assert comparing("embedding_truncated", Op.GT, False) == {
        "": "embedding_truncated takes true or false, and these have no order"
    }


def test_only_a_string_contains_anything() -> None:
    assert "only a string or a list contains anything" in containing("create_time", "2020")[""]


@pytest.mark.parametrize(
    ("name", "names"), [("status", ["active", "superseded", "archived"]), ("visibility", ["private", "org"])]
)
def test_what_has_few_values_is_compared_to_one_of_them(name: str, names: list[str]) -> None:
    for value in names:
        assert comparing(name, Op.EQ, value) == comparing(name, Op.GE, value) == {}
        assert containing(name, value[1:3]) == {}
    assert among(name, names) == {}
    for value in ("Active", "PRIVATE", "", "deleted", "unspecified", 1, None):
        (why,) = comparing(name, Op.EQ, value).values()
        assert f"{name} takes one of {', '.join(map(repr, names))}, not " in why
    assert "not the string 'Active'" in comparing(name, Op.NE, "Active")[""]
    assert list(containing(name, "ACT")) == [""]


def test_each_impossible_value_of_many_is_named_by_its_place() -> None:
    assert list(among("status", ["active", "Active", "archived", 3])) == ["[1]", "[3]"]
    assert list(among("visibility", ["org", "ORG"])) == ["[1]"]
    assert list(among("create_time", [NOW, "2020-01-01", NOW, None])) == ["[1]", "[3]"]
    assert list(among("revision", [1, 2.0, True])) == ["[2]"]


def test_null_says_what_to_ask_instead() -> None:
    assert comparing("user_id", Op.NE, None)[""].endswith("not null; whether it is set is what `exists` asks")


def test_metadata_takes_anything() -> None:
    page = Field("metadata", ("status",))
    for value in VALUES.values():
        for condition in (*(Compare(page, op, value) for op in Op), In(page, (value,)), Contains(page, value)):
            assert checked(condition, "") == {}
        assert parse_where({"status": {"$gt": value, "$contains": value, "$in": [value]}})


def test_what_the_engine_adds_itself_fits() -> None:
    own = every(unexpired(NOW), visible_to("ada"), active_unless_named(None))
    assert checked(own, "") == {}


def test_a_typed_filter_is_held_to_every_rule_by_the_paths_of_the_wire() -> None:
    loop: list[Any] = []
    loop.append(loop)
    page = Field("metadata", ("page",))
    wrong: list[Any] = [
        Exists(page),
        Exists(Field("no_such")),
        Exists(Field("metadata")),
        Exists(Field("user_id", ("x",))),
        Exists(Field("metadata", ("\ud800",))),
        Not(AnyOf(())),
        Compare(page, Op.EQ, {1}),
        Compare(page, Op.EQ, loop),
        Contains(page, float("nan")),
        In(page, (1, [2**63], "\ud800")),
        In(page, tuple(range(LIMITS.max_in_values + 1))),
        {"page": 1},
    ]
    assert set(checked(All(tuple(wrong)), "all.filters")) == {
        "[1].exists",
        "[2].exists",
        "[3].exists",
        "[4].exists",
        "[5].not.any.filters",
        "[6].compare.value",
        "[7].compare.value" + "[0]" * (LIMITS.max_filter_value_levels + 1),
        "[8].contains.value",
        "[9].in.values[1][0]",
        "[9].in.values[2]",
        "[10].in.values",
        "[11]",
    }


def test_a_wrong_value_is_told_once_as_what_it_is() -> None:
    naive = datetime(2026, 3, 1)  # noqa: DTZ001 - the point of the test
    assert checked(Compare(Field("create_time"), Op.EQ, naive), "compare.value") == {"": "is a time without a zone"}
    with pytest.raises(InvalidFilter, match="without a zone"):
        parse_where({"attributes.create_time": naive})
