from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.errors import InvalidFilter
from recalld.filters import (
    ATTRIBUTE_DEFAULTS,
    ATTRIBUTES,
    All,
    AnyOf,
    Compare,
    Contains,
    Exists,
    Field,
    Filter,
    In,
    Not,
    Op,
    fields_of,
    matches,
    parse_field,
    split_path,
    value_of,
    with_defaults,
)

X = Field("metadata", ("x",))
ABSENT: Any = object()


def item(x: Any = ABSENT) -> MemoryItem:
    return MemoryItem("some content", "notes", metadata={} if x is ABSENT else {"x": x}, id="7")


class TestComparing:
    @pytest.mark.parametrize("absent", [ABSENT, None])
    @pytest.mark.parametrize("value", [None, 0, "", False, [], {}])
    def test_absent_and_null_satisfy_nothing_but_not_equal(self, absent: Any, value: Any):
        for op in Op:
            assert matches(Compare(X, op, value), item(absent)) is (op is Op.NE)
        assert not matches(In(X, (value,)), item(absent))
        assert not matches(Contains(X, value), item(absent))
        assert not matches(Exists(X), item(absent))

    @pytest.mark.parametrize("value", [0, "", False, [], {}])
    def test_falsy_values_exist(self, value: Any):
        assert matches(Exists(X), item(value))

    def test_integers_and_doubles_compare_as_exact_numbers(self):
        big = 2**53 + 1
        assert matches(Compare(X, Op.EQ, 3.0), item(3))
        assert not matches(Compare(X, Op.EQ, float(big)), item(big))
        assert matches(Compare(X, Op.GT, float(big)), item(big))

    def test_the_two_zeros_are_one(self):
        assert matches(Compare(X, Op.EQ, -0.0), item(0.0))
        assert not matches(Compare(X, Op.LT, 0.0), item(-0.0))

    @pytest.mark.parametrize(("stored", "value"), [(True, 1), (1, True), (False, 0.0), (0, False)])
    def test_a_boolean_is_not_a_number(self, stored: Any, value: Any):
        assert not matches(Compare(X, Op.EQ, value), item(stored))
        assert matches(Compare(X, Op.NE, value), item(stored))
        assert not matches(In(X, (value,)), item(stored))

    @pytest.mark.parametrize(("stored", "value"), [("3", 3), (3, "3"), ([3], 3), ({"a": 1}, "a"), (True, False)])
    def test_values_of_two_types_have_no_order(self, stored: Any, value: Any):
        for op in (Op.LT, Op.LE, Op.GT, Op.GE):
            assert not matches(Compare(X, op, value), item(stored))

    def test_strings_compare_by_code_point(self):
        assert matches(Compare(X, Op.LT, "a"), item("Z"))
        assert matches(Compare(X, Op.GT, "\uffff"), item("\U0001f642"))
        assert not matches(Compare(X, Op.EQ, "e\u0301"), item("\u00e9"))

    def test_times_compare_by_instant(self):
        noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
        elsewhere = noon.astimezone(timezone(timedelta(hours=5)))
        assert matches(Compare(X, Op.EQ, elsewhere), item(noon))
        assert matches(Compare(X, Op.LT, elsewhere + timedelta(microseconds=1)), item(noon))

    def test_the_repeated_hour_of_a_clock_change_equals_its_instant(self):
        second = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
        assert matches(Compare(X, Op.EQ, second.astimezone(UTC)), item(second))

    def test_a_time_without_a_zone_is_unequal_and_has_no_order(self):
        naive = datetime(2026, 3, 1)  # noqa: DTZ001 - the point of the test
        aware = datetime(2026, 3, 1, tzinfo=UTC)
        assert not matches(Compare(X, Op.EQ, aware), item(naive))
        assert not matches(Compare(X, Op.LE, aware), item(naive))
        assert matches(Compare(X, Op.NE, aware), item(naive))

    def test_lists_and_maps_are_equal_member_by_member(self):
        assert matches(Compare(X, Op.EQ, [1.0, {"a": "b"}]), item([1, {"a": "b"}]))
        assert not matches(Compare(X, Op.EQ, [True]), item([1]))
        assert not matches(Compare(X, Op.EQ, [1]), item([1, 2]))
        assert not matches(Compare(X, Op.EQ, {"a": 1}), item({"a": 1, "b": 2}))


