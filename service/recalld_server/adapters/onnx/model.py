"""The synchronous core: texts to unit vectors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recalld.engine.ports import Embedding, ModelIdentity
from recalld_server.adapters.onnx.batches import by_length
from recalld_server.adapters.onnx.config import EmbedderConfig, Pooling
from recalld_server.adapters.onnx.layout import (
    BrokenModel,
    ModelLayout,
    bundled_model_path,
    digest_files,
    read_layout,
)
from recalld_server.adapters.onnx.pooling import normalise, pool
from recalld_server.adapters.onnx.session import ModelSession
from recalld_server.adapters.onnx.tokens import TextTokenizer, Tokens


class TextModel:
    """A loaded embedding model. Methods block, and may be called from several threads at once."""

    def __init__(self, config: EmbedderConfig) -> None:
        """Raises BrokenModel naming the file that is missing or does not fit."""
        layout = read_layout(config.model or bundled_model_path())
        max_tokens = config.max_tokens or layout.max_tokens
        if layout.max_positions is not None and max_tokens > layout.max_positions:
            raise BrokenModel(
                f"{layout.model_file}: reads at most {layout.max_positions} tokens, max_tokens is {max_tokens}"
            )
        self._tokenizer = TextTokenizer(layout.tokenizer_file, max_tokens=max_tokens, pad_id=layout.pad_id)
        prefer_tokens = config.pooling is not None
        self._session = ModelSession(layout.model_file, threads=config.threads, prefer_tokens=prefer_tokens)
        self._pooling: Pooling | None = None if self._session.pooled else _pooling_of(layout, config.pooling)
        self._max_batch_tokens = config.max_batch_tokens
        self.query_prefix = layout.query_prefix if config.query_prefix is None else config.query_prefix
        self.document_prefix = layout.document_prefix if config.document_prefix is None else config.document_prefix
        self.identity = self._identify(layout, max_tokens)

    def _identify(self, layout: ModelLayout, max_tokens: int) -> ModelIdentity:
        """Everything that shapes a vector goes into the fingerprint; the folder's name is a label."""
        dimensions, weights = self._try_out(layout), digest_files(layout.model_file, *layout.external_data)
        traits = {
            "sha256": weights,
            "tokenizer_sha256": digest_files(layout.tokenizer_file),
            "dimensions": str(dimensions),
            "max_tokens": str(max_tokens),
            "pooling": self._pooling or "the model's own",
            "normalisation": "l2",
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
        }
        fingerprint = hashlib.sha256(json.dumps(traits, sort_keys=True).encode()).hexdigest()
        return ModelIdentity(layout.name, dimensions, weights, max_tokens, fingerprint, traits)

    def tokenise(self, texts: Sequence[str]) -> list[Tokens]:
        """What the model reads of each text, as given: prefixes are the caller's to add."""
        return self._tokenizer.read(texts)

    def run(self, batch: Sequence[Tokens]) -> list[Embedding]:
        """One run of the model over the whole batch."""
        vectors = self._vectors(batch)
        # A row of its own each: a kept vector must not keep its batch.
        return [Embedding(_own(row), tokens.truncated) for row, tokens in zip(vectors, batch, strict=True)]

    def embed(self, texts: Sequence[str]) -> list[Embedding]:
        """One embedding a text, in order, in batches of the configured size."""
        tokens = self.tokenise(texts)
        embeddings: dict[int, Embedding] = {}
        for batch in by_length([len(read.ids) for read in tokens], self._max_batch_tokens):
            embeddings.update(zip(batch, self.run([tokens[index] for index in batch]), strict=True))
        return [embeddings[index] for index in range(len(texts))]

    def _vectors(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        shape = len(batch), max(len(tokens.ids) for tokens in batch)
        ids = np.full(shape, self._tokenizer.pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens.ids)] = tokens.ids
            mask[row, : len(tokens.ids)] = 1
        output = self._session.run(ids, mask)
        return normalise(output if self._pooling is None else pool(output, mask, self._pooling))

    def _try_out(self, layout: ModelLayout) -> int:
        """The dimensions, from a run: an export may leave them symbolic, or not run at all."""
        try:
            (embedding,) = self.run(self.tokenise(["warm"]))
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise BrokenModel(f"{layout.model_file}: does not embed a word ({reason})") from error
        return len(embedding.vector)


def _pooling_of(layout: ModelLayout, override: Pooling | None) -> Pooling:
    if layout.own_layers:
        raise BrokenModel(
            f"{layout.model_file}: lacks the layer {layout.own_layers[0]} of modules.json, has no sentence_embedding"
        )
    pooling = override or layout.pooling
    if pooling is None:
        raise BrokenModel(f"{layout.model_file}: no 1_Pooling/config.json beside it and no pooling set (mean or cls)")
    return pooling


def _own(row: NDArray[np.float32]) -> NDArray[np.float32]:
    vector = row.copy()
    vector.flags.writeable = False
    return vector
