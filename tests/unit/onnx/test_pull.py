"""Fetching a model: what is fetched, and what is said where there is no hub."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recalld.errors import InvalidField, SourceUnavailable
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.model import TextModel
from recalld_server.adapters.onnx.pull import pull_model
from recalld_server.cli import main

COMMIT = "0" * 40


class Hub:
    """Serves one directory as the model `acme/tiny`, the way the hub's HTTP API does."""

    def __init__(self, directory: Path) -> None:
        self.fetched: set[str] = set()
        files = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path.startswith("/api/models/acme/tiny/revision/"):
                    siblings = [{"rfilename": name} for name in sorted(files)]
                    self.answer(200, json.dumps({"id": "acme/tiny", "sha": COMMIT, "siblings": siblings}).encode())
                elif path.startswith("/api/models/acme/tiny/tree/"):
                    tree = [
                        {"type": "file", "path": name, "size": file.stat().st_size, "oid": "1" * 40}
                        for name, file in sorted(files.items())
                    ]
                    self.answer(200, json.dumps(tree).encode())
                elif path.startswith(f"/acme/tiny/resolve/{COMMIT}/"):
                    name = path.removeprefix(f"/acme/tiny/resolve/{COMMIT}/")
                    hub.fetched.add(name)
                    self.answer(200, files[name].read_bytes())
                else:
                    self.answer(404, b"", error="RepoNotFound")

            def answer(self, status: int, body: bytes, error: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "application/json")
                self.send_header("ETag", f'"{abs(hash(body)):040x}"')
                self.send_header("X-Repo-Commit", COMMIT)
                if error:
                    self.send_header("X-Error-Code", error)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def hub(build: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    directory = build(name="published", files={"config.json": {"pad_token_id": 0}})
    (directory / "LICENSE").write_text("the licence")
    (directory / "pytorch_model.bin").write_bytes(b"not needed")
    (directory / "onnx" / "model_quantized.onnx").write_bytes(b"not needed")
    hub = Hub(directory)
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


def test_a_model_is_fetched_with_what_it_needs_only(hub: Hub, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    pull_model("acme/tiny", directory)
    assert TextModel(EmbedderConfig(model=directory)).identity.name == "mine"
    assert (directory / "LICENSE").read_text() == "the licence"
    assert {"onnx/model.onnx", "tokenizer.json", "1_Pooling/config.json"} <= hub.fetched
    assert not hub.fetched & {"pytorch_model.bin", "onnx/model_quantized.onnx"}


@pytest.mark.parametrize(("flags", "folder"), [([], "models/acme/tiny"), (["--to", "some/where"], "some/where")])
def test_the_command_puts_it_into_one_folder_and_says_which(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, flags: list[str], folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["models", "pull", "acme/tiny", *flags]) == 0
    assert [
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("tokenizer.json") if "published" not in path.parts
    ] == [f"{folder}/tokenizer.json"]
    assert f"recalld serve --model {folder}" in capsys.readouterr().out


def test_a_model_that_the_hub_does_not_have(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="no model 'acme/other'"):
        pull_model("acme/other", tmp_path)


def test_no_network_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(SourceUnavailable) as caught:
        pull_model("acme/tiny", tmp_path)
    assert str(caught.value).startswith("cannot reach the model hub to fetch 'acme/tiny'")
    assert "127.0.0.1" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["", "tiny", "a/b/c", "/tiny", "acme/", "acme/..", "../acme", "ac me/tiny"])
def test_a_name_that_is_no_model_name(name: str, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="name"):
        pull_model(name, tmp_path / "models")
    assert not (tmp_path / "models").exists()
