"""Keys that a retry meets again, and fingerprints that tell one batch from another."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from recalld.item import MemoryAttributes, MemoryItem, Visibility
from recalld.scope import Scope
from recalld_server.application.identity import fingerprint, keyed

SCOPE = Scope("acme", "support")
ITEM = MemoryItem("tea", "me", metadata={"a": 1, "b": [True, None]}, id="x")


def test_an_id_of_the_caller_stands():
    assert [item.id for item in keyed([ITEM], scope=SCOPE, idempotency_key="k")] == ["x"]


def test_a_retry_meets_the_same_keys_and_another_scope_key_or_place_does_not():
    items = [MemoryItem("tea", "me"), MemoryItem("tea", "me")]

    def ids(scope: Scope, key: str) -> list[str | None]:
        return [item.id for item in keyed(items, scope=scope, idempotency_key=key)]

    assert ids(SCOPE, "k") == ids(SCOPE, "k")
    every = [*ids(SCOPE, "k"), *ids(SCOPE, "l"), *ids(Scope("acmes", "upport"), "k"), *ids(Scope("acme", "x"), "k")]
    assert len(set(every)) == len(every)


def test_without_a_key_every_id_is_fresh():
    items = [MemoryItem("tea", "me")] * 3
    ids = [item.id for _ in range(2) for item in keyed(items, scope=SCOPE, idempotency_key="")]
    assert len(set(ids)) == 6


def test_the_order_of_map_entries_and_output_only_fields_do_not_matter():
    other = replace(ITEM, metadata={"b": [True, None], "a": 1}, source="you", score=3.0)
    seen = MemoryAttributes(revision=9, access_count=4, create_time=datetime.now(UTC), origin="memory")
    assert fingerprint([ITEM]) == fingerprint([other]) == fingerprint([replace(ITEM, attributes=seen)])


@pytest.mark.parametrize(
    "other",
    [
        replace(ITEM, content="coffee"),
        replace(ITEM, id="y"),
        replace(ITEM, metadata={"a": 1.0, "b": [True, None]}),
        replace(ITEM, metadata={"a": "1", "b": [True, None]}),
        replace(ITEM, metadata={"a": 1, "b": [1, None]}),
        replace(ITEM, metadata={"a": 1, "b": [True, "None"]}),
        replace(ITEM, attributes=MemoryAttributes(visibility=Visibility.ORG)),
        replace(ITEM, attributes=MemoryAttributes(importance=0.0)),
        replace(ITEM, attributes=MemoryAttributes(expire_time=datetime(2030, 1, 1, tzinfo=UTC))),
    ],
)
def test_anything_else_that_differs_makes_another_fingerprint(other):
    assert fingerprint([ITEM]) != fingerprint([other])


def test_a_batch_is_not_its_items_in_another_order():
    second = replace(ITEM, id="y")
    assert fingerprint([ITEM, second]) != fingerprint([second, ITEM])
