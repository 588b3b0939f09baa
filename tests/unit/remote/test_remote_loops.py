"""RemoteMemory across event loops, and over TLS, against a server with threads of its own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from recalld.errors import SourceUnavailable
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory, TLSConfig
from recalld.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    memory_service_pb2,
    memory_service_pb2_grpc,
)

CTX = Ctx(Scope("acme", "support"))


class _OneHit(memory_service_pb2_grpc.MemoryServiceServicer, admin_service_pb2_grpc.AdminServiceServicer):
    def GetServerInfo(self, request: Any, context: Any) -> admin_service_pb2.GetServerInfoResponse:
        return admin_service_pb2.GetServerInfoResponse(name="upstream")

    def Query(self, request: Any, context: Any) -> Iterator[memory_service_pb2.QueryResponse]:
        response = memory_service_pb2.QueryResponse()
        response.hits.hits.add().item.content = request.query
        yield response
        yield memory_service_pb2.QueryResponse(summary=memory_service_pb2.QuerySummary())


def _serve(credentials: grpc.ServerCredentials | None = None) -> tuple[grpc.Server, int]:
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    memory_service_pb2_grpc.add_MemoryServiceServicer_to_server(_OneHit(), server)
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(_OneHit(), server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    return server, port


def _ask(remote: RemoteMemory) -> str:
    async def ask() -> str:
        (item,) = await remote.query("words", k=1, ctx=CTX)
        return item.content

    return asyncio.run(ask())


def test_one_source_serves_several_event_loops_one_after_another() -> None:
    server, port = _serve()
    try:
        remote = RemoteMemory(f"127.0.0.1:{port}")
        assert [_ask(remote) for _ in range(3)] == ["words"] * 3
        asyncio.run(remote.close())
    finally:
        server.stop(None)


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    """A folder with `key.pem` and a self-signed `cert.pem` for the name `memory.test`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command to make a certificate")
    subject = ["-subj", "/CN=memory.test", "-addext", "subjectAltName=DNS:memory.test"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run([openssl, "req", *kind, *files, *subject], check=True, capture_output=True)
    return tmp_path


def test_tls_with_a_client_certificate_and_another_name(identity: Path) -> None:
    key, cert = (identity / "key.pem").read_bytes(), (identity / "cert.pem").read_bytes()
    server, port = _serve(grpc.ssl_server_credentials([(key, cert)], cert, require_client_auth=True))
    try:
        trusted = TLSConfig(
            ca=identity / "cert.pem",
            cert=str(identity / "cert.pem"),
            key=key,
            server_name_override="memory.test",
        )
        assert _ask(RemoteMemory(f"127.0.0.1:{port}", tls=trusted)) == "words"
        for untrusted in (
            TLSConfig(ca=cert, server_name_override="memory.test"),
            TLSConfig(ca=cert, cert=cert, key=key),
        ):
            with pytest.raises(SourceUnavailable):
                _ask(RemoteMemory(f"127.0.0.1:{port}", tls=untrusted, timeout=0.4))
    finally:
        server.stop(None)
