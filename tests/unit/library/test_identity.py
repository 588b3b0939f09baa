"""Keys that a retry meets again, and fingerprints that tell one batch from another."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from recalld.identity import assign_ids, compute_fingerprint, fingerprints_differ
from recalld.item import MemoryAttributes, MemoryItem, Visibility
from recalld.scope import Scope

SCOPE = Scope("acme", "support")
ITEM = MemoryItem("tea", "me", metadata={"a": 1, "b": [True, None]}, id="x")


def test_an_id_of_the_caller_stands():
    assert [item.id for item in assign_ids([ITEM], scope=SCOPE, idempotency_key="k")] == ["x"]


def test_a_retry_meets_the_same_keys_and_another_scope_key_or_place_does_not():
    items = [MemoryItem("tea", "me"), MemoryItem("tea", "me")]

    def ids(scope: Scope, key: str) -> list[str | None]:
        return [item.id for item in assign_ids(items, scope=scope, idempotency_key=key)]

    assert ids(SCOPE, "k") == ids(SCOPE, "k")
    every = [*ids(SCOPE, "k"), *ids(SCOPE, "l"), *ids(Scope("acmes", "upport"), "k"), *ids(Scope("acme", "x"), "k")]
    assert len(set(every)) == len(every)


def test_without_a_key_every_id_is_fresh():
    items = [MemoryItem("tea", "me")] * 3
    ids = [item.id for _ in range(2) for item in assign_ids(items, scope=SCOPE, idempotency_key="")]
    assert len(set(ids)) == 6


def test_the_order_of_map_entries_and_output_only_fields_do_not_matter():
    other = replace(ITEM, metadata={"b": [True, None], "a": 1}, source="you", score=3.0)
    seen = MemoryAttributes(revision=9, access_count=4, create_time=datetime.now(UTC), origin="memory")
    assert (
        compute_fingerprint([ITEM])
        == compute_fingerprint([other])
        == compute_fingerprint([replace(ITEM, attributes=seen)])
    )


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
    assert compute_fingerprint([ITEM]) != compute_fingerprint([other])


def test_a_batch_is_not_its_items_in_another_order():
    second = replace(ITEM, id="y")
    assert compute_fingerprint([ITEM, second]) != compute_fingerprint([second, ITEM])


def test_what_is_unset_leaves_no_trace_so_that_a_new_attribute_changes_no_fingerprint(monkeypatch: pytest.MonkeyPatch):
    plain = replace(ITEM, attributes=MemoryAttributes(importance=0.5))
    before = compute_fingerprint([plain])
    monkeypatch.setattr("recalld.identity.WRITABLE_ATTRIBUTES", ("importance", "agent_id"))
    assert compute_fingerprint([plain]) == before


def test_only_fingerprints_of_one_making_are_compared():
    one = compute_fingerprint([ITEM])
    assert one.startswith("1:")
    assert not fingerprints_differ(one, one)
    assert fingerprints_differ(one, compute_fingerprint([replace(ITEM, content="coffee")]))
    assert not fingerprints_differ(one, "0:made otherwise")
