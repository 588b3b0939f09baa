"""The compiled filters mean what `recalld.filters.matches` says, evaluated by LanceDB itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalld.engine import LocalMemory
from recalld.engine.ports import Embedding, ModelIdentity
from recalld.engine.visibility import active_unless_named, every, unexpired, visible_to
from recalld.errors import InvalidFilter
from recalld.filters import (
    ATTRIBUTES,
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
    matches,
)
from recalld.item import MemoryAttributes, MemoryItem, Visibility
from recalld.scope import Ctx, Scope
from recalld.store import WriteBatch
from recalld.wire import MAX_CONDITIONS, MAX_FILTER_LEVELS, encode_filter
from recalld_server.adapters.lancedb import LanceConfig, open_records
from recalld_server.adapters.lancedb.filters import compile_filter

SCOPE = Scope("acme", "filters")
NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)

#: Values that lie close together, so that generated conditions are met now and then and borders are hit.
NUMBERS = [
    0, -0.0, 1, 1.0, -1, 2, 2.5, -2.5, 0.1, 0.5, 2**53, 2**53 + 1, float(2**53), 2**53 + 2.0, 2**63 - 1, -(2**63),
    float(2**63), -float(2**63), 1e300, -1e300, 5e-324,
]  # fmt: skip
TEXTS = [
    "",
    "a",
    "A",
    "aa",
    "ab",
    "b",
    "z",
    "é",
    "e\u0301",
    "Z",
    "東京",
    "🎉",
    "\uffff",
    "' or 1=1 --",
    "a\x00b",
    "%",
    "1",
    "semantic",
]
TIMES = [NOW, NOW + timedelta(microseconds=1), datetime(1969, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
KEYS = ["a", "b", "a.b", "", "b\\", "é", "$time", "tokens"]

scalars = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.sampled_from(TIMES), st.booleans(), st.none())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=5,
)
paths = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2).map(lambda keys: Field("metadata", tuple(keys)))
attributes = st.sampled_from([*ATTRIBUTES, "id", "content"]).map(Field)
fields = paths | attributes

FITTING = {
    Kind.STRING: st.sampled_from([*TEXTS, "private", "org", "active", "default", "memory"]),
    Kind.INTEGER: st.sampled_from([*NUMBERS, *range(1, 9)]),
    Kind.DOUBLE: st.sampled_from([*NUMBERS, 0.25]),
    Kind.BOOLEAN: st.booleans(),
    Kind.TIME: st.sampled_from(TIMES),
}


def fitting(field: Field) -> st.SearchStrategy[Any]:
    """Mostly values that the field can have."""
    kind = ATTRIBUTES.get(field.name, Kind.STRING)
    return values if field.name == "metadata" else FITTING[kind] | FITTING[kind] | scalars


leaves: st.SearchStrategy[Filter] = fields.flatmap(
    lambda field: st.one_of(
        st.builds(Compare, st.just(field), st.sampled_from(Op), fitting(field)),
        st.builds(In, st.just(field), st.lists(fitting(field), max_size=4).map(tuple)),
        st.builds(Exists, st.just(field)),
        st.builds(Contains, st.just(field), fitting(field)),
    )
)
filters: st.SearchStrategy[Filter] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda members: All(tuple(members))),
        st.lists(inner, min_size=1, max_size=3).map(lambda members: AnyOf(tuple(members))),
        inner.map(Not),
    ),
    max_leaves=6,
)


def items() -> Iterator[MemoryItem]:
    """Items that hold every value at some path, and attributes set and unset."""
    rng = np.random.default_rng(3)

    def pick(pool: list[Any]) -> Any:
        return pool[rng.integers(len(pool))]

    def value(depth: int) -> Any:
        shape = rng.integers(8)
        if shape == 0 and depth:
            return [value(depth - 1) for _ in range(rng.integers(3))]
        if shape == 1 and depth:
            return {pick(KEYS): value(depth - 1) for _ in range(rng.integers(3))}
        return pick([pick(NUMBERS), pick(NUMBERS), pick(TEXTS), pick(TEXTS), pick(TIMES), bool(rng.integers(2)), None])

    pool = [
        *NUMBERS,
        *TEXTS,
        *TIMES,
        True,
        False,
        None,
        [],
        {},
        [1, "a"],
        [None],
        {"a": 1.0},
        [[1]],
        {"a": {"b": [2.5]}},
    ]
    for at in range(160):
        metadata = {"a": pool[at % len(pool)], **{pick(KEYS): value(3) for _ in range(rng.integers(4))}}
        given: dict[str, Any] = {}
        for name in ("memory_type", "namespace", "user_id", "session_id", "agent_id", "run_id", "supersedes_id"):
            if rng.integers(2):
                given[name] = pick(TEXTS)
        for name in ("importance", "confidence"):
            if rng.integers(2):
                given[name] = pick([0.0, 0.25, 0.5, 1.0, 1])
        for name in ("event_time", "expire_time"):
            if rng.integers(2):
                given[name] = pick(TIMES)
        given["visibility"] = pick(list(Visibility))
        yield MemoryItem(
            f"everywhere {pick(TEXTS)}",
            "caller",
            metadata=metadata,
            id=f"{at}{pick(TEXTS)}",
            attributes=MemoryAttributes(**given),
        )


class SameEmbedder:
    """Every text has the same vector."""

    identity = ModelIdentity("tiny", 2, "0" * 64, 16)

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        return [Embedding(np.array([1, 0], np.float32), truncated=bool(at % 2)) for at in range(len(texts))]

    async def embed_query(self, text: str) -> Embedding:
        return Embedding(np.array([1, 0], np.float32))


class Stocked:
    """A store with items, behind calls that hypothesis can make: its tests are not coroutines."""

    def __init__(self, root: Path) -> None:
        self._loop = asyncio.new_event_loop()
        config = LanceConfig(name="memory", root=root, model=SameEmbedder.identity, durability="commit")
        self._store = self.run(open_records(config))
        self._memory = LocalMemory(self._store, SameEmbedder(), clock=lambda: NOW, limits=None)
        stock = list(items())
        # In two commits, so that conditions are evaluated over more than one file.
        for half in (stock[:80], stock[80:]):
            self.run(self._memory.commit(WriteBatch(half), ctx=Ctx(SCOPE)))
        self.all = self.matching(None)

    def run(self, call: Any) -> Any:
        return self._loop.run_until_complete(call)

    def matching(self, where: Filter | None) -> dict[str, MemoryItem]:
        found = self.run(self._store.newest(SCOPE, where, limit=1000)).items
        return {item.id: item for item in found}

    def searched(self, where: Filter) -> tuple[set[str], set[str]]:
        """What the two legs find, given words and a vector that fit every item."""
        words = self.run(self._store.lexical(SCOPE, "everywhere", where, limit=1000)).candidates
        meaning = self.run(self._store.semantic(SCOPE, np.array([1, 0], np.float32), where, limit=1000))
        return {hit.id for hit in words}, {hit.id for hit in meaning}

    def close(self) -> None:
        self.run(self._memory.close())
        self._loop.close()


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stocked]:
    stocked = Stocked(tmp_path_factory.mktemp("filters") / "data")
    yield stocked
    stocked.close()


def agree(stocked: Stocked, where: Filter) -> None:
    """The store finds what `matches` says, no more and no less."""
    assert set(stocked.matching(where)) == {id for id, item in stocked.all.items() if matches(where, item)}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(where=filters)
def test_any_filter_agrees_with_its_definition(stocked: Stocked, where: Filter) -> None:
    agree(stocked, where)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(where=filters)
def test_both_legs_apply_it_too(stocked: Stocked, where: Filter) -> None:
    wanted = {id for id, item in stocked.all.items() if matches(where, item)}
    assert stocked.searched(where) == (wanted, wanted)


def test_every_operator_agrees_on_every_value(stocked: Stocked) -> None:
    field = Field("metadata", ("a",))
    for value in [
        *NUMBERS,
        *TEXTS,
        *TIMES,
        True,
        None,
        [],
        [1.0, "a"],
        [None],
        {"a": 1},
        float("inf"),
        2**70,
        -(2**70),
    ]:
        agree(stocked, Contains(field, value))
        for op in Op:
            agree(stocked, Compare(field, op, value))


def test_attributes_that_the_store_sets_agree(stocked: Stocked) -> None:
    for name, value in [
        ("revision", 7),
        ("revision", 7.5),
        ("access_count", 0),
        ("access_count", False),
        ("create_time", NOW),
    ]:
        for op in Op:
            agree(stocked, Compare(Field(name), op, value))
    for name in ATTRIBUTES:
        agree(stocked, Exists(Field(name)))
    agree(stocked, Compare(Field("origin"), Op.EQ, "memory"))
    agree(stocked, In(Field("embedding_truncated"), (True, "x")))


def n_is(n: int) -> Filter:
    return Compare(Field("metadata", ("n",)), Op.GT, n)


def nested(depth: int) -> Filter:
    where: Filter = Compare(Field("metadata", ("a",)), Op.EQ, 1)
    for at in range(depth):
        group = AnyOf if at % 2 else All
        where = group((n_is(at), where, Exists(Field("metadata", ("a",)))))
    return where


def test_large_filters_are_answered(stocked: Stocked) -> None:
    a = Field("metadata", ("a",))
    agree(stocked, In(a, (*range(500), *(f"t{n}" for n in range(500)))))
    agree(stocked, In(Field("user_id"), ("a", *(f"t{n}" for n in range(999)))))
    agree(stocked, AnyOf(tuple(Compare(a, Op.EQ, n) for n in range(3000))))
    agree(stocked, AnyOf(tuple(Compare(a, Op.GT, n * 10**6) for n in range(250))))
    agree(stocked, Contains(Field("content"), "x" * 60_000))


def test_deep_filters_are_answered(stocked: Stocked) -> None:
    agree(stocked, nested(12))
    wanted = set(stocked.matching(nested(12)))
    assert stocked.searched(nested(12)) == (wanted, wanted)
    deep: Filter = Compare(Field("metadata", ("a",)), Op.EQ, 1)
    for _ in range(101):
        deep = All((Not(deep),))
    agree(stocked, deep)


def shaped(levels: Sequence[tuple[int, int]]) -> Filter:
    """A filter within the wire's limits, from its leaves up: at each level so many copies of what is below, and so many
    leaves beside them, as far as the limits allow."""
    numbers = iter(range(10**6))
    where, size = n_is(next(numbers)), 1
    for at, (copies, leaves) in enumerate(levels[: MAX_FILTER_LEVELS - 1]):
        copies = max(1, min(copies, (MAX_CONDITIONS - 1) // size))
        leaves = max(0, min(leaves, MAX_CONDITIONS - 1 - copies * size))
        if copies * size + leaves + 1 > MAX_CONDITIONS:
            break
        members = [renumbered(where, numbers) for _ in range(copies)] + [n_is(next(numbers)) for _ in range(leaves)]
        where, size = (AnyOf if at % 2 else All)(tuple(members)), copies * size + leaves + 1
    return where


def renumbered(where: Filter, numbers: Iterator[int]) -> Filter:
    """The same shape of other conditions: equal ones would be joined."""
    match where:
        case All(filters) | AnyOf(filters):
            return type(where)(tuple(renumbered(each, numbers) for each in filters))
        case _:
            return n_is(next(numbers))


def with_the_servers_own(where: Filter) -> Filter:
    own = every(visible_to("ada"), active_unless_named(where), unexpired(NOW))
    return All((where, own))


@pytest.mark.parametrize(
    "where",
    [
        shaped([(1, MAX_CONDITIONS)]),
        shaped([(1, MAX_CONDITIONS // MAX_FILTER_LEVELS - 1)] * MAX_FILTER_LEVELS),
        shaped([(26, 0), (2, 0), *[(1, 1)] * 4, *[(1, 24)] * 7, *[(1, 1)] * 9]),
        shaped([(2, 0)] * 7),
    ],
    ids=["wide", "deep", "deepest to the parser", "tree"],
)
def test_what_the_wire_takes_is_answered(stocked: Stocked, where: Filter) -> None:
    encode_filter(where)
    where = with_the_servers_own(where)
    wanted = {id for id, item in stocked.all.items() if matches(where, item)}
    assert set(stocked.matching(where)) == wanted


@given(levels=st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 25, 26]), st.sampled_from([0, 1, 24, 60])), max_size=15))
@settings(deadline=None)
def test_no_shape_that_the_wire_takes_is_refused(levels: list[tuple[int, int]]) -> None:
    where = shaped(levels)
    encode_filter(where)
    assert compile_filter(with_the_servers_own(where), "memory")


@pytest.mark.parametrize("where", [nested(100), nested(5000), AnyOf(tuple(n_is(n) for n in range(2 * MAX_CONDITIONS)))])
def test_what_is_too_much_for_the_engine_is_refused_before_it(stocked: Stocked, where: Filter) -> None:
    with pytest.raises(InvalidFilter):
        stocked.matching(where)


@given(where=filters)
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_no_text_of_a_caller_is_in_the_sql(where: Filter) -> None:
    text = compile_filter(where, "memory")
    # Markers that the pool of texts holds and that our own SQL never does.
    assert not any(mark in text for mark in ("1=1", "--", "東", "🎉", "é", "%", "\x00", ";"))