class TestContains:
    def test_a_substring_literally_and_with_case(self):
        assert matches(Contains(X, "50%"), item("up 50% today"))
        assert not matches(Contains(X, "Today"), item("up 50% today"))
        assert not matches(Contains(X, "u.*y"), item("up 50% today"))

    def test_a_whole_value_of_a_list(self):
        assert matches(Contains(X, "ab"), item(["ab", "cd"]))
        assert not matches(Contains(X, "a"), item(["ab", "cd"]))
        assert matches(Contains(X, 1.0), item([1]))
        assert not matches(Contains(X, True), item([1]))

    @pytest.mark.parametrize("stored", [3, True, {"ab": 1}])
    def test_nothing_else_contains(self, stored: Any):
        assert not matches(Contains(X, "ab"), item(stored))


class TestFields:
    def test_id_and_content(self):
        assert value_of(item(), parse_field("id")) == "7"
        assert value_of(item(), parse_field("content")) == "some content"

    def test_a_path_goes_into_maps_only(self):
        nested = MemoryItem("c", "s", metadata={"a": {"b": {"c": 1}}, "list": [{"b": 1}], "text": "b"})
        assert value_of(nested, parse_field("metadata.a.b.c")) == 1
        for path in ("metadata.list.b", "metadata.text.b", "metadata.a.x.c"):
            assert value_of(nested, parse_field(path)) is None

    def test_a_key_with_a_dot_is_reached_with_a_backslash(self):
        dotted = MemoryItem("c", "s", metadata={"a.b": 1, "a": {"b": 2}, "c\\": {"d": 3}})
        assert value_of(dotted, parse_field(r"metadata.a\.b")) == 1
        assert value_of(dotted, parse_field("metadata.a.b")) == 2
        assert value_of(dotted, parse_field(r"metadata.c\\.d")) == 3

    @pytest.mark.parametrize(
        "text", ["", ".", "metadata", r"metadata\.x", "metadata.a\\", "\\", "page", "user_id.x", "status ", "Id"]
    )
    def test_anything_else_is_refused(self, text: str):
        with pytest.raises(InvalidFilter):
            parse_field(text)

    def test_a_backslash_takes_the_next_character_whatever_it_is(self):
        registry = MemoryItem("c", "s", metadata={r"HKLM\Software\burr": 1, "HKLMSoftwareburr": 2})
        assert value_of(registry, parse_field(r"metadata.HKLM\\Software\\burr")) == 1
        assert value_of(registry, parse_field(r"metadata.HKLM\Software\burr")) == 2
        assert str(Field("metadata", (r"HKLM\Software\burr",))) == r"metadata.HKLM\\Software\\burr"

    def test_a_backslash_that_takes_nothing_is_told(self):
        with pytest.raises(InvalidFilter, match="ends in a backslash"):
            parse_field("metadata.a\\")

    def test_an_empty_key_can_be_named(self):
        nameless = MemoryItem("c", "s", metadata={"": {"": 1, "a": 2}})
        assert value_of(nameless, parse_field("metadata..")) == 1
        assert value_of(nameless, parse_field("metadata..a")) == 2
        assert parse_field("metadata.") == Field("metadata", ("",))

    @given(st.lists(st.text() | st.text("\\.ab"), min_size=1, max_size=4))
    def test_every_path_survives_being_written_down(self, keys: list[str]):
        field = Field("metadata", tuple(keys))
        assert parse_field(str(field)) == field
        assert split_path(str(field))[1:] == tuple(keys)
        nested: Any = "found"
        for key in reversed(keys):
            nested = {key: nested}
        assert value_of(MemoryItem("c", "s", metadata=nested), parse_field(str(field))) == "found"

    def test_unset_attributes_show_their_defaults(self):
        for attributes in (None, MemoryAttributes()):
            bare = MemoryItem("c", "notes", attributes=attributes)
            shown = {name: value_of(bare, Field(name)) for name in ATTRIBUTES}
            assert {name: shown[name] for name in ATTRIBUTE_DEFAULTS} == ATTRIBUTE_DEFAULTS
            assert (shown["visibility"], shown["status"], shown["origin"]) == ("private", "active", "notes")
            assert (shown["user_id"], shown["event_time"], shown["revision"]) == (None, None, 0)
            assert shown["embedding_truncated"] is False

    def test_what_reads_show_is_what_filters_see(self):
        for attributes in (MemoryAttributes(), MemoryAttributes(importance=0.0, namespace="n", user_id="ada")):
            shown = with_defaults(attributes)
            before, after = MemoryItem("c", "s", attributes=attributes), MemoryItem("c", "s", attributes=shown)
            for name in ATTRIBUTES:
                assert value_of(after, Field(name)) == value_of(before, Field(name))
            assert {name: getattr(shown, name) for name in ATTRIBUTE_DEFAULTS} == {
                name: value_of(before, Field(name)) for name in ATTRIBUTE_DEFAULTS
            }
            assert (shown.visibility, shown.status) == (Visibility.PRIVATE, MemoryStatus.ACTIVE)
            assert with_defaults(shown) == shown

    def test_defaults_stand_in_for_what_is_unset_alone(self):
        full = MemoryAttributes(
            memory_type="episodic",
            namespace="n",
            visibility=Visibility.ORG,
            status=MemoryStatus.SUPERSEDED,
            importance=0.0,
            confidence=0.0,
            user_id="ada",
            revision=7,
        )
        assert with_defaults(full) == full

    def test_set_attributes_show_themselves(self):
        attributes = MemoryAttributes(
            namespace="n", importance=0.0, visibility=Visibility.ORG, status=MemoryStatus.SUPERSEDED, origin="store"
        )
        full = MemoryItem("c", "notes", attributes=attributes)
        shown = {name: value_of(full, Field(name)) for name in ATTRIBUTES}
        assert (shown["namespace"], shown["importance"], shown["origin"]) == ("n", 0.0, "store")
        assert (shown["visibility"], shown["status"]) == ("org", "superseded")


scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**53, 2**53 + 1, 2.0**53, 0.5, -0.0])
    | st.sampled_from(["", "a", "ab", "B"])
    | st.datetimes(timezones=st.just(UTC))
)
anything = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), scalars, max_size=2)
items = st.builds(item, anything)
conditions: st.SearchStrategy[Filter] = st.recursive(
    st.builds(Compare, st.just(X), st.sampled_from(Op), anything)
    | st.builds(In, st.just(X), st.lists(anything, min_size=1, max_size=3).map(tuple))
    | st.builds(Contains, st.just(X), anything)
    | st.just(Exists(X)),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(tuple).map(All)
        | st.lists(inner, min_size=1, max_size=3).map(tuple).map(AnyOf)
        | inner.map(Not)
    ),
    max_leaves=5,
)


class TestLaws:
    @given(conditions, items)
    def test_not_is_plain_negation(self, condition: Filter, one: MemoryItem):
        assert matches(Not(condition), one) is not matches(condition, one)

    @given(st.lists(conditions, min_size=1, max_size=3), items)
    def test_all_and_any_are_those_of_logic(self, some: list[Filter], one: MemoryItem):
        held = [matches(each, one) for each in some]
        assert matches(All(tuple(some)), one) is all(held)
        assert matches(AnyOf(tuple(some)), one) is any(held)

    @given(anything, items)
    def test_equal_and_not_equal_are_opposites(self, value: Any, one: MemoryItem):
        assert matches(Compare(X, Op.EQ, value), one) is not matches(Compare(X, Op.NE, value), one)

    @given(st.lists(anything, min_size=1, max_size=4), items)
    def test_in_is_equal_to_one_of_them(self, values: list[Any], one: MemoryItem):
        assert matches(In(X, tuple(values)), one) is any(matches(Compare(X, Op.EQ, value), one) for value in values)

    @given(anything, anything)
    def test_order_is_total_within_a_type_and_absent_across(self, stored: Any, value: Any):
        below, equal, above = (matches(Compare(X, op, value), item(stored)) for op in (Op.LT, Op.EQ, Op.GT))
        assert below + equal + above <= 1
        assert matches(Compare(X, Op.LE, value), item(stored)) is (below or (equal and _has_order(stored)))
        assert matches(Compare(X, Op.GE, value), item(stored)) is (above or (equal and _has_order(stored)))

    @given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
    def test_numbers_compare_as_fractions_do(self, whole: int, double: float):
        exact = Fraction(double)
        for op, expected in (
            (Op.EQ, whole == exact), (Op.LT, whole < exact), (Op.LE, whole <= exact),
            (Op.GT, whole > exact), (Op.GE, whole >= exact),
        ):  # fmt: skip
            assert matches(Compare(X, op, double), item(whole)) is expected

    @given(conditions)
    def test_fields_of_names_every_field(self, condition: Filter):
        assert set(fields_of(condition)) == {X}


def _has_order(value: Any) -> bool:
    return isinstance(value, (str, datetime)) or (isinstance(value, (int, float)) and not isinstance(value, bool))
