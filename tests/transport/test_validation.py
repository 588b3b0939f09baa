"""Every documented limit, at its edge and one past it; every violation of a request at once."""

from __future__ import annotations

import math

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from recalld.item import MemoryItem
from recalld.limits import Limits
from recalld.v1 import filter_pb2, item_pb2
from recalld.v1 import memory_service_pb2 as pb

LIMITS = Limits(max_batch_items=5)
Value = item_pb2.Value
Attributes = item_pb2.MemoryAttributes
KIB = "x" * 1024


@pytest.fixture
async def client(start):
    return await start(limits=LIMITS)


async def call(client, request):
    """Sends a request to the RPC that it belongs to."""
    rpc = getattr(client.memory, type(request).__name__.removesuffix("Request"))(request)
    return [frame async for frame in rpc] if isinstance(request, pb.QueryRequest) else await rpc


def nested(levels: int, *, as_map: bool) -> item_pb2.Value:
    inner = Value(bool_value=True)
    for _ in range(levels - 1):
        if as_map:
            inner = Value(map_value=item_pb2.MapValue(fields={"k": inner}))
        else:
            inner = Value(list_value=item_pb2.ListValue(values=[inner]))
    return inner


def item(**fields):
    return item_pb2.MemoryItem(**{"content": "x", **fields})


def metadata_of(size: int) -> dict[str, item_pb2.Value]:
    """Metadata that takes exactly so many bytes on the wire."""
    fields = {"k": Value(string_value="x" * (size - 20))}
    fields["k"].string_value += "x" * (size - item_pb2.MapValue(fields=fields).ByteSize())
    assert item_pb2.MapValue(fields=fields).ByteSize() == size
    return fields


WRITES = {
    "items[0].content": (
        [item(content="x" * 65_536), item(content="é" * 32_768), item(content=" "), item(content="\x00")],
        [item(content=""), item(content="x" * 65_537), item(content="é" * 32_768 + "x")],
    ),
    "items[0].id": (
        [item(id="x" * 256), item(id="a/b\n'; DROP TABLE x --"), item(id="é" * 128)],
        [item(id="x" * 257), item(id="é" * 128 + "x")],
    ),
    "items[0].attributes.importance": (
        [item(attributes=Attributes(importance=0)), item(attributes=Attributes(importance=1))],
        [item(attributes=Attributes(importance=bad)) for bad in (-0.001, 1.001, math.nan, math.inf)],
    ),
    "items[0].attributes.confidence": (
        [item(attributes=Attributes(confidence=0)), item(attributes=Attributes(confidence=1))],
        [item(attributes=Attributes(confidence=bad)) for bad in (-0.001, 1.001, math.nan, -math.inf)],
    ),
    "items[0].attributes.visibility": (
        [item(attributes=Attributes(visibility=good)) for good in (0, 1, 2)],
        [item(attributes=Attributes(visibility=bad)) for bad in (3, -1)],
    ),
    "items[0].attributes.event_time": (
        [item(attributes=Attributes(event_time=Timestamp(seconds=good))) for good in (-62135596800, 253402300799)],
        [
            item(attributes=Attributes(event_time=bad))
            for bad in (
                Timestamp(seconds=-62135596801),
                Timestamp(seconds=253402300800),
                Timestamp(nanos=-1),
                Timestamp(nanos=1_000_000_000),
            )
        ],
    ),
    "items[0].metadata": (
        [item(metadata=metadata_of(65_536))],
        [item(metadata=metadata_of(65_537)), item(metadata={"k" * 66_000: Value(bool_value=True)})],
    ),
    "items[0].metadata.k": (
        [item(metadata={"k": Value(double_value=-0.0)}), item(metadata={"k": Value(integer_value=-(2**63))})],
        [
            item(metadata={"k": bad})
            for bad in (
                Value(),
                Value(double_value=math.nan),
                Value(double_value=math.inf),
                Value(timestamp_value=Timestamp(seconds=2**40)),
            )
        ],
    ),
    "items[0].metadata.k" + "[0]" * 16: (
        [item(metadata={"k": nested(16, as_map=False)})],
        [item(metadata={"k": nested(17, as_map=False)})],
    ),
    "items[0].metadata.k" + ".k" * 16: (
        [item(metadata={"k": nested(16, as_map=True)})],
        [item(metadata={"k": nested(17, as_map=True)})],
    ),
} | {
    f"items[0].attributes.{name}": (
        [item(attributes=Attributes(**{name: "x" * 256}))],
        [item(attributes=Attributes(**{name: "x" * 257}))],
    )
    for name in ("memory_type", "namespace", "user_id", "session_id", "agent_id", "run_id", "supersedes_id")
}


