"""Items to the wire and back: nothing is lost, and what cannot travel is named."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf import timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from recalld.errors import InvalidField
from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.scope import Scope
from recalld.v1 import item_pb2
from recalld.wire import (
    MAX_LEVELS,
    decode_item,
    decode_scope,
    decode_write,
    encode_item,
    encode_scope,
    encode_write,
    encode_writes,
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_TIMES = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001 - the zone comes beside
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=_ZONES,
)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _INT64 | _FLOATS | _TEXT | _TIMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
_METADATA = st.dictionaries(_TEXT, _VALUES, max_size=5)
_ATTRIBUTES = st.builds(
    MemoryAttributes,
    memory_type=_TEXT,
    namespace=_TEXT,
    user_id=_TEXT,
    session_id=_TEXT,
    agent_id=_TEXT,
    run_id=_TEXT,
    visibility=st.sampled_from(Visibility),
    status=st.sampled_from(MemoryStatus),
    importance=st.none() | st.floats(0, 1),
    confidence=st.none() | st.floats(0, 1),
    **{
        name: st.none() | _TIMES
        for name in (
            "create_time",
            "update_time",
            "event_time",
            "last_observed_time",
            "last_access_time",
            "expire_time",
        )
    },
    access_count=_INT64,
    observation_count=_INT64,
    supersedes_id=_TEXT,
    superseded_by_id=_TEXT,
    revision=_INT64,
    origin=_TEXT,
    embedding_truncated=st.booleans(),
)
_ITEMS = st.builds(
    MemoryItem,
    _TEXT,
    _TEXT,
    st.none() | _FLOATS,
    _METADATA,
    id=st.none() | _TEXT,
    attributes=st.none() | _ATTRIBUTES,
)


def _typed(value: Any) -> Any:
    """The value with its types spelled out, so that 1, 1.0 and True differ, and so do the two zeros."""
    if isinstance(value, dict):
        return {key: _typed(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_typed(member) for member in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return type(value).__name__, repr(value)


def _round_trip(item: MemoryItem) -> MemoryItem:
    violations: dict[str, str] = {}
    sent = encode_item(item, "item", violations).SerializeToString()
    received = decode_item(item_pb2.MemoryItem.FromString(sent), "item", violations)
    assert violations == {}
    assert received is not None
    return received


def _violations_of(metadata: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidField) as caught:
        encode_writes([MemoryItem("x", "me", metadata=metadata)])
    return caught.value.violations


@given(_ITEMS)
def test_an_item_comes_back_as_it_was(item: MemoryItem) -> None:
    received = _round_trip(item)
    assert received == item
    assert _typed(received.metadata) == _typed(item.metadata)


@given(_TIMES)
def test_times_keep_the_microsecond_and_come_back_in_utc(time: datetime) -> None:
    received = _round_trip(MemoryItem("x", "me", metadata={"at": time})).metadata["at"]
    assert received == time
    assert received.utcoffset() == timedelta(0)


@given(_ITEMS)
def test_a_write_carries_what_a_caller_may_set_and_nothing_else(item: MemoryItem) -> None:
    violations: dict[str, str] = {}
    received = decode_write(encode_write(item, "item", violations), "item", violations)
    assert violations == {}
    assert received is not None
    assert (received.id, received.content, received.source, received.score) == (item.id, item.content, "", None)
    assert _typed(received.metadata) == _typed(item.metadata)
    if item.attributes is None:
        assert received.attributes is None
    else:
        kept = {name: getattr(item.attributes, name) for name in WRITABLE_ATTRIBUTES}
        assert received.attributes == MemoryAttributes(**kept)


def test_unset_attributes_and_empty_attributes_stay_apart() -> None:
    assert _round_trip(MemoryItem("x", "me")).attributes is None
    assert _round_trip(MemoryItem("x", "me", attributes=MemoryAttributes())).attributes == MemoryAttributes()


def test_a_tuple_travels_as_a_list() -> None:
    assert _round_trip(MemoryItem("x", "me", metadata={"pair": (1, "a")})).metadata["pair"] == [1, "a"]


def test_the_ends_of_the_integer_range_travel() -> None:
    ends = {"low": -(2**63), "high": 2**63 - 1}
    assert _round_trip(MemoryItem("x", "me", metadata=ends)).metadata == ends


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2**63, "over 64 bits"),
        (-(2**63) - 1, "over 64 bits"),
        (math.nan, "not a finite number"),
        (math.inf, "not a finite number"),
        (-math.inf, "not a finite number"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (object(), "object"),
        (datetime(2024, 1, 1), "without a zone"),  # noqa: DTZ001 - the point of the case
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), "outside the years"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), "outside the years"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_a_value_that_cannot_travel_is_named_by_its_path(value: Any, why: str) -> None:
    for metadata, path in (
        ({"tags": [1, 2, value]}, "items[0].metadata.tags[2]"),
        ({"a": {"b": value}}, "items[0].metadata.a.b"),
        ({"dotted.key": value}, "items[0].metadata.dotted\\.key"),
        ({"pair": (value,)}, "items[0].metadata.pair[0]"),
    ):
        violations = _violations_of(metadata)
        assert list(violations) == [path]
        assert why in violations[path]


def test_every_violation_of_every_item_is_named_at_once() -> None:
    items: list[Any] = [
        MemoryItem("fine", "me"),
        MemoryItem("\udfff", "me", metadata={"a": math.nan, "b": {1}}, id="\ud800"),
        "no item",
        MemoryItem("x", "me", attributes=MemoryAttributes(importance=1.5, event_time=datetime(2024, 1, 1))),  # noqa: DTZ001
    ]
    with pytest.raises(InvalidField) as caught:
        encode_writes(items)
    assert set(caught.value.violations) == {
        "items[1].content",
        "items[1].id",
        "items[1].metadata.a",
        "items[1].metadata.b",
        "items[2]",
        "items[3].attributes.importance",
        "items[3].attributes.event_time",
    }
    assert isinstance(caught.value, ValueError)
    assert "items[1].metadata.a" in str(caught.value)


def test_a_key_that_is_not_a_string_is_named_by_its_map() -> None:
    metadata: Any = {"a": {1: "x"}}
    assert "not a string" in _violations_of(metadata)["items[0].metadata.a"]


def test_a_key_that_utf_8_cannot_carry_is_a_violation_whose_path_can_be_printed() -> None:
    (path,) = _violations_of({"\ud800": 1})
    path.encode()
    assert path.startswith("items[0].metadata.")


def _nested(levels: int, wrap: Any) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda inner: {"k": inner}, lambda inner: [inner], lambda inner: (inner,)])
def test_sixteen_levels_travel_and_seventeen_do_not(wrap: Any) -> None:
    deep = {"k": _nested(MAX_LEVELS - 1, wrap)}
    assert encode_writes([MemoryItem("x", "me", metadata=deep)])
    violations = _violations_of({"k": _nested(MAX_LEVELS, wrap)})
    assert all("levels deep" in why for why in violations.values())


def test_too_deep_metadata_is_a_violation_for_the_receiver_too() -> None:
    message = item_pb2.MemoryItem(content="x")
    value = message.metadata["k"]
    for _ in range(MAX_LEVELS):
        value = value.list_value.values.add()
    value.bool_value = True
    violations: dict[str, str] = {}
    assert decode_write(message, "items[0]", violations) is None
    assert list(violations) == ["items[0].metadata.k" + "[0]" * MAX_LEVELS]


def test_a_part_that_is_shared_is_no_cycle() -> None:
    shared = {"a": 1}
    assert _round_trip(MemoryItem("x", "me", metadata={"l": shared, "r": shared})).metadata["r"] == {"a": 1}


def _value(**kind: Any) -> item_pb2.Value:
    return item_pb2.Value(**kind)


@pytest.mark.parametrize(
    "value",
    [
        _value(),
        _value(double_value=math.nan),
        _value(double_value=math.inf),
        _value(timestamp_value=timestamp_pb2.Timestamp(seconds=253_402_300_800)),
        _value(timestamp_value=timestamp_pb2.Timestamp(seconds=-62_135_596_801)),
        _value(timestamp_value=timestamp_pb2.Timestamp(nanos=-1)),
        _value(timestamp_value=timestamp_pb2.Timestamp(nanos=1_000_000_000)),
    ],
    ids=["unset", "nan", "infinity", "year 10000", "year 0", "negative nanos", "nanos over a second"],
)
def test_a_received_value_that_means_nothing_is_a_violation(value: item_pb2.Value) -> None:
    message = item_pb2.MemoryItem(content="x")
    message.metadata["k"].list_value.values.add().bool_value = True
    message.metadata["k"].list_value.values.append(value)
    for decode in (decode_write, decode_item):
        violations: dict[str, str] = {}
        assert decode(message, "items[7]", violations) is None
        assert list(violations) == ["items[7].metadata.k[1]"]


def test_the_ends_of_the_calendar_are_received_exactly() -> None:
    for seconds, nanos, time in (
        (-62_135_596_800, 0, datetime(1, 1, 1, tzinfo=UTC)),
        (253_402_300_799, 999_999_999, datetime.max.replace(tzinfo=UTC)),
        (-1, 999_999_000, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ):
        message = item_pb2.MemoryItem(content="x")
        message.attributes.event_time.seconds, message.attributes.event_time.nanos = seconds, nanos
        received = decode_item(message, "item", {})
        assert received is not None
        assert received.attributes is not None
        assert received.attributes.event_time == time


def test_a_write_ignores_output_only_fields_even_where_they_are_wrong() -> None:
    message = item_pb2.MemoryItem(content="x", source="someone", score=math.nan)
    message.attributes.status = 99  # type: ignore[assignment]
    message.attributes.create_time.seconds = 2**62
    message.attributes.revision = 7
    violations: dict[str, str] = {}
    assert decode_write(message, "item", violations) == MemoryItem("x", "", attributes=MemoryAttributes())
    assert violations == {}


def test_an_unknown_visibility_is_refused_in_a_write_and_bearable_in_a_read() -> None:
    message = item_pb2.MemoryItem(content="x")
    message.attributes.visibility = 99  # type: ignore[assignment]
    violations: dict[str, str] = {}
    assert decode_write(message, "item", violations) is None
    assert list(violations) == ["item.attributes.visibility"]
    read = decode_item(message, "item", {})
    assert read is not None
    assert read.attributes == MemoryAttributes()


def test_a_scope_travels_and_its_empty_parts_are_unset() -> None:
    assert decode_scope(encode_scope(Scope("Acme / ..", "日本"))) == Scope("Acme / ..", "日本")
    assert decode_scope(item_pb2.Scope()) == Scope(None, None)
    with pytest.raises(InvalidField) as caught:
        encode_scope(Scope("\ud800", "d"))
    assert list(caught.value.violations) == ["scope.org_id"]
