"""What operators rely on: grpcurl, health, settings, logs, stopping, the demo."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from calls import SCOPE, item
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recalld.v1 import memory_service_pb2

GRPCURL = Path(__file__).parents[2] / ".bin" / "grpcurl"


def grpcurl(target: str, *arguments: str) -> str:
    return subprocess.run(
        [GRPCURL, "-plaintext", *arguments[:-1], target, arguments[-1]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.mark.skipif(not GRPCURL.exists(), reason="grpcurl is not built: there was no Go when the tests were set up")
def test_grpcurl_writes_and_queries_by_reflection(shared):
    target = shared.target
    assert "recalld.v1.MemoryService" in grpcurl(target, "list")
    scope = '"scope": {"org_id": "acme", "domain_id": "support"}'
    written = grpcurl(
        target,
        "-d",
        f'{{{scope}, "items": [{{"content": "Maya is allergic to peanuts."}}]}}',
        "recalld.v1.MemoryService/BatchWrite",
    )
    assert json.loads(written)["outcome"]["accepted"] == ["memory"]
    answered = grpcurl(
        target,
        "-d",
        f'{{{scope}, "query": "what must she not eat?", "explain": true}}',
        "recalld.v1.MemoryService/Query",
    )
    assert "allergic to peanuts" in answered
    assert "semantic_rank" in answered


def test_health_answers_for_the_server_and_each_service(client):
    health = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "recalld.v1.MemoryService", "recalld.v1.AdminService"):
        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == 1


def ask_health(target: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recalld_server", "health", "--target", target, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy", "all_proxy"])
def test_a_server_on_this_machine_is_asked_without_a_proxy(shared, variable):
    asked = ask_health(shared.target, **{variable: "http://127.0.0.1:9"})
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, f"{shared.target} serves\n", "")


def test_a_health_check_that_fails_says_what_was_tried_and_why(shared, tmp_path):
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
    mute = f"127.0.0.1:{silent.getsockname()[1]}"
    said = {
        asked.stderr
        for asked in (
            ask_health("127.0.0.1:1"),
            ask_health("recalld.invalid:50051"),
            ask_health("recalld.invalid:50051", http_proxy="http://127.0.0.1:1"),
            ask_health(shared.target, "--tls-ca", str(tmp_path / "none.pem")),
            ask_health(mute, "--timeout", "1"),
        )
        if asked.returncode == 1
    }
    silent.close()
    start = "recalld: error: "
    assert said == {
        f"{start}cannot reach 127.0.0.1:1 in the clear: nothing listens there, the connection is refused\n",
        f"{start}cannot reach recalld.invalid:50051 in the clear: the name 'recalld.invalid' is not known\n",
        f"{start}cannot reach recalld.invalid:50051 in the clear, through the proxy http://127.0.0.1:1 of http_proxy: "
        "the proxy is not there, the connection is refused\n",
        f"{start}cannot read {tmp_path / 'none.pem'}: No such file or directory\n",
        f"{start}cannot reach {mute} in the clear: no answer within 1 seconds\n",
    }


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        (["--listen", "nowhere"], {}, "--listen: "),
        (["--grace", "-1", "--open-tables", "-3"], {}, "--open-tables: "),
        ([], {"RECALLD_CACHE_MIB": "much"}, "RECALLD_CACHE_MIB: "),
        (["--tls-cert", __file__], {}, "--tls-cert: "),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(flags, environment, named, tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "recalld_server", "serve", "--data", str(tmp_path / "data"), *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert named in result.stderr


def test_flags_win_over_environment_and_environment_over_the_file(tmp_path, monkeypatch):
    from recalld_server.settings import load_settings

    file = tmp_path / "recalld.toml"
    file.write_text('name = "file"\ngrace = 3.0\nlog_level = "error"\n')
    monkeypatch.setenv("RECALLD_NAME", "environment")
    monkeypatch.setenv("RECALLD_GRACE", "4")
    settings = load_settings({"name": "flag"}, file)
    assert (settings.name, settings.grace, settings.log_level) == ("flag", 4.0, "error")


def test_memories_that_were_embedded_otherwise_are_refused(start, dial, tmp_path):
    dial(server := start()).write(item("Maya is allergic to peanuts.", id="m1"))
    server.stop()
    with pytest.raises(grpc.RpcError) as caught:
        dial(start("--model-pooling", "cls")).query("peanuts")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "pooling was 'mean' and is 'cls'" in caught.value.details()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stopping_answers_what_was_taken(start, dial, tmp_path, sign):
    data = tmp_path / "data"
    server = start(data=data)
    client = dial(server)
    answered: list[str] = []
    codes: list[grpc.StatusCode] = []
    busy = threading.Event()

    def run(number: int) -> None:
        for round in range(1000):
            try:
                answered.extend(client.write(item(f"memory {number} {round}")).ids)
            except grpc.RpcError as error:
                codes.append(error.code())
                return
            busy.set()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert busy.wait(30)
    assert server.stop(sign) == 0
    for thread in threads:
        thread.join()
    assert set(codes) == {grpc.StatusCode.UNAVAILABLE}
    kept = {each.id for each in dial(start(data=data)).listed()}
    assert set(answered) <= kept


def test_an_idle_write_stream_does_not_hold_up_the_stop(start, dial):
    server = start("--grace", "30")
    release = threading.Event()

    def requests():
        yield memory_service_pb2.WriteRequest(scope=SCOPE, sequence=1, items=[item("one")])
        release.wait(60)

    stream = dial(server).memory.Write(requests())
    assert next(iter(stream)).sequence == 1
    server.process.terminate()
    assert server.process.wait(timeout=15) == 0
    release.set()
    assert stream.code() == grpc.StatusCode.UNAVAILABLE


def test_logs_are_json_lines_with_the_request_id_and_no_content(start, dial):
    server = start()
    client = dial(server)
    _, call = client.memory.BatchWrite.with_call(
        memory_service_pb2.BatchWriteRequest(scope=SCOPE, items=[item("a very private sentence")]),
        metadata=[("x-request-id", "abc-123")],
    )
    metadata = {**dict(call.initial_metadata()), **dict(call.trailing_metadata())}
    assert metadata["x-request-id"] == "abc-123"
    server.stop()
    lines = [json.loads(line) for line in server.logged().splitlines()]
    assert any(line.get("request_id") == "abc-123" for line in lines)
    assert "private sentence" not in server.logged()


def test_a_second_server_on_a_port_says_so(start, tmp_path):
    server = start()
    result = subprocess.run(
        [sys.executable, "-m", "recalld_server", "serve", "--listen", server.target, "--data", str(tmp_path / "b")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert server.target in result.stderr
    assert "Traceback" not in result.stderr


def test_the_demo_finds_what_the_questions_do_not_say():
    result = subprocess.run(
        [sys.executable, "-m", "recalld_server", "demo"], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "allergic to peanuts" in result.stdout
    assert "recalld serve" in result.stdout
