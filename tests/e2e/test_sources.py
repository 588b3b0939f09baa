"""A server over several sources: fan-out, the split of a write, and what happens when one is down."""

from __future__ import annotations

import grpc
import pytest
from calls import SCOPE, item

from recalld.v1 import error_reason_pb2, memory_service_pb2


def test_a_source_that_is_down_shows_as_failed_while_the_others_commit(start, dial):
    upstream = start(data=None)
    front = start(
        config=f'[[sources]]\ntype = "remote"\nname = "other"\ntarget = "{upstream.target}"\ntimeout = 2.0\n',
        data=upstream.log.parent / "front",
    )
    client = dial(front)
    outcome = client.write(item("both have it", "a"))
    assert list(outcome.accepted) == ["memory", "other"]
    hits, _ = dial(upstream).query("both have it")
    assert [hit.item.id for hit in hits] == ["a"]

    upstream.kill()
    outcome = client.write(item("only one has it", "b"))
    assert list(outcome.accepted) == ["memory"]
    (failure,) = outcome.failed
    assert failure.source == "other"
    assert failure.error.reason == error_reason_pb2.ERROR_REASON_SOURCE_UNAVAILABLE
    assert failure.error.retryable
    hits, summary = client.query("only one has it")
    assert hits[0].item.id == "b"
    assert [each.component for each in summary.degradations] == ["other"]


def test_files_are_read_and_their_writes_refused(start, dial, tmp_path):
    handbook = tmp_path / "handbook"
    (handbook / "travel").mkdir(parents=True)
    (handbook / "travel" / "trains.md").write_text("Book trains a week ahead; ferries are refunded.")
    client = dial(start(config=f'[[sources]]\ntype = "files"\nname = "handbook"\npath = "{handbook}"\n'))
    outcome = client.write(item("Maya avoids ferries.", "m"))
    assert list(outcome.accepted) == ["memory"]
    assert list(outcome.refused) == ["handbook"]
    hits, summary = client.query("ferries", k=5)
    assert {hit.item.source for hit in hits} == {"memory", "handbook"}
    assert not summary.degradations
    hits, _ = client.query("ferries", sources=["handbook"])
    assert [hit.item.content for hit in hits] == ["Book trains a week ahead; ferries are refunded."]


@pytest.mark.parametrize("asked", [[], ["handbook"]], ids=["among others", "alone"])
def test_files_whose_directory_has_vanished_are_told_to_both_sides(start, dial, tmp_path, asked):
    (tmp_path / "handbook").mkdir()
    server = start(config=f'[[sources]]\ntype = "files"\nname = "handbook"\npath = "{tmp_path}/handbook"\n')
    (tmp_path / "handbook").rmdir()
    sentence = "source 'handbook': the directory of its files is not there"
    if asked:
        with pytest.raises(grpc.RpcError) as caught:
            dial(server).query("ferries", sources=asked)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == sentence
    else:
        _, summary = dial(server).query("ferries")
        assert [each.message for each in summary.degradations] == [sentence]
    server.stop()
    assert f"{tmp_path}/handbook" in server.logged()


@pytest.mark.parametrize(("policy", "bucket"), [("refuse", "failed"), ("ignore", "refused")])
def test_read_only_by_policy(start, dial, policy, bucket):
    client = dial(start(config=f'[[sources]]\ntype = "lancedb"\nname = "registry"\nread_only = "{policy}"\n'))
    outcome = client.write(item("a fact", "f"))
    assert list(outcome.accepted) == ["memory"]
    if bucket == "refused":
        assert list(outcome.refused) == ["registry"]
    else:
        assert [each.source for each in outcome.failed] == ["registry"]
        assert outcome.failed[0].error.reason == error_reason_pb2.ERROR_REASON_SOURCE_READ_ONLY
    hits, _ = client.query("a fact", sources=["registry"])
    assert not hits
    with pytest.raises(grpc.RpcError) as failure:
        client.memory.Delete(memory_service_pb2.DeleteRequest(scope=SCOPE, ids=["f"], source="registry"))
    assert failure.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_an_unknown_source_is_named(start, dial):
    client = dial(start())
    with pytest.raises(grpc.RpcError) as failure:
        client.query("x", sources=["nowhere"])
    assert failure.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "nowhere" in failure.value.details()