@pytest.mark.parametrize(("path", "item"), [(path, good) for path, (goods, _) in WRITES.items() for good in goods])
async def test_an_item_at_a_limit_is_stored(client, notebook, scope, path, item):
    await call(client, pb.BatchWriteRequest(scope=scope, items=[item]))
    assert len(notebook.batches) == 1


@pytest.mark.parametrize(("path", "item"), [(path, bad) for path, (_, bads) in WRITES.items() for bad in bads])
async def test_an_item_past_a_limit_is_named_and_nothing_is_stored(client, notebook, scope, fails, path, item):
    fault = await fails(call(client, pb.BatchWriteRequest(scope=scope, items=[item, {"content": "fine"}])))
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert list(fault.violations) == [path]
    assert path in fault.message
    assert not notebook.batches


def where(**fields):
    return filter_pb2.Filter(**fields)


def compare(field, value=None, **more):
    return where(compare=filter_pb2.Comparison(field=field, value=value or Value(string_value="x"), **more))


def deep(levels):
    made = where(exists="id")
    for _ in range(levels - 1):
        made = where(**{"not": made})
    return made


# Request, then the reason and the paths of its violations.
BAD = [
    (pb.QueryRequest(query="x" * 8193), "INVALID_FIELD", ["query"]),
    (pb.QueryRequest(k=-1), "INVALID_FIELD", ["k"]),
    (pb.QueryRequest(k=1001), "INVALID_FIELD", ["k"]),
    (pb.QueryRequest(candidates=-1), "INVALID_FIELD", ["candidates"]),
    (pb.QueryRequest(candidates=10_001), "INVALID_FIELD", ["candidates"]),
    (pb.QueryRequest(mode=17), "INVALID_FIELD", ["mode"]),
    (pb.QueryRequest(fusion=pb.RankFusion(k=-1)), "INVALID_FIELD", ["fusion.k"]),
    (pb.QueryRequest(fusion=pb.RankFusion(k=10_001)), "INVALID_FIELD", ["fusion.k"]),
    (pb.QueryRequest(fusion=pb.RankFusion(lexical_weight=-1)), "INVALID_FIELD", ["fusion.lexical_weight"]),
    (pb.QueryRequest(fusion=pb.RankFusion(semantic_weight=math.nan)), "INVALID_FIELD", ["fusion.semantic_weight"]),
    (pb.QueryRequest(fusion=pb.RankFusion(semantic_weight=1e7)), "INVALID_FIELD", ["fusion.semantic_weight"]),
    (pb.QueryRequest(fusion=pb.RankFusion(lexical_weight=0, semantic_weight=0)), "INVALID_FIELD", ["fusion"]),
    (pb.QueryRequest(on_behalf_of_user_id="x" * 257), "INVALID_FIELD", ["on_behalf_of_user_id"]),
    (pb.QueryRequest(min_commit_token="x" * 4097), "INVALID_FIELD", ["min_commit_token"]),
    (pb.QueryRequest(min_commit_token="?" * 9), "INVALID_FIELD", ["min_commit_token"]),
    (pb.QueryRequest(sources=["memory", "memory"]), "INVALID_FIELD", ["sources[1]"]),
    (pb.QueryRequest(where=compare("nonsense")), "INVALID_FILTER", ["where.compare.field"]),
    (pb.QueryRequest(where=compare("metadata")), "INVALID_FILTER", ["where.compare.field"]),
    (pb.QueryRequest(where=compare("id", operator=99)), "INVALID_FILTER", ["where.compare.operator"]),
    (pb.QueryRequest(where=compare("id", Value(double_value=math.nan))), "INVALID_FILTER", ["where.compare.value"]),
    (pb.QueryRequest(where=where(all=filter_pb2.FilterList())), "INVALID_FILTER", ["where.all.filters"]),
    (pb.QueryRequest(where=deep(17)), "INVALID_FILTER", ["where" + ".not" * 16]),
    (
        pb.QueryRequest(where=where(**{"in": filter_pb2.Membership(field="id", values=[Value(null_value=0)] * 1001)})),
        "INVALID_FILTER",
        ["where.in.values"],
    ),
    (pb.QueryRequest(where=compare("status", Value(string_value="Active"))), "INVALID_FILTER", ["where.compare.value"]),
    (pb.ListRequest(where=compare("create_time")), "INVALID_FILTER", ["where.compare.value"]),
    (pb.ListRequest(where=compare("metadata.a\\")), "INVALID_FILTER", ["where.compare.field"]),
    (pb.BatchWriteRequest(), "INVALID_FIELD", ["items"]),
    (pb.BatchWriteRequest(items=[item()] * 6), "INVALID_FIELD", ["items"]),
    (pb.BatchWriteRequest(items=[item(id="a"), item(), item(id="a")]), "INVALID_FIELD", ["items[2].id"]),
    (pb.BatchWriteRequest(items=[item()], idempotency_key="x" * 257), "INVALID_FIELD", ["idempotency_key"]),
    (pb.BatchWriteRequest(items=[item()], sources=["a", "b", "a"]), "INVALID_FIELD", ["sources[2]"]),
    (pb.BatchGetRequest(), "INVALID_FIELD", ["ids"]),
    (pb.BatchGetRequest(ids=["a"] * 1001), "INVALID_FIELD", ["ids"]),
    (pb.BatchGetRequest(ids=["a", "", "x" * 257]), "INVALID_FIELD", ["ids[1]", "ids[2]"]),
    (pb.ListRequest(page_size=-1), "INVALID_FIELD", ["page_size"]),
    (pb.ListRequest(where=where(exists="nonsense")), "INVALID_FILTER", ["where.exists"]),
    (pb.UpdateRequest(), "INVALID_FIELD", ["item.id", "update_mask"]),
    (pb.UpdateRequest(item=item(id="a"), if_revision=-1), "INVALID_FIELD", ["if_revision", "update_mask"]),
    (pb.DeleteRequest(), "INVALID_FIELD", ["ids"]),
    (pb.DeleteRequest(ids=["a"] * 1001), "INVALID_FIELD", ["ids"]),
    (pb.DeleteRequest(ids=[""]), "INVALID_FIELD", ["ids[0]"]),
    (pb.DeleteRequest(ids=["a"], where=where(exists="id")), "INVALID_FIELD", ["where"]),
    (pb.DeleteRequest(where=where()), "INVALID_FIELD", ["where"]),
    (pb.DeleteRequest(where=where(exists="nonsense")), "INVALID_FILTER", ["where.exists"]),
]


