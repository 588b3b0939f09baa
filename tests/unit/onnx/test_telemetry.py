"""ONNX Runtime tells nobody of what is done here: it leaves no id and no store of events in the user's home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recalld_server.adapters.onnx.layout import bundled_model_path

EMBED = """
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.model import TextModel
TextModel(EmbedderConfig()).embed(["text"])
"""
# The model is no cross-encoder, which shows only after the runtime was loaded.
RERANK = f"""
import asyncio
from recalld import MemoryItem, RecalldError
from recalld.rerank import CrossEncoderReranker
try:
    asyncio.run(CrossEncoderReranker({str(bundled_model_path())!r})("q", [MemoryItem("text", "s")], k=1))
except RecalldError as error:
    assert "outputs a pair" in str(error)
"""
BARE = "import onnxruntime"


def files_left_at_home(program: str, home: Path, **environment: str) -> list[str]:
    # Nothing else of the environment: a CI's variables turn the telemetry off as well.
    paths = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, env={"HOME": str(home), **paths, **environment}
    )
    return [path.name for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("program", [EMBED, RERANK], ids=["embedding", "reranking"])
@pytest.mark.parametrize("said", [{}, {"ORT_DISABLE_TELEMETRY": "0"}, {"ORT_DISABLE_TELEMETRY": ""}])
def test_nothing_is_left_whatever_the_environment_says(tmp_path: Path, program: str, said: dict[str, str]) -> None:
    assert files_left_at_home(program, tmp_path, **said) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the runtime keeps its files in other places")
def test_the_runtime_loaded_otherwise_does_leave_files(tmp_path: Path) -> None:
    """Else the tests above could not fail."""
    assert "deviceid" in files_left_at_home(BARE, tmp_path)
