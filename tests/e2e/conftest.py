"""A real server in a process of its own, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from calls import Client
from running import Running, Start, servers

from recalld.v1 import item_pb2


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers; `start(*flags, data=..., config=..., listen=...)`. All are ended after the test."""
    with servers(tmp_path) as begin:
        yield begin


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
    with servers(tmp_path_factory.mktemp("shared")) as begin:
        yield begin()


@pytest.fixture
def client(shared: Running, request: pytest.FixtureRequest) -> Iterator[Client]:
    """The shared server in a scope that only this test uses."""
    scope = item_pb2.Scope(org_id=request.node.name[:128], domain_id="e2e")
    with grpc.insecure_channel(shared.target) as channel:
        yield Client(channel, scope)
