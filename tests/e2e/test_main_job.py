"""Write memories over gRPC, find them by words and by meaning, on a real server."""

from __future__ import annotations

import grpc
import pytest
from calls import item
from google.protobuf import field_mask_pb2

from recalld.v1 import filter_pb2, item_pb2, memory_service_pb2


def test_finds_by_words_and_by_meaning_and_says_how(client):
    outcome = client.write(
        item("Maya is allergic to peanuts.", "peanuts"),
        item("The deployment failed with ERR-4271-XK.", "error"),
        item("Jonas repaired the garden fence last weekend.", "fence"),
    )
    assert list(outcome.accepted) == ["memory"]
    assert list(outcome.ids) == ["peanuts", "error", "fence"]

    hits, summary = client.query("which food must she avoid?", explain=True)
    assert hits[0].item.id == "peanuts"
    assert hits[0].explanation.semantic_rank == 1
    assert hits[0].explanation.lexical_rank == 0
    assert not summary.degradations
    fusion = summary.fusion
    assert hits[0].item.score == pytest.approx(fusion.semantic_weight / (fusion.k + 1))

    hits, _ = client.query("ERR-4271-XK", explain=True)
    assert hits[0].item.id == "error"
    assert hits[0].explanation.lexical_rank == 1


def test_metadata_keeps_its_types_and_filters(client):
    value = item_pb2.Value
    metadata = {
        "page": value(integer_value=2**53 + 1),
        "ratio": value(double_value=1.0),
        "tags": value(list_value=item_pb2.ListValue(values=[value(string_value="a"), value(integer_value=1)])),
        "nested": value(map_value=item_pb2.MapValue(fields={"deep": value(bool_value=True)})),
        "none": value(null_value=0),
    }
    client.write(item("one", "one", metadata=metadata), item("two", "two"))
    page = filter_pb2.Comparison(
        field="metadata.page",
        operator=filter_pb2.COMPARISON_OPERATOR_GREATER,
        value=value(double_value=float(2**53)),
    )
    hits, _ = client.query("one two", where=filter_pb2.Filter(compare=page))
    assert [hit.item.id for hit in hits] == ["one"]
    assert dict(hits[0].item.metadata) == metadata


def test_update_delete_and_get(client):
    client.write(item("Maya lives in Bergen.", "home"), item("Maya likes ferries.", "ferries"))
    stub = client.memory
    updated = stub.Update(
        memory_service_pb2.UpdateRequest(
            scope=client.scope,
            item=item("Maya lives in Oslo now.", "home"),
            update_mask=field_mask_pb2.FieldMask(paths=["content"]),
        )
    ).item
    assert updated.content == "Maya lives in Oslo now."
    hits, _ = client.query("Bergen", mode=memory_service_pb2.RETRIEVAL_MODE_LEXICAL)
    assert not hits
    hits, _ = client.query("Oslo", mode=memory_service_pb2.RETRIEVAL_MODE_LEXICAL)
    assert [hit.item.id for hit in hits] == ["home"]

    deleted = stub.Delete(memory_service_pb2.DeleteRequest(scope=client.scope, ids=["ferries", "unknown"]))
    assert deleted.deleted_count == 1
    got = stub.BatchGet(memory_service_pb2.BatchGetRequest(scope=client.scope, ids=["ferries", "home"]))
    assert [each.id for each in got.items] == ["home"]
    assert list(got.missing_ids) == ["ferries"]


def test_scopes_are_apart(client):
    names = [("Acme", "x"), ("acme", "x"), ("..", "x"), ("a/b", "x"), ("a", "b/x"), ("o" * 128, "d" * 128)]
    names += [("\u00e9", "x"), ("e\u0301", "x")]
    scopes = [item_pb2.Scope(org_id=org, domain_id=domain) for org, domain in names]
    for number, scope in enumerate(scopes):
        client.write(item(f"the secret of tenant {number}", "same"), scope=scope)
    for number, scope in enumerate(scopes):
        hits, _ = client.query("secret of tenant", scope=scope)
        assert [hit.item.content for hit in hits] == [f"the secret of tenant {number}"]
        assert [each.content for each in client.listed(scope=scope)] == [f"the secret of tenant {number}"]


def test_an_empty_query_lists_the_newest(client):
    for number in range(3):
        client.write(item(f"memory {number}", f"m{number}"))
    client.write(item("memory 0, seen again", "m0"))
    hits, _ = client.query("", k=2)
    assert [hit.item.id for hit in hits] == ["m2", "m1"]
    assert not hits[0].item.HasField("score")


def test_a_scope_never_written_answers_empty(client):
    hits, summary = client.query("anything")
    assert not hits
    assert not summary.degradations
    assert list(client.listed()) == []


def test_server_info_tells_model_limits_and_sources(client):
    info = client.info()
    assert [(source.name, source.kind, source.accepts_writes) for source in info.sources] == [
        ("memory", "lancedb", True)
    ]
    assert info.embedding_model.dimensions == 384
    assert info.embedding_model.max_tokens == 256
    assert len(info.embedding_model.sha256) == 64
    assert info.limits.max_content_bytes == 65536


def test_a_private_memory_is_left_out_for_others(client):
    attributes = item_pb2.MemoryAttributes
    client.write(
        item("Maya's diary", "maya", attributes=attributes(user_id="maya")),
        item("the team's diary", "team", attributes=attributes(user_id="maya", visibility=item_pb2.VISIBILITY_ORG)),
        item("nobody's diary", "nobody"),
    )
    assert {hit.item.id for hit in client.query("diary", on_behalf_of_user_id="jonas")[0]} == {"team", "nobody"}
    assert {hit.item.id for hit in client.query("diary", on_behalf_of_user_id="maya")[0]} == {
        "maya",
        "team",
        "nobody",
    }


def test_bad_input_names_every_field_and_stores_nothing(client):
    with pytest.raises(grpc.RpcError) as failure:
        client.write(item("fine", "fine"), item("", "empty"), item("x" * 70_000, "long"))
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "items[1].content" in failure.value.details()
    assert "items[2].content" in failure.value.details()
    assert list(client.listed()) == []


def test_a_stream_s_batches_are_stored_in_the_order_in_which_they_were_sent(client):
    # Short and long texts by turns: each takes a different time to embed.
    texts = [f"number {number} " + "and so on " * (120 * (number % 2)) for number in range(40)]
    requests = [
        memory_service_pb2.WriteRequest(scope=client.scope, sequence=number, items=[item(text)])
        for number, text in enumerate(texts, 1)
    ]
    responses = list(client.memory.Write(iter(requests)))
    assert [response.sequence for response in responses] == list(range(1, 41))
    assert [each.content for each in client.listed()] == texts[::-1]