@pytest.mark.parametrize(("request_", "reason", "paths"), BAD)
async def test_a_request_past_a_limit_is_refused_and_the_field_named(client, scope, fails, request_, reason, paths):
    request_.scope.CopyFrom(scope)
    fault = await fails(call(client, request_))
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", reason)
    assert list(fault.violations) == paths
    assert paths[0] in fault.message


GOOD = [
    pb.QueryRequest(query="x" * 8192, k=1000, candidates=10_000),
    pb.QueryRequest(fusion=pb.RankFusion(k=10_000, lexical_weight=0, semantic_weight=1e6)),
    pb.QueryRequest(fusion=pb.RankFusion(lexical_weight=0)),
    pb.QueryRequest(on_behalf_of_user_id="x" * 256, where=where()),
    pb.QueryRequest(where=deep(16)),
    pb.BatchWriteRequest(items=[item()] * 5, idempotency_key="x" * 256),
    pb.BatchWriteRequest(items=[item(), item(), item(id="a"), item(id="A")]),
    pb.BatchGetRequest(ids=["a"] * 1000),
    pb.BatchGetRequest(ids=["x" * 256]),
    pb.ListRequest(page_size=2_000_000_000, where=where()),
    pb.DeleteRequest(ids=["a"] * 1000),
]


@pytest.mark.parametrize("request_", GOOD)
async def test_a_request_at_a_limit_is_answered(client, scope, request_):
    request_.scope.CopyFrom(scope)
    await call(client, request_)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "*",
        "id",
        "source",
        "score",
        "attributes",
        "attributes.revision",
        "attributes.status",
        "attributes.create_time",
        "attributes.nonsense",
        "attributes.user_id.x",
        "metadata.a.b",
        "metadata.a\\",
        "content.x",
        "Content",
    ],
)
async def test_a_mask_path_that_cannot_be_changed_is_named(client, notebook, scope, tenant, fails, path):
    notebook.add(tenant, MemoryItem("old", "", id="a"))
    mask = FieldMask(paths=["metadata", path])
    fault = await fails(call(client, pb.UpdateRequest(scope=scope, item=item(id="a"), update_mask=mask)))
    assert fault.reason == "INVALID_FIELD"
    assert list(fault.violations) == ["update_mask.paths[1]"]
    assert not notebook.changes


async def test_content_that_the_mask_names_must_be_there(client, scope, fails):
    request = pb.UpdateRequest(scope=scope, item={"id": "a"}, update_mask=FieldMask(paths=["content"]))
    fault = await fails(call(client, request))
    assert list(fault.violations) == ["item.content"]


