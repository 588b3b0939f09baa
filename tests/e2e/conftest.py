"""A real server in a process of its own, over real sockets."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from calls import Client
from running import Running

from recalld.v1 import item_pb2

READY = "recalld ready on "


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers; `start(*flags, data=..., config=..., listen=...)`. All are ended after the test."""
    with _servers(tmp_path) as begin:
        yield begin


@contextlib.contextmanager
def _servers(tmp_path: Path) -> Iterator[Start]:
    running: list[Running] = []

    def begin(*flags: str, data: Path | None = None, config: str = "", listen: str = "127.0.0.1:0") -> Running:
        number = len(running)
        command = [sys.executable, "-m", "recalld_server", "serve", "--listen", listen, *flags]
        command += ["--data", str(data or tmp_path / "data")]
        if config:
            file = tmp_path / f"recalld-{number}.toml"
            file.write_text(config, "utf-8")
            command += ["--config", str(file)]
        log = tmp_path / f"server-{number}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"no ready line: {line!r}; log: {log.read_text('utf-8')}"
        running.append(Running(process, line.removeprefix(READY).strip(), log))
        return running[-1]

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


Dial = Callable[[Running], Client]


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Opens clients of servers and closes them after the test."""
    clients: list[Client] = []

    def connect(server: Running) -> Client:
        clients.append(Client(grpc.insecure_channel(server.target)))
        return clients[-1]

    yield connect
    for client in clients:
        client.channel.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that many tests use, each in a scope of its own."""
    with _servers(tmp_path_factory.mktemp("shared")) as begin:
        yield begin()


@pytest.fixture
def client(shared: Running, request: pytest.FixtureRequest) -> Iterator[Client]:
    """The shared server in a scope that only this test uses."""
    scope = item_pb2.Scope(org_id=request.node.name[:128], domain_id="e2e")
    with grpc.insecure_channel(shared.target) as channel:
        yield Client(channel, scope)
