"""RemoteMemory across event loops, and over TLS, against a server with threads of its own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from recalld.errors import SourceUnavailable
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory, TLSConfig

CTX = Ctx(Scope("acme", "support"))


def _ask(remote: RemoteMemory) -> str:
    async def ask() -> str:
        (item,) = await remote.query("words", k=1, ctx=CTX)
        return item.content

    return asyncio.run(ask())


def test_one_memory_serves_several_event_loops_one_after_another(threaded: Any) -> None:
    remote = RemoteMemory(threaded())
    assert [_ask(remote) for _ in range(3)] == ["words"] * 3
    asyncio.run(remote.close())


def test_one_memory_serves_several_event_loops_side_by_side(threaded: Any) -> None:
    remote = RemoteMemory(threaded())
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: _ask(remote), range(16))) == ["words"] * 16
    asyncio.run(remote.close())


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


def test_tls_with_a_client_certificate_and_another_name(identity: Path, threaded: Any) -> None:
    key, cert = (identity / "key.pem").read_bytes(), (identity / "cert.pem").read_bytes()
    target = threaded(grpc.ssl_server_credentials([(key, cert)], cert, require_client_auth=True))
    trusted = TLSConfig(
        ca=identity / "cert.pem",
        cert=str(identity / "cert.pem"),
        key=key,
        server_name_override="memory.test",
    )
    assert _ask(RemoteMemory(target, tls=trusted)) == "words"
    for untrusted in (
        TLSConfig(ca=cert, server_name_override="memory.test"),
        TLSConfig(ca=cert, cert=cert, key=key),
    ):
        with pytest.raises(SourceUnavailable):
            _ask(RemoteMemory(target, tls=untrusted, timeout=0.4))
