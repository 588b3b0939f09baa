"""The model in the package says nearly what its fp32 original says, and says it whatever the company."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from recalld.engine.ports import Embedding
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.layout import bundled_model_path
from recalld_server.adapters.onnx.model import TextModel

DATA = Path(__file__).parents[2] / "data"
TEXTS: list[str] = json.loads((DATA / "embedding_texts.json").read_text(encoding="utf-8"))
LONG = "the history of the lighthouse and its keepers " * 100

Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return TextModel(EmbedderConfig())


@pytest.fixture(scope="module")
def embedded(model: TextModel) -> list[Embedding]:
    return model.embed(TEXTS)


@pytest.fixture(scope="module")
def vectors(embedded: list[Embedding]) -> Vectors:
    return np.stack([embedding.vector for embedding in embedded])


def test_it_agrees_with_the_fp32_model(vectors: Vectors) -> None:
    reference = np.load(DATA / "embedding_vectors.npy").astype(np.float32)
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    cosines = (vectors * reference).sum(axis=1)
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(nearest(vectors), nearest(reference), strict=True)]
    assert len(TEXTS) >= 200
    assert cosines.mean() >= 0.999
    assert cosines.min() >= 0.998
    assert np.mean(shared) >= 0.97


def nearest(vectors: Vectors) -> NDArray[np.int64]:
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -2)
    return np.argsort(-similarities, axis=1)[:, :10]


def test_a_text_embeds_the_same_alone_in_a_batch_and_beside_a_long_text(model: TextModel, vectors: Vectors) -> None:
    for index in range(0, len(TEXTS), 20):
        (alone,) = model.embed([TEXTS[index]])
        beside, _ = model.run(model.tokenise([TEXTS[index], LONG]))
        for other in (vectors[index], beside.vector):
            assert float(alone.vector @ other) >= 0.99999
            assert np.abs(alone.vector - other).max() < 1e-6


def test_vectors_are_read_only_unit_vectors_of_float32(embedded: list[Embedding]) -> None:
    for embedding in embedded:
        assert embedding.vector.dtype == np.float32
        assert embedding.vector.shape == (384,)
        assert not embedding.vector.flags.writeable
        assert abs(float(np.linalg.norm(embedding.vector)) - 1) < 1e-5


@pytest.mark.parametrize(("words", "truncated"), [(100, False), (254, False), (255, True), (2000, True)])
def test_what_is_past_256_tokens_is_flagged(model: TextModel, words: int, truncated: bool) -> None:
    (embedding,) = model.embed([" ".join(["word"] * words)])
    assert embedding.truncated is truncated


def test_words_past_the_published_128_tokens_count(model: TextModel) -> None:
    start = "word " * 150
    plain, other = model.embed([start, start + "volcano " * 50])
    assert float(plain.vector @ other.vector) < 0.95


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "\ud800", "lone \udfff surrogate", "a\x00b", "\U0001f389"])
def test_odd_texts_have_a_vector(model: TextModel, text: str) -> None:
    (embedding,) = model.embed([text])
    assert np.isfinite(embedding.vector).all()
    assert abs(float(np.linalg.norm(embedding.vector)) - 1) < 1e-5


def test_no_texts_have_no_vectors(model: TextModel) -> None:
    assert model.embed([]) == []


def test_it_says_what_it_is(model: TextModel) -> None:
    identity = model.identity
    assert (identity.name, identity.dimensions, identity.max_tokens) == ("all-MiniLM-L6-v2", 384, 256)
    assert len(identity.sha256) == 64
    assert model.query_prefix == model.document_prefix == ""


def test_it_fits_the_package_with_its_licence() -> None:
    files = [path for path in bundled_model_path().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 30_000_000
    assert {"LICENSE", "NOTICE"} <= {path.name for path in files}
    assert "quantize_model.py" in (bundled_model_path() / "NOTICE").read_text(encoding="utf-8")
