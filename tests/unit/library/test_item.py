from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import MemoryAttributes, MemoryItem, RecalldError, Visibility
from recalld.errors import WrongType
from recalld.frozen import FrozenDict, FrozenList, freeze
from recalld.item import assign_owner, writable_attributes

METADATA = {"page": 3, "tags": ["a", {"deep": [1]}], "map": {"x": {"y": 1}}, "pair": (1, [2]), "set": {1, 2}}


def make() -> MemoryItem:
    return MemoryItem("text", "notes", 0.5, copy.deepcopy(METADATA), id="7", attributes=MemoryAttributes(user_id="ada"))


def test_positional_order_is_content_source_score_metadata():
    item = MemoryItem("c", "vector", 0.91, {"a": 1})
    assert (item.content, item.source, item.score, item.metadata) == ("c", "vector", 0.91, {"a": 1})
    assert item.id is None
    assert item.attributes is None


@pytest.mark.parametrize("late", ["id", "attributes"])
def test_fields_after_metadata_are_keyword_only(late: str):
    with pytest.raises(TypeError):
        MemoryItem("c", "vector", 0.91, {}, "x")  # type: ignore[misc]
    assert getattr(MemoryItem("c", "s", **{late: None}), late) is None


def test_an_empty_id_counts_as_unset():
    assert MemoryItem("c", "s", id="").id is None


def test_an_item_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().content = "other"  # type: ignore[misc]


def test_metadata_is_a_copy_of_what_was_given():
    given_metadata: dict[str, Any] = {"tags": ["a"]}
    item = MemoryItem("c", "s", metadata=given_metadata)
    given_metadata["tags"].append("b")
    given_metadata["new"] = 1
    assert item.metadata == {"tags": ["a"]}


DICT_CHANGES = {
    "set": lambda d: d.__setitem__("page", 4),
    "delete": lambda d: d.__delitem__("page"),
    "update": lambda d: d.update(page=4),
    "or-update": lambda d: d.__ior__({"page": 4}),
    "setdefault": lambda d: d.setdefault("new", 1),
    "pop": lambda d: d.pop("page"),
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
}
LIST_CHANGES = {
    "set": lambda v: v.__setitem__(0, 1),
    "slice": lambda v: v.__setitem__(slice(None), []),
    "delete": lambda v: v.__delitem__(0),
    "append": lambda v: v.append(1),
    "extend": lambda v: v.extend([1]),
    "add": lambda v: v.__iadd__([1]),
    "multiply": lambda v: v.__imul__(2),
    "insert": lambda v: v.insert(0, 1),
    "pop": lambda v: v.pop(),
    "remove": lambda v: v.remove("a"),
    "reverse": lambda v: v.reverse(),
    "sort": lambda v: v.sort(),
    "clear": lambda v: v.clear(),
}


def pickled(value: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))  # noqa: S301 - our own bytes


def through(way: str, item: MemoryItem) -> MemoryItem:
    ways = {
        "as made": lambda: item,
        "copy": lambda: copy.copy(item),
        "deepcopy": lambda: copy.deepcopy(item),
        "replace": lambda: dataclasses.replace(item, score=item.score),
        **{f"pickle {p}": lambda p=p: pickled(item, p) for p in range(pickle.HIGHEST_PROTOCOL + 1)},
    }
    return ways[way]()


WAYS = [
    "as made", "copy", "deepcopy", "replace", *(f"pickle {p}" for p in range(pickle.HIGHEST_PROTOCOL + 1))
]  # fmt: skip


def refuses_all(changes: dict[str, Any], item: MemoryItem, where: Any) -> None:
    for change in changes.values():
        with pytest.raises(TypeError) as raised:
            change(where(item.metadata))
        assert isinstance(raised.value, RecalldError)
        assert item == make()


@pytest.mark.parametrize("way", WAYS)
class TestMetadataStaysFrozen:
    def test_equal(self, way: str):
        item = through(way, make())
        assert item == make()
        assert item.metadata == METADATA
        assert hash(item) == hash(make())

    @pytest.mark.parametrize("where", [lambda m: m, lambda m: m["map"]["x"], lambda m: m["tags"][1]])
    def test_every_dict(self, way: str, where: Any):
        refuses_all(DICT_CHANGES, through(way, make()), where)

    @pytest.mark.parametrize("where", [lambda m: m["tags"], lambda m: m["tags"][1]["deep"], lambda m: m["pair"][1]])
    def test_every_list(self, way: str, where: Any):
        refuses_all(LIST_CHANGES, through(way, make()), where)

    def test_sets(self, way: str):
        assert isinstance(through(way, make()).metadata["set"], frozenset)


def test_a_second_init_changes_nothing():
    item = make()
    item.metadata.__init__(page=4)  # type: ignore[misc]
    item.metadata["tags"].__init__([])
    assert item == make()


def test_copies_taken_of_metadata_are_frozen_too():
    metadata = make().metadata
    assert metadata.copy() is metadata
    assert metadata["tags"].copy() is metadata["tags"]


