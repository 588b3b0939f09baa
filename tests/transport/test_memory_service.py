"""Each RPC does its work over the wire."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from recalld import ReadOnlyMemory
from recalld.errors import RevisionMismatch, SourceUnavailable
from recalld.item import MemoryAttributes, MemoryItem
from recalld.limits import Limits
from recalld.store import UNSET, Degradation, RankFusion, RetrievalMode
from recalld.v1 import admin_service_pb2, error_reason_pb2, filter_pb2, item_pb2
from recalld.v1 import memory_service_pb2 as pb


async def test_a_written_batch_answers_its_ids_and_is_read_back_with_its_types(client, scope):
    value = item_pb2.Value
    metadata = {"page": value(integer_value=2**53 + 1), "ratio": value(double_value=1.0), "none": value(null_value=0)}
    written = item_pb2.MemoryItem(id="a", content="one", metadata=metadata)
    answer = await client.memory.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[written, {"content": "two"}]))
    assert list(answer.outcome.accepted) == ["memory"]
    assert answer.outcome.ids[0] == "a"
    assert len(answer.outcome.ids) == 2
    assert answer.outcome.commit_token
    got = await client.memory.BatchGet(pb.BatchGetRequest(scope=scope, ids=["nowhere", "a"]))
    assert list(got.missing_ids) == ["nowhere"]
    (item,) = got.items
    assert (item.content, item.source, dict(item.metadata)) == ("one", "memory", metadata)


async def test_output_only_fields_of_a_write_are_ignored(client, notebook, scope, tenant):
    attributes = item_pb2.MemoryAttributes(
        user_id="maya", status=99, revision=7, access_count=3, origin="elsewhere", embedding_truncated=True
    )
    item = item_pb2.MemoryItem(id="a", content="one", source="liar", score=9.0, attributes=attributes)
    await client.memory.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[item]))
    kept = notebook.items[tenant, "a"]
    assert (kept.source, kept.score, kept.attributes) == ("memory", None, MemoryAttributes(user_id="maya"))


async def test_every_source_of_a_write_is_in_exactly_one_part_of_the_split(start, new_notebook, scope):
    down = new_notebook("down", error=SourceUnavailable("cannot be reached", details={"source": "down"}))
    broken = new_notebook("broken", error=RuntimeError("secret inside"))
    ignoring = ReadOnlyMemory(new_notebook("archive"), on_write="ignore")
    client = await start(new_notebook(), down, broken, ignoring)
    outcome = (await client.memory.BatchWrite(pb.BatchWriteRequest(scope=scope, items=[{"content": "one"}]))).outcome
    assert (list(outcome.accepted), list(outcome.refused)) == (["memory"], ["archive"])
    errors = {each.source: each.error for each in outcome.failed}
    assert errors.keys() == {"down", "broken"}
    assert (errors["down"].code, errors["down"].retryable) == (14, True)
    assert errors["down"].reason == error_reason_pb2.ERROR_REASON_SOURCE_UNAVAILABLE
    assert errors["broken"].reason == error_reason_pb2.ERROR_REASON_INTERNAL
    assert "secret" not in errors["broken"].message


async def test_a_query_streams_hits_and_closes_with_a_summary(client, notebook, scope, tenant, query):
    notebook.add(tenant, *(MemoryItem(f"note {number}", "", id=f"n{number}") for number in range(5)))
    notebook.degradations = [Degradation("memory/semantic", "DEADLINE_EXCEEDED", "was late")]
    hits, summary = await query(client, scope=scope, query="note", k=3)
    assert [hit.item.id for hit in hits] == ["n0", "n1", "n2"]
    assert (hits[0].item.source, hits[0].item.score) == ("memory", 1.0)
    assert not any(hit.HasField("explanation") for hit in hits)
    (degradation,) = summary.degradations
    assert (degradation.component, degradation.message) == ("memory/semantic", "was late")
    assert degradation.reason == error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED
    assert summary.elapsed.ToNanoseconds() > 0
    assert summary.commit_token
    assert (summary.fusion.k, summary.fusion.lexical_weight, summary.fusion.semantic_weight) == (10, 0.25, 0.75)


async def test_hits_are_explained_when_asked(client, notebook, scope, tenant, query):
    notebook.add(tenant, MemoryItem("note", "", id="a"))
    ((hit,), _) = await query(client, scope=scope, query="note", explain=True)
    assert (hit.explanation.lexical_rank, hit.explanation.lexical_score) == (1, 2.0)
    assert hit.explanation.semantic_rank == 0
    assert not hit.explanation.HasField("semantic_score")


async def test_a_query_reaches_the_source_as_it_was_asked(client, notebook, scope, query):
    await query(client, scope=scope, query="tea")
    await query(
        client,
        scope=scope,
        query="tea",
        k=7,
        mode=pb.RETRIEVAL_MODE_SEMANTIC,
        candidates=50,
        fusion=pb.RankFusion(k=3, semantic_weight=0.0),
        on_behalf_of_user_id="maya",
        where=filter_pb2.Filter(exists="user_id"),
    )
    (plain, nobody), (detailed, maya) = notebook.searches
    assert (plain.k, plain.mode, plain.candidates, plain.where) == (10, RetrievalMode.HYBRID, None, None)
    assert plain.fusion == RankFusion()
    assert (nobody.user_id, nobody.deadline) == (None, None)
    assert (detailed.k, detailed.mode, detailed.candidates) == (7, RetrievalMode.SEMANTIC, 50)
    assert detailed.fusion == RankFusion(k=3, semantic_weight=0.0)
    assert maya.user_id == "maya"
    assert maya.request_id
    assert detailed.where is not None


async def test_large_hits_take_more_frames(client, notebook, scope, tenant, query):
    notebook.add(tenant, *(MemoryItem("x" * 60_000, "", id=str(number)) for number in range(100)))
    frames = [f async for f in client.memory.Query(pb.QueryRequest(scope=scope, query="x", k=100))]
    assert len(frames) > 2
    assert max(frame.ByteSize() for frame in frames) < 4 * 1024 * 1024
    hits, _ = await query(client, scope=scope, query="x", k=100)
    assert [hit.item.id for hit in hits] == [str(number) for number in range(100)]


async def test_more_items_than_a_message_holds_cannot_be_got_at_once(client, notebook, scope, tenant, fails):
    ids = [str(number) for number in range(100)]
    notebook.add(tenant, *(MemoryItem("x" * 60_000, "", id=each) for each in ids))
    fault = await fails(client.memory.BatchGet(pb.BatchGetRequest(scope=scope, ids=ids)))
    assert fault.reason == "INVALID_FIELD"
    assert "ask for fewer" in fault.violations["ids"]
    got = await client.memory.BatchGet(pb.BatchGetRequest(scope=scope, ids=ids[:50]))
    assert len(got.items) == 50


async def test_update_changes_what_the_mask_names(client, notebook, scope, tenant):
    notebook.add(tenant, MemoryItem("old", "", id="a"))
    answer = await client.memory.Update(
        pb.UpdateRequest(
            scope=scope,
            item=item_pb2.MemoryItem(id="a", content="new"),
            update_mask=FieldMask(paths=["content", "metadata.a\\.b", "attributes.importance", "content"]),
        )
    )
    assert answer.item.content == "new"
    assert answer.commit_token
    assert notebook.changes == [
        {"content": "new", "metadata_changes": {"a.b": UNSET}, "attributes": {"importance": None}}
    ]


async def test_the_whole_metadata_in_a_mask_stands_for_each_key(client, notebook, scope, tenant):
    notebook.add(tenant, MemoryItem("old", "", id="a"))
    mask = FieldMask(paths=["metadata.a", "metadata", "attributes.user_id"])
    await client.memory.Update(pb.UpdateRequest(scope=scope, item={"id": "a"}, update_mask=mask))
    assert notebook.changes == [{"metadata": {}, "attributes": {"user_id": ""}}]


async def test_update_tells_what_is_not_there_and_what_changed_meanwhile(client, notebook, scope, fails):
    request = pb.UpdateRequest(scope=scope, item={"id": "a", "content": "x"}, update_mask=FieldMask(paths=["content"]))
    fault = await fails(client.memory.Update(request))
    assert (fault.code.name, fault.reason, fault.metadata) == ("NOT_FOUND", "ITEM_NOT_FOUND", {"id": "a"})
    details = {"id": "a", "expectedRevision": "1", "actualRevision": "2"}
    notebook.error = RevisionMismatch("changed", details=details)
    fault = await fails(client.memory.Update(request))
    assert (fault.code.name, fault.reason, fault.metadata) == ("ABORTED", "REVISION_MISMATCH", details)


async def test_delete_by_id_and_by_filter(client, notebook, scope, tenant):
    notebook.add(tenant, *(MemoryItem("x", "", id=each, metadata={"n": each}) for each in "abcd"))
    answer = await client.memory.Delete(pb.DeleteRequest(scope=scope, ids=["a", "nowhere"]))
    assert answer.deleted_count == 1
    where = filter_pb2.Filter(compare={"field": "metadata.n", "value": {"string_value": "b"}})
    answer = await client.memory.Delete(pb.DeleteRequest(scope=scope, where=where, dry_run=True))
    assert (answer.deleted_count, len(notebook.items)) == (1, 3)
    answer = await client.memory.Delete(pb.DeleteRequest(scope=scope, where=where))
    assert (answer.deleted_count, len(notebook.items)) == (1, 2)
    assert answer.commit_token


async def test_server_info_tells_limits_sources_model_and_defaults(client):
    info = await client.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
    assert (info.version, info.name) == ("1.2.3", "recalld")
    assert [(each.name, each.kind, each.accepts_writes) for each in info.sources] == [("memory", "notebook", True)]
    model = info.embedding_model
    assert (model.name, model.dimensions, model.sha256, model.max_tokens) == ("tiny", 8, "ab" * 32, 16)
    assert {field.name: value for field, value in info.limits.ListFields()} == {
        field.name: getattr(Limits(), field.name) for field in info.limits.DESCRIPTOR.fields
    }
    assert (info.query_defaults.rank_fusion_k, info.query_defaults.candidates) == (10, 40)


@pytest.mark.parametrize(
    ("rpc", "request_class", "fields"),
    [
        ("BatchGet", pb.BatchGetRequest, {"ids": ["a"], "source": "nowhere"}),
        ("List", pb.ListRequest, {"source": "nowhere"}),
        ("Delete", pb.DeleteRequest, {"ids": ["a"], "source": "nowhere"}),
        ("BatchWrite", pb.BatchWriteRequest, {"items": [{"content": "x"}], "sources": ["memory", "nowhere"]}),
    ],
)
async def test_an_unknown_source_is_named(client, scope, fails, rpc, request_class, fields):
    fault = await fails(getattr(client.memory, rpc)(request_class(scope=scope, **fields)))
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", "UNKNOWN_SOURCE")
    assert fault.metadata == {"source": "nowhere"}
