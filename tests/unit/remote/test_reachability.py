"""What is said of a connection that does not come about: what was tried, and why it failed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from recalld.client.reachability import explain_unreachable, find_proxy, is_loopback, never_connected, proxy_options

Serve = Callable[[grpc.ServerCredentials | None], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that knows no method; gives its target."""
    servers: list[grpc.Server] = []

    def begin(credentials: grpc.ServerCredentials | None = None) -> str:
        server = grpc.server(ThreadPoolExecutor(1))
        servers.append(server)
        at = "127.0.0.1:0"
        port = server.add_secure_port(at, credentials) if credentials else server.add_insecure_port(at)
        server.start()
        return f"127.0.0.1:{port}"

    yield begin
    for server in servers:
        server.stop(None)


@pytest.fixture
def closed() -> Iterator[str]:
    """A target where nothing listens."""
    with socket.socket() as taken:  # bound and not listening, so that nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def forbidding() -> Iterator[str]:
    """An HTTP server that answers 403 to whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[bytes, bytes]]:
    """A key and a certificate of its own signature, for a name."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    folder: Path = tmp_path_factory.mktemp("pems")

    def make(name: str) -> tuple[bytes, bytes]:
        key, cert = folder / f"{name}.key", folder / f"{name}.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        alternative = f"subjectAltName=DNS:{name}" + (",IP:127.0.0.1" if name == "here" else "")
        command += ["-addext", alternative, "-keyout", str(key), "-out", str(cert)]
        subprocess.run(command, check=True, capture_output=True)
        return key.read_bytes(), cert.read_bytes()

    return make


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def failure(target: str, credentials: grpc.ChannelCredentials | None = None) -> str:
    """What is said of a call to the target, which must not reach a server."""
    options = proxy_options(target)
    channel = (
        grpc.secure_channel(target, credentials, options=options)
        if credentials
        else grpc.insecure_channel(target, options=options)
    )
    with channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/no.Service/Method")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    details = caught.value.details()
    assert never_connected(details)
    said = explain_unreachable(target, details, tls=credentials is not None)
    assert said.startswith(f"cannot reach {target} ")
    return said.removeprefix(f"cannot reach {target} ")


def test_nothing_listens(closed: str) -> None:
    assert failure(closed) == "in the clear: nothing listens there, the connection is refused"


def test_the_host_is_not_known() -> None:
    assert failure("no-such-host.invalid:50051") == "in the clear: the name 'no-such-host.invalid' is not known"


def test_the_server_speaks_tls_only(serve: Serve, pems: Callable[[str], tuple[bytes, bytes]]) -> None:
    said = failure(serve(grpc.ssl_server_credentials([pems("here")])))
    assert said == "in the clear: the server hung up at once; it may speak TLS only"


def test_the_server_speaks_no_tls(serve: Serve, pems: Callable[[str], tuple[bytes, bytes]]) -> None:
    said = failure(serve(None), grpc.ssl_channel_credentials(pems("here")[1]))
    assert said == "over TLS: the server does not speak TLS; ask it in the clear"


@pytest.mark.parametrize("trusted", [None, "elsewhere"])
def test_the_ca_is_missing_or_another(
    serve: Serve, pems: Callable[[str], tuple[bytes, bytes]], trusted: str | None
) -> None:
    target = serve(grpc.ssl_server_credentials([pems("here")]))
    said = failure(target, grpc.ssl_channel_credentials(pems(trusted)[1] if trusted else None))
    assert said.startswith("over TLS: the server's certificate is not trusted (self")
    assert said.endswith("); name the CA that vouches for it")


def test_the_ca_is_no_certificate(serve: Serve, pems: Callable[[str], tuple[bytes, bytes]]) -> None:
    target = serve(grpc.ssl_server_credentials([pems("here")]))
    assert "are no PEM certificates" in failure(target, grpc.ssl_channel_credentials(b"nonsense"))


