"""What an acknowledgement is worth: kill -9, restart, and two servers on one data directory."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import grpc
import pytest
from calls import SCOPE, Client, item
from running import Running

from recalld.v1 import memory_service_pb2


def test_nothing_acknowledged_is_lost_by_kill_9(start, dial, tmp_path):
    data = tmp_path / "data"
    acknowledged: list[int] = []
    for _ in range(3):
        server = start(data=data)
        before = len(acknowledged)
        with pytest.raises(grpc.RpcError) as failure:
            _write_until_killed(dial(server), server, acknowledged)
        assert failure.value.code() == grpc.StatusCode.UNAVAILABLE
        assert len(acknowledged) >= before + 12
    contents = [each.content for each in dial(start(data=data)).listed()]
    assert len(contents) == len(set(contents))
    assert {f"memory {number}" for number in acknowledged} <= set(contents)


def _write_until_killed(client: Client, server: Running, acknowledged: list[int]) -> None:
    first = max(acknowledged, default=0) + 100
    for response in client.memory.Write(_batches(first)):
        assert response.HasField("outcome"), response
        acknowledged.append(first + response.sequence)
        if response.sequence == 12:
            server.kill()


def _batches(first: int) -> Iterator[memory_service_pb2.WriteRequest]:
    for sequence in range(1, 200):
        number = first + sequence
        yield memory_service_pb2.WriteRequest(
            scope=SCOPE, sequence=sequence, items=[item(f"memory {number}", f"id-{number}")]
        )


def test_a_repeat_of_an_idempotency_key_answers_as_the_first_did_also_after_a_restart(start, dial, tmp_path):
    data = tmp_path / "data"
    server = start(data=data)
    client = dial(server)
    first = client.write(item("tea"), item("coffee"), idempotency_key="k1")
    assert not first.replayed
    client.write(item("milk", first.ids[0]))
    assert server.stop() == 0
    client = dial(start(data=data))
    again = client.write(item("tea"), item("coffee"), idempotency_key="k1")
    assert again.replayed
    assert list(again.ids) == list(first.ids)
    assert again.commit_token == first.commit_token
    assert sorted(each.content for each in client.listed()) == ["coffee", "milk"]


def test_two_servers_on_one_directory_leave_one_row_a_key(start, dial, tmp_path):
    data = tmp_path / "data"
    clients = [dial(start(data=data)), dial(start(data=data))]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for round in range(8):
                ids = [f"key-{round}-{at}" for at in range(4)]
                clients[number].write(*(item(f"writer {number} round {round}", each) for each in ids))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    views = [list(client.listed()) for client in clients]
    for view in views:
        assert sorted(each.id for each in view) == sorted({each.id for each in view})
        assert len(view) == 32
    assert [each.SerializeToString(deterministic=True) for each in views[0]] == [
        each.SerializeToString(deterministic=True) for each in views[1]
    ]
    revisions = [each.attributes.revision for each in views[0]]
    assert len(revisions) == len(set(revisions))


def test_a_commit_token_of_one_server_is_seen_by_the_other(start, dial, tmp_path):
    data = tmp_path / "data"
    one, two = dial(start(data=data)), dial(start(data=data))
    for number in range(3):
        outcome = one.write(item(f"kept number {number}", f"n{number}"))
        hits, _ = two.query(f"kept number {number}", min_commit_token=outcome.commit_token)
        assert f"n{number}" in {hit.item.id for hit in hits}


def test_a_foreign_directory_is_refused_and_left_as_it_is(tmp_path):

    data = tmp_path / "photos"
    data.mkdir()
    (data / "holiday.jpg").write_bytes(b"not ours")
    result = subprocess.run(
        [sys.executable, "-m", "recalld_server", "serve", "--data", str(data), "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert "recalld: error:" in result.stderr
    assert [path.name for path in data.iterdir()] == ["holiday.jpg"]
    assert (data / "holiday.jpg").read_bytes() == b"not ours"
