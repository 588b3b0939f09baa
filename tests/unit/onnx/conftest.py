"""A model small enough to compute by hand, in the layout of a published one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [f"w{i}" for i in range(60)]
DIMENSIONS = 40

Build = Callable[..., Path]


class TinyModel:
    """Hidden state of a token = table[id] @ weight. `poison` is a word that the tokenizer knows and the table lacks."""

    def __init__(self) -> None:
        values = np.random.default_rng(5)
        self.table: NDArray[np.float32] = values.normal(size=(len(SPECIALS) + len(WORDS), DIMENSIONS)).astype("f4")
        self.weight: NDArray[np.float32] = values.normal(size=(DIMENSIONS, DIMENSIONS)).astype("f4")

    def ids(self, words: Sequence[str]) -> list[int]:
        return [2, *(len(SPECIALS) + WORDS.index(word) for word in words), 3]

    def expected(self, text: str, *, pooling: str = "mean") -> NDArray[np.float32]:
        hidden = self.table[self.ids(text.split())] @ self.weight
        vector = hidden.mean(axis=0) if pooling == "mean" else hidden[0]
        return vector / np.linalg.norm(vector)

    def graph(self, *, token_types: bool = False, pooled: bool = False, opset: int = 17) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"], axis=0),
            helper.make_node("MatMul", ["rows", "weight"], ["last_hidden_state"]),
        ]
        tensors = [numpy_helper.from_array(self.table, "table"), numpy_helper.from_array(self.weight, "weight")]
        outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", DIMENSIONS])]
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if token_types else [])]
        if token_types:  # a graph that fails on any token type but 0
            nodes[0] = helper.make_node("Gather", ["table", "input_ids"], ["words"], axis=0)
            nodes.insert(1, helper.make_node("Gather", ["zero", "token_type_ids"], ["types"], axis=0))
            nodes.insert(2, helper.make_node("Add", ["words", "types"], ["rows"]))
            tensors.append(numpy_helper.from_array(np.zeros((1, DIMENSIONS), "f4"), "zero"))
        if pooled:  # not a unit vector and not the mean: the first token, doubled
            tensors += [
                numpy_helper.from_array(np.array(0), "first"),
                numpy_helper.from_array(np.array(2, "f4"), "two"),
            ]
            nodes.append(helper.make_node("Gather", ["last_hidden_state", "first"], ["cls"], axis=1))
            nodes.append(helper.make_node("Mul", ["cls", "two"], ["sentence_embedding"]))
            outputs.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["n", DIMENSIONS]))
        # An input that nothing reads would be dropped from the session.
        nodes.append(helper.make_node("Identity", ["attention_mask"], ["mask_out"]))
        outputs.append(helper.make_tensor_value_info("mask_out", TensorProto.INT64, ["n", "t"]))
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in names]
        graph = helper.make_graph(nodes, "tiny", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    def tokenizer(self) -> Tokenizer:
        words = [*SPECIALS, *WORDS, "poison"]
        tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=SPECIALS[1]))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))  # type: ignore[assignment]
        # As published files do: what the model must not be held to.
        tokenizer.enable_truncation(4)
        tokenizer.enable_padding(length=4)
        return tokenizer


@pytest.fixture(scope="session")
def tiny() -> TinyModel:
    return TinyModel()


@pytest.fixture
def build(tiny: TinyModel, tmp_path: Path) -> Build:
    """Writes a model directory: `files` maps a path to its JSON, None to leave a default one out."""

    def write(
        *, name: str = "tiny", at: str = "onnx/model.onnx", files: dict[str, Any] | None = None, **graph: Any
    ) -> Path:
        directory = tmp_path / name
        (directory / at).parent.mkdir(parents=True)
        (directory / at).write_bytes(tiny.graph(**graph).SerializeToString())
        tiny.tokenizer().save(str(directory / "tokenizer.json"))
        defaults: dict[str, Any] = {
            "1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
            "sentence_bert_config.json": {"max_seq_length": 16},
        }
        for path, settings in (defaults | (files or {})).items():
            if settings is not None:
                (directory / path).parent.mkdir(exist_ok=True)
                (directory / path).write_text(json.dumps(settings))
        return directory

    return write