def test_a_plain_dict_to_change_is_one_spread_away():
    metadata = {**make().metadata, "page": 4}
    metadata["more"] = 1
    assert type(metadata) is dict


def test_metadata_is_a_dict_for_every_consumer():
    metadata = MemoryItem("c", "s", metadata={"a": [1, {"b": None}]}).metadata
    assert isinstance(metadata, dict)
    assert json.loads(json.dumps(metadata)) == {"a": [1, {"b": None}]}
    assert dataclasses.asdict(make())["metadata"]["tags"] == ["a", {"deep": [1]}]
    assert metadata | {"c": 1} == {"a": [1, {"b": None}], "c": 1}


def test_any_mapping_serves_as_metadata():
    for mapping in (OrderedDict(a=[1]), MappingProxyType({"a": [1]}), FrozenDict(a=[1]), FrozenDict({"a": [1]})):
        metadata = MemoryItem("c", "s", metadata=mapping).metadata  # type: ignore[arg-type]
        assert isinstance(metadata, FrozenDict)
        assert isinstance(metadata["a"], FrozenList)


@pytest.mark.parametrize("wrong", [None, [("a", 1)], "text", 3])
def test_metadata_that_is_no_dict_is_refused(wrong: Any):
    with pytest.raises(TypeError, match="metadata must be a dict") as raised:
        MemoryItem("c", "s", None, wrong)
    assert isinstance(raised.value, RecalldError)


def test_metadata_that_contains_itself_is_refused():
    loop: dict[str, Any] = {}
    loop["self"] = [loop]
    with pytest.raises(ValueError, match="contains itself"):
        MemoryItem("c", "s", metadata=loop)


def test_what_is_no_container_stays_the_same_object():
    marker = object()
    assert freeze(marker) is marker
    assert MemoryItem("c", "s", metadata={"big": 2**200, "m": marker}).metadata == {"big": 2**200, "m": marker}


def test_tuples_keep_their_type():
    Point = namedtuple("Point", "x y")
    frozen = freeze({"p": Point([1], 2), "t": (1, 2)})
    assert isinstance(frozen["p"], Point)
    assert isinstance(frozen["p"].x, FrozenList)
    assert frozen["t"] == (1, 2)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), values, max_size=3))
def test_freezing_keeps_values_equal_and_comes_to_rest(value: dict[str, Any]):
    frozen = freeze(value)
    assert frozen == value
    assert freeze(frozen) is frozen
    assert pickled(frozen) == value


def test_equal_items_hash_alike_whatever_their_metadata_holds():
    assert len({make(), make(), dataclasses.replace(make(), content="other")}) == 2


class TestAssignOwner:
    CONTEXT = SimpleNamespace(user_id="ada", session_id="s1", agent_id=None, run_id="r1")

    def test_what_names_nobody_is_the_contexts(self):
        (item,) = assign_owner([MemoryItem("c", "me")], self.CONTEXT)
        assert item.attributes == MemoryAttributes(user_id="ada", session_id="s1", run_id="r1")

    def test_what_is_named_stays(self):
        own = MemoryAttributes(user_id="bob", agent_id="a7", importance=0.2)
        (item,) = assign_owner([MemoryItem("c", "me", attributes=own)], self.CONTEXT)
        assert item.attributes == dataclasses.replace(own, session_id="s1", run_id="r1")

    def test_a_context_without_anybody_changes_nothing(self):
        item = MemoryItem("c", "me")
        assert list(assign_owner([item], SimpleNamespace())) == [item]

    def test_what_is_no_item_passes_for_validation_to_name_its_place(self):
        given_items: list[Any] = ["no item", MemoryItem("c", "me")]
        assert next(assign_owner(given_items, self.CONTEXT)) == "no item"

    @pytest.mark.parametrize("whole", ["text", b"bytes", MemoryItem("c", "me")])
    def test_one_thing_is_no_list_of_items(self, whole: Any):
        with pytest.raises(WrongType, match=f"not {type(whole).__name__}"):
            list(assign_owner(whole, self.CONTEXT))


def test_a_writer_sets_the_writable_attributes_and_no_other():
    time = datetime(2026, 3, 1, tzinfo=UTC)
    given_attributes = MemoryAttributes(
        user_id="ada", importance=0.2, event_time=time, revision=7, create_time=time, access_count=3, origin="x"
    )
    taken = MemoryAttributes(user_id="ada", importance=0.2, event_time=time, visibility=Visibility.PRIVATE)
    assert writable_attributes(given_attributes) == taken
    assert writable_attributes(None) == MemoryAttributes(visibility=Visibility.PRIVATE)
    assert writable_attributes(MemoryAttributes(visibility=Visibility.ORG)).visibility is Visibility.ORG


def test_a_subclass_of_a_frozen_container_stays_as_it_is():
    class Tags(FrozenList):
        pass

    tags = Tags(["a", ["b"]])
    assert freeze(tags) is tags
    assert isinstance(tags[1], FrozenList)
