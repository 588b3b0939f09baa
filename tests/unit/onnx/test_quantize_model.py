"""`tools/quantize_model.py` on a model that the test makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.model import TextModel

TOOL = Path(__file__).parents[3] / "tools" / "quantize_model.py"
TEXTS = ["w1", "w2 w3", "w4 w5 w6 w7", "w50 w51"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_weights_become_integers_and_vectors_stay(build: Any, tmp_path: Path, opset: int) -> None:
    source, dest = build(opset=opset), tmp_path / "small"
    (source / "LICENSE").write_text("the licence")
    (source / "NOTICE").write_text("who made it\n")
    done = run(source, dest)
    assert done.returncode == 0, done.stderr
    graph = onnx.load(dest / "onnx/model.onnx").graph
    assert not [t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and "scale" not in t.name]
    assert sum(t.data_type == onnx.TensorProto.INT8 for t in graph.initializer) == 2
    before, after = (TextModel(EmbedderConfig(model=path)) for path in (source, dest))
    for old, new in zip(before.embed(TEXTS), after.embed(TEXTS), strict=True):
        assert 0.999 < float(old.vector @ new.vector) < 0.9999999
    assert (dest / "LICENSE").read_text() == "the licence"
    assert (dest / "NOTICE").read_text().startswith("who made it\n\nChanges:")


def test_the_values_are_the_nearest_multiples_of_their_scales(build: Any, tiny: Any, tmp_path: Path) -> None:
    assert run(build(), tmp_path / "small").returncode == 0
    graph = onnx.load(tmp_path / "small" / "onnx/model.onnx").graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    scales = np.repeat(tensors["weight.scale"], 32, axis=0)[: len(tiny.weight)]  # 40 inputs: blocks of 32 and 8
    assert tensors["weight.scale"].shape == (2, 40)
    assert (np.abs(tensors["weight.int8"] * scales - tiny.weight) <= scales * 0.5001).all()
    rows = tensors["table.int8"] * tensors["table.scale"]
    assert (np.abs(rows - tiny.table) <= tensors["table.scale"] * 0.5001).all()


def test_equal_input_gives_equal_bytes(build: Any, tmp_path: Path) -> None:
    source = build()
    for dest in ("one", "two", "two"):  # also over what is there
        assert run(source, tmp_path / dest).returncode == 0
    one, two = (
        {path.relative_to(tmp_path / dest): path.read_bytes() for path in (tmp_path / dest).rglob("*.*")}
        for dest in ("one", "two")
    )
    assert one == two
    assert Path("onnx/model.onnx") in one
    assert (tmp_path / "one/NOTICE").read_bytes() == (tmp_path / "two/NOTICE").read_bytes()


def test_the_reference_holds_the_vectors_of_the_texts(build: Any, tmp_path: Path) -> None:
    source = build()
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    done = run("reference", source, tmp_path / "texts.json", tmp_path / "vectors.npy")
    assert done.returncode == 0, done.stderr
    vectors = np.load(tmp_path / "vectors.npy")
    expected = np.stack([e.vector for e in TextModel(EmbedderConfig(model=source)).embed(TEXTS)])
    assert vectors.dtype == np.float16
    np.testing.assert_allclose(vectors, expected, atol=1e-3)


def test_what_the_source_lacks_is_said_in_one_line(build: Any, tmp_path: Path) -> None:
    source = build()
    (source / "tokenizer.json").unlink()
    done = run(source, tmp_path / "small")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("has no tokenizer.json")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "small").exists()
    assert "SOURCE_DIR" in run().stderr
