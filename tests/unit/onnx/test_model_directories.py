"""Any model in the Hugging Face layout loads; one that cannot is refused in one line that names the file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recalld.errors import RecalldError
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.model import TextModel

TEXT = "w1 w2 w3 w4 w5 w6"


def load(directory: Path, **settings: Any) -> TextModel:
    return TextModel(EmbedderConfig(model=directory, **settings))


def refusal(directory: Path, **settings: Any) -> str:
    with pytest.raises(RecalldError) as caught:
        load(directory, **settings)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("at", ["model.onnx", "onnx/model.onnx"])
@pytest.mark.parametrize("token_types", [False, True])
def test_mean_pooling_leaves_out_padding(build: Any, tiny: Any, at: str, token_types: bool) -> None:
    model = load(build(at=at, token_types=token_types))
    for embedding, text in zip(model.embed([TEXT, "w9"]), [TEXT, "w9"], strict=True):
        np.testing.assert_allclose(embedding.vector, tiny.expected(text), atol=1e-6)


def test_cls_pooling_by_the_models_own_files(build: Any, tiny: Any) -> None:
    files = {"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}
    (embedding,) = load(build(files=files)).embed([TEXT])
    np.testing.assert_allclose(embedding.vector, tiny.expected(TEXT, pooling="cls"), atol=1e-6)


def test_a_pooling_setting_comes_before_the_file(build: Any, tiny: Any) -> None:
    (embedding,) = load(build(), pooling="cls").embed([TEXT])
    np.testing.assert_allclose(embedding.vector, tiny.expected(TEXT, pooling="cls"), atol=1e-6)


def test_a_pooled_output_is_used_as_it_is_and_normalised(build: Any, tiny: Any) -> None:
    directory = build(pooled=True, files={"1_Pooling/config.json": None})
    (embedding,) = load(directory).embed([TEXT])
    np.testing.assert_allclose(embedding.vector, tiny.expected(TEXT, pooling="cls"), atol=1e-6)


def test_a_pooling_setting_comes_before_a_pooled_output(build: Any, tiny: Any) -> None:
    (embedding,) = load(build(pooled=True), pooling="mean").embed([TEXT])
    np.testing.assert_allclose(embedding.vector, tiny.expected(TEXT), atol=1e-6)


@pytest.mark.parametrize(
    ("files", "settings", "expected"),
    [
        ({}, {}, 16),
        ({}, {"max_tokens": 5}, 5),
        ({"sentence_bert_config.json": None, "tokenizer_config.json": {"model_max_length": 12}}, {}, 12),
        ({"tokenizer_config.json": {"model_max_length": 12}}, {}, 16),
        ({"sentence_bert_config.json": None, "tokenizer_config.json": {"model_max_length": 1e30}}, {}, 1 << 20),
        ({"sentence_bert_config.json": None}, {}, 512),
        ({"config.json": {"max_position_embeddings": 9}}, {}, 9),
    ],
)
def test_the_longest_text_is_what_the_files_or_the_setting_say(
    build: Any, files: dict[str, Any], settings: dict[str, Any], expected: int
) -> None:
    model = load(build(files=files), **settings)
    assert model.identity.max_tokens == expected
    fits = min(expected, 600) - 2
    short, long = model.tokenise([" ".join(["w1"] * fits), " ".join(["w1"] * (expected + 1))])
    assert (len(short.ids), short.truncated) == (fits + 2, False)
    assert (len(long.ids), long.truncated) == (expected, True)


def test_prefixes_are_those_of_the_model_unless_set(build: Any) -> None:
    prompts = {"prompts": {"query": "w1 ", "passage": "w2 "}}
    directory = build(files={"config_sentence_transformers.json": prompts})
    own, changed = load(directory), load(directory, query_prefix="", document_prefix="w3 ")
    assert (own.query_prefix, own.document_prefix) == ("w1 ", "w2 ")
    assert (changed.query_prefix, changed.document_prefix) == ("", "w3 ")


def test_identity_names_the_directory_and_the_weights(build: Any) -> None:
    directory = build(name="some-model", at="model.onnx")
    before = load(directory).identity
    assert before.name == "some-model"
    assert before.dimensions == 40
    assert before.sha256 == hashlib.sha256((directory / "model.onnx").read_bytes()).hexdigest()
    (directory / "model.onnx_data").write_bytes(b"weights that lie beside")
    assert load(directory).identity.sha256 != before.sha256


@pytest.mark.parametrize(
    "settings",
    [{"pooling": "cls"}, {"query_prefix": "w1 "}, {"document_prefix": "w1 "}, {"max_tokens": 8}],
)
def test_what_shapes_vectors_makes_another_identity(build: Any, settings: dict[str, Any]) -> None:
    directory = build()
    assert load(directory, **settings).identity.fingerprint != load(directory).identity.fingerprint
    assert load(directory, **settings).identity.sha256 == load(directory).identity.sha256


def test_so_does_another_tokenizer_of_the_same_weights(build: Any) -> None:
    directory = build()
    before = load(directory).identity
    text = (directory / "tokenizer.json").read_text()
    (directory / "tokenizer.json").write_text(text.replace('"w59"', '"w60"'))
    assert load(directory).identity.fingerprint != before.fingerprint


def test_the_models_own_pooling_and_the_first_token_are_told_apart(build: Any) -> None:
    directory = build(pooled=True)
    own, first = load(directory).identity, load(directory, pooling="cls").identity
    assert (own.traits["pooling"], first.traits["pooling"]) == ("the model's own", "cls")
    assert own.fingerprint != first.fingerprint


def test_the_name_of_the_folder_is_a_label_only(build: Any) -> None:
    here, there = load(build(name="here")).identity, load(build(name="there")).identity
    assert (here.name, there.name) == ("here", "there")
    assert here.fingerprint == there.fingerprint


def test_saying_what_the_files_say_anyway_changes_nothing(build: Any) -> None:
    directory = build()
    stated = load(directory, pooling="mean", max_tokens=16, query_prefix="", document_prefix="")
    assert stated.identity == load(directory).identity


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in refusal(tmp_path / "none")


@pytest.mark.parametrize("missing", ["onnx/model.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(build: Any, missing: str) -> None:
    directory = build()
    (directory / missing).unlink()
    assert missing in refusal(directory)


@pytest.mark.parametrize(
    "broken", ["onnx/model.onnx", "tokenizer.json", "1_Pooling/config.json", "sentence_bert_config.json"]
)
@pytest.mark.parametrize("content", [b"", b"\xff{not this", b"[]"])
def test_a_broken_file_is_named(build: Any, broken: str, content: bytes) -> None:
    directory = build()
    (directory / broken).write_bytes(content)
    assert str(directory / broken) in refusal(directory)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"1_Pooling/config.json": {"pooling_mode_max_tokens": True}},
            "1_Pooling/config.json: pooling must be mean or",
        ),
        ({"1_Pooling/config.json": None}, "no pooling set"),
        ({"sentence_bert_config.json": {"max_seq_length": "long"}}, "max_seq_length must be a positive number"),
        ({"sentence_bert_config.json": {"max_seq_length": 2}}, "max_tokens is 2"),
        ({"modules.json": [{"type": "sentence_transformers.models.Dense"}]}, "lacks the layer Dense"),
    ],
)
def test_settings_that_do_not_fit_are_said(build: Any, files: dict[str, Any], said: str) -> None:
    assert said in refusal(build(files=files))


def test_a_setting_past_the_models_positions(build: Any) -> None:
    directory = build(files={"config.json": {"max_position_embeddings": 9}})
    assert "reads at most 9 tokens, max_tokens is 10" in refusal(directory, max_tokens=10)


def test_a_graph_that_is_no_text_model(build: Any, tiny: Any) -> None:
    directory = build()
    graph = tiny.graph()
    graph.graph.input[0].name = graph.graph.node[0].input[1] = "pixels"
    (directory / "onnx/model.onnx").write_bytes(graph.SerializeToString())
    assert "needs the input pixels" in refusal(directory)


@pytest.mark.parametrize("setting", ["threads", "max_tokens", "max_batch_tokens", "max_queued_texts"])
def test_settings_have_a_least_value(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        EmbedderConfig(**{setting: 0})  # type: ignore[arg-type]
