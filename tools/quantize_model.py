"""Makes the bundled embedding model small: int8 weights, float arithmetic.

    quantize_model.py SOURCE_DIR DEST_DIR
    quantize_model.py reference SOURCE_DIR TEXTS.json VECTORS.npy

The first reads an fp32 model in the Hugging Face layout and writes the same layout with int8 weights; equal input gives
equal bytes. The second writes the vectors of SOURCE_DIR for a JSON list of texts, as float16: what the tests hold the
small model to.

Only weights are rounded, symmetrically: those of a MatMul with one scale for every 32 inputs of an output, embedding
tables with one scale a row. Against fp32, all-MiniLM-L6-v2 keeps a mean cosine of .9998 and .983 of the top ten on the
texts of the tests. On chat turns it was .9998 and .988; with one scale a column .9994 and .977; with activations
rounded to int8 as well (dynamic quantisation) .992 and .89, and there a text's vector depended on the texts beside it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, version_converter

MODEL_FILES = ("model.onnx", "onnx/model.onnx")
KEPT_FILES = (
    "LICENSE",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
)
CHANGE = """
Changes: the weights in {file} were rounded to 8-bit integers with scales by
recalld's tools/quantize_model.py. The other files are unchanged, save for
this paragraph; files that the model runs without were left out.
"""

#: The first operator set whose DequantizeLinear takes blocks.
OPSET, IR_VERSION = 21, 10
BLOCK = 32
#: Smaller weights are left alone: the scales and nodes would eat what rounding saves.
LEAST_VALUES = 1024

Floats = NDArray[np.float32]


def quantize(source: Path, dest: Path) -> None:
    """Writes `dest`. Raises SystemExit naming what `source` lacks."""
    name = next((name for name in MODEL_FILES if (source / name).is_file()), None)
    if name is None:
        raise SystemExit(f"{source}: has neither {' nor '.join(MODEL_FILES)}")
    if not (source / "tokenizer.json").is_file():
        raise SystemExit(f"{source}: has no tokenizer.json")
    model = quantized(cast("Any", onnx).load(source / name))
    (dest / name).parent.mkdir(parents=True, exist_ok=True)
    (dest / name).write_bytes(model.SerializeToString(deterministic=True))
    for kept in KEPT_FILES:
        if (source / kept).is_file():
            (dest / kept).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / kept, dest / kept)
    notice = (source / "NOTICE").read_text(encoding="utf-8") if (source / "NOTICE").is_file() else ""
    (dest / "NOTICE").write_text(notice + CHANGE.format(file=name), encoding="utf-8")
    size = sum(path.stat().st_size for path in dest.rglob("*") if path.is_file())
    print(f"{dest}: {size / 1e6:.1f} MB, model {(dest / name).stat().st_size / 1e6:.1f} MB")


def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with int8 weights. Raises SystemExit when it has no weight to round."""
    if model.opset_import[0].version < OPSET:
        model = version_converter.convert_version(model, OPSET)
    model.ir_version = max(model.ir_version, IR_VERSION)
    graph = model.graph
    weights = {
        tensor.name: tensor
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2 and np.prod(tensor.dims) >= LEAST_VALUES
    }
    nodes: list[onnx.NodeProto] = []
    rounded: dict[str, list[onnx.TensorProto]] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            weight = node.input[1]
            if weight not in rounded:
                rounded[weight] = _blocks(weights[weight])
                nodes.append(_dequantize(weight))
            nodes.append(node)
        elif _is_lookup(node) and node.input[0] in weights and _only_looked_up(graph, node.input[0]):
            if node.input[0] not in rounded:
                rounded[node.input[0]] = _rows(weights[node.input[0]])
            nodes.extend(_look_up(node))
        else:
            nodes.append(node)
    if not rounded:
        raise SystemExit("the model has no float weight of a MatMul or a table to round")
    tensors = [tensor for tensor in graph.initializer if tensor.name not in rounded]
    tensors += [tensor for pair in rounded.values() for tensor in pair]
    for field, values in ((graph.node, nodes), (graph.initializer, tensors)):
        del cast("Any", field)[:]
        cast("Any", field).extend(values)
    cast("Any", onnx.checker).check_model(model)
    return model


def _blocks(tensor: onnx.TensorProto) -> list[onnx.TensorProto]:
    """Integers (inputs x outputs) and scales (blocks of inputs x outputs) of a MatMul's weight."""
    values: Floats = numpy_helper.to_array(tensor)
    starts = np.arange(0, len(values), BLOCK)
    scales = _scales(np.maximum.reduceat(np.abs(values), starts, axis=0))
    return _named(tensor.name, values, scales, np.repeat(scales, BLOCK, axis=0)[: len(values)])


def _rows(tensor: onnx.TensorProto) -> list[onnx.TensorProto]:
    """Integers (rows x dimensions) and scales (rows x 1) of a table."""
    values: Floats = numpy_helper.to_array(tensor)
    scales = _scales(np.abs(values).max(axis=1, keepdims=True))
    return _named(tensor.name, values, scales, scales)


def _scales(largest: Floats) -> Floats:
    return np.where(largest == 0, 1, largest / 127).astype(np.float32)


def _named(name: str, values: Floats, scales: Floats, spread: Floats) -> list[onnx.TensorProto]:
    integers = np.clip(np.rint(values / spread), -127, 127).astype(np.int8)
    return [numpy_helper.from_array(integers, f"{name}.int8"), numpy_helper.from_array(scales, f"{name}.scale")]


def _dequantize(weight: str) -> onnx.NodeProto:
    inputs = [f"{weight}.int8", f"{weight}.scale"]
    return helper.make_node("DequantizeLinear", inputs, [weight], name=f"{weight}.float", axis=0, block_size=BLOCK)


def _look_up(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Rows are looked up as integers and scaled after. With DequantizeLinear on the table a runtime would hold, or
    compute in every run, all of it as floats for the few rows that a text needs."""
    (table, indices), (output,) = node.input, node.output
    rows, scales, floats = f"{output}.int8", f"{output}.scale", f"{output}.float"
    return [
        helper.make_node("Gather", [f"{table}.int8", indices], [rows], name=rows, axis=0),
        helper.make_node("Gather", [f"{table}.scale", indices], [scales], name=scales, axis=0),
        helper.make_node("Cast", [rows], [floats], name=floats, to=TensorProto.FLOAT),
        helper.make_node("Mul", [floats, scales], [output], name=node.name or output),
    ]


def _is_lookup(node: onnx.NodeProto) -> bool:
    return node.op_type == "Gather" and all(attribute.i == 0 for attribute in node.attribute)


def _only_looked_up(graph: onnx.GraphProto, table: str) -> bool:
    return all(_is_lookup(node) and node.input[1] != table for node in graph.node if table in node.input)


def write_reference(source: Path, texts_file: Path, vectors_file: Path) -> None:
    """Writes texts x dimensions, float16, in the order of the texts."""
    from recalld_server.adapters.onnx.config import EmbedderConfig
    from recalld_server.adapters.onnx.model import TextModel

    texts: list[str] = json.loads(texts_file.read_text(encoding="utf-8"))
    vectors = np.stack([embedding.vector for embedding in TextModel(EmbedderConfig(model=source)).embed(texts)])
    np.save(vectors_file, vectors.astype(np.float16))
    print(f"{vectors_file}: {vectors.shape[0]} vectors of {vectors.shape[1]}")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["reference", source, texts, vectors]:
            write_reference(Path(source), Path(texts), Path(vectors))
        case [source, dest]:
            quantize(Path(source), Path(dest))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