def test_the_certificate_is_for_another_name(serve: Serve, pems: Callable[[str], tuple[bytes, bytes]]) -> None:
    key, cert = pems("elsewhere")
    target = serve(grpc.ssl_server_credentials([(key, cert)]))
    said = failure(target, grpc.ssl_channel_credentials(cert))
    assert said == "over TLS: the server's certificate is for another name than 127.0.0.1"


def test_the_server_wants_to_know_who_asks(serve: Serve, pems: Callable[[str], tuple[bytes, bytes]]) -> None:
    key, cert = pems("here")
    target = serve(grpc.ssl_server_credentials([(key, cert)], cert, require_client_auth=True))
    assert failure(target, grpc.ssl_channel_credentials(cert)).endswith("it may want a client certificate")


def test_another_server_listens(forbidding: str) -> None:
    assert "speaks HTTP/1 and no gRPC" in failure(forbidding)


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
class TestProxies:
    def test_one_that_is_not_there(self, closed: str, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setenv(variable, f"http://ada:secret@{closed}/")
        assert failure("recalld.invalid:50051") == (
            f"in the clear, through the proxy http://{closed} of {variable}: "
            "the proxy is not there, the connection is refused"
        )

    def test_one_that_refuses(self, forbidding: str, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setenv(variable, f"http://{forbidding}")
        assert "the proxy does not let it through, it answers 403" in failure("recalld.invalid:50051")

    def test_one_whose_name_is_not_known(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setenv(variable, "http://no-such-proxy.invalid:3128")
        assert "the name 'no-such-proxy.invalid' of the proxy is not known" in failure("recalld.invalid:50051")

    def test_none_is_asked_for_this_machine(
        self, closed: str, serve: Serve, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(variable, f"http://{closed}")
        target = serve(None)
        for name in (target, target.replace("127.0.0.1", "localhost"), f"dns:///{target}", f"ipv4:{target}"):
            with grpc.insecure_channel(name, options=proxy_options(name)) as channel:
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary("/no.Service/Method")(b"", timeout=20)
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # which the server itself says

    @pytest.mark.parametrize("exceptions", ["recalld.invalid", "other, .INVALID", "invalid"])
    def test_none_is_told_where_one_is_not_taken(
        self, closed: str, monkeypatch: pytest.MonkeyPatch, variable: str, exceptions: str
    ) -> None:
        monkeypatch.setenv(variable, f"http://{closed}")
        monkeypatch.setenv("no_proxy", exceptions)
        assert failure("recalld.invalid:50051") == "in the clear: the name 'recalld.invalid' is not known"


@pytest.mark.parametrize("value", ["http://proxy:3128", "ada:secret@proxy:3128", "http://ada:secret@proxy:3128/"])
def test_a_proxy_is_told_without_its_credentials(value: str) -> None:
    assert find_proxy("recalld:50051", {"https_proxy": value}) == ("https_proxy", "http://proxy:3128")


def test_a_network_can_be_kept_from_the_proxy() -> None:
    environment = {"http_proxy": "http://proxy:3128", "no_proxy": "10.0.0.0/8,example.com"}
    assert find_proxy("10.1.2.3:50051", environment) is None
    assert find_proxy("11.1.2.3:50051", environment) == ("http_proxy", "http://proxy:3128")


@pytest.mark.parametrize(
    "target",
    ["127.0.0.1:1", "127.8.9.1:1", "127.1:1", "localhost:1", "LocalHost:1", "a.localhost:1", "[::1]:1", "0.0.0.0:1",
     "[0:0:0:0:0:0:0:1]:1", "[::ffff:127.0.0.1]:1", "dns:///localhost:1", "dns:localhost:1", "ipv4:127.0.0.1:1",
     "ipv6:[::1]:1", "dns://8.8.8.8/127.0.0.1:1"],
)  # fmt: skip
def test_this_machine_has_many_names(target: str) -> None:
    assert is_loopback(target)


@pytest.mark.parametrize(
    "target", ["128.0.0.1:1", "recalld:1", "127.example.com:1", "localhost.example.com:1", "[2001:db8::1]:1", "unix:/x"]
)
def test_other_machines_have_others(target: str) -> None:
    assert not is_loopback(target)