async def test_more_mask_paths_than_allowed_are_refused(client, scope, fails):
    mask = FieldMask(paths=[f"metadata.k{number}" for number in range(101)])
    fault = await fails(call(client, pb.UpdateRequest(scope=scope, item={"id": "a"}, update_mask=mask)))
    assert list(fault.violations) == ["update_mask"]


SCOPED = [
    pb.QueryRequest(),
    pb.BatchWriteRequest(items=[item()]),
    pb.BatchGetRequest(ids=["a"]),
    pb.ListRequest(),
    pb.UpdateRequest(item=item(id="a"), update_mask=FieldMask(paths=["content"])),
    pb.DeleteRequest(ids=["a"]),
]


@pytest.mark.parametrize("request_", SCOPED)
@pytest.mark.parametrize(
    ("org", "domain", "reason", "paths"),
    [
        ("", "", "SCOPE_REQUIRED", ["scope.org_id", "scope.domain_id"]),
        ("a", "", "SCOPE_REQUIRED", ["scope.domain_id"]),
        ("", "a", "SCOPE_REQUIRED", ["scope.org_id"]),
        ("x" * 129, "a", "INVALID_FIELD", ["scope.org_id"]),
        ("a", "a\nb", "INVALID_FIELD", ["scope.domain_id"]),
        ("a\x00", "\x7f", "INVALID_FIELD", ["scope.org_id", "scope.domain_id"]),
    ],
)
async def test_every_rpc_wants_a_whole_and_plain_scope(client, fails, request_, org, domain, reason, paths):
    fresh = type(request_)()
    fresh.CopyFrom(request_)
    fresh.scope.CopyFrom(item_pb2.Scope(org_id=org, domain_id=domain))
    fault = await fails(call(client, fresh))
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", reason)
    assert list(fault.violations) == paths


@pytest.mark.parametrize("request_", SCOPED)
async def test_a_request_without_a_scope_is_told_so(client, fails, request_):
    fresh = type(request_)()
    fresh.CopyFrom(request_)
    fresh.ClearField("scope")
    fault = await fails(call(client, fresh))
    assert (fault.reason, list(fault.violations)) == ("SCOPE_REQUIRED", ["scope.org_id", "scope.domain_id"])
    assert "scope.org_id" in fault.message


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 128, "é" * 128, "a b", "\u0085", "😀" * 128])
async def test_hostile_scope_names_are_names(client, name):
    scope = item_pb2.Scope(org_id=name, domain_id=name)
    await call(client, pb.BatchWriteRequest(scope=scope, items=[item(id="a")]))
    got = await call(client, pb.BatchGetRequest(scope=scope, ids=["a"]))
    assert len(got.items) == 1


async def test_violations_of_fields_filter_and_scope_come_together(client, fails):
    fault = await fails(call(client, pb.QueryRequest(k=-1, where=compare("nonsense"), query="x" * 9000)))
    assert fault.reason == "SCOPE_REQUIRED"
    assert set(fault.violations) == {"scope.org_id", "scope.domain_id", "k", "query", "where.compare.field"}


async def test_every_item_of_a_batch_is_looked_at(client, scope, fails):
    items = [item(), item(content=""), item(id="x" * 300), item(metadata={"k": Value()}), item(content="x" * 70_000)]
    fault = await fails(call(client, pb.BatchWriteRequest(scope=scope, items=items)))
    assert list(fault.violations) == ["items[1].content", "items[2].id", "items[3].metadata.k", "items[4].content"]


async def test_a_repeated_id_names_both_places(client, scope, fails):
    items = [item(), item(id="a"), item(id="b"), item(id="a")]
    fault = await fails(call(client, pb.BatchWriteRequest(scope=scope, items=items)))
    assert fault.violations == {"items[3].id": "repeats items[1].id"}


async def test_thousands_of_violations_still_make_a_small_answer(client, scope, fails):
    values = item_pb2.ListValue(values=[Value()] * 15_000)
    items = [item(metadata={"k": Value(list_value=values)})] * 5
    fault = await fails(call(client, pb.BatchWriteRequest(scope=scope, items=items)))
    assert fault.reason == "INVALID_FIELD"
    assert 10 < len(fault.violations) <= 101
    assert "more violations" in fault.violations["..."]


async def test_a_message_over_the_limit_is_refused_with_details(client, scope, fails):
    items = [item(content=KIB, id=str(number)) for number in range(5000)]
    fault = await fails(call(client, pb.BatchWriteRequest(scope=scope, items=items)))
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert "max_message_bytes" in fault.message
