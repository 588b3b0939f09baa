"""A cross-encoder as a reranker: a model that reads the query and an item together. Needs `recalld[rerank]`."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from recalld.errors import InvalidField, MissingExtra
from recalld.item import MemoryItem
from recalld.onnx_runtime import load_onnxruntime

_MODEL_FILES = ("model.onnx", "onnx/model.onnx")


class CrossEncoderReranker:
    """Score each item with a cross-encoder and keep the `k` best. A `Reranker`.

    path: a local directory in the Hugging Face layout, with `model.onnx` or `onnx/model.onnx`, `tokenizer.json` and, if
    they are there, `tokenizer_config.json` and `config.json`; for example of ms-marco-MiniLM-L-6-v2. The model has one
    output a pair, or two of which the second means relevant. batch_size: pairs a run. max_length: tokens of query
    and item together, the longer one is cut; by default what the model's own files say. threads: of one run.

    New scores are probabilities in 0..1 (the sigmoid of the model's logit); equal ones keep the order given. The model
    is loaded at the first call and runs in a thread. Raises InvalidField when a file is missing or the model has other
    outputs, MissingExtra when onnxruntime or tokenizers is not installed.

    Nogueira and Cho, "Passage Re-ranking with BERT", 2019.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        batch_size: int = 32,
        max_length: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.path = Path(path)
        model = next((self.path / name for name in _MODEL_FILES if (self.path / name).is_file()), None)
        if model is None:
            raise InvalidField(f"{str(self.path)!r} holds neither {' nor '.join(_MODEL_FILES)}")
        if not (self.path / "tokenizer.json").is_file():
            raise InvalidField(f"{str(self.path)!r} holds no tokenizer.json")
        if batch_size < 1:
            raise InvalidField(f"batch_size is 1 or more, not {batch_size}")
        self.batch_size = batch_size
        self.max_length = max_length or _max_length(self.path)
        self._model = model
        self._threads = threads
        self._loaded: _CrossEncoder | None = None
        self._loading = threading.Lock()

    async def __call__(self, query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
        if k <= 0 or not items:
            return []
        logits = await asyncio.to_thread(self._logits, query, [item.content for item in items])
        order = sorted(range(len(items)), key=lambda place: -logits[place])[:k]
        return [replace(items[place], score=_sigmoid(logits[place])) for place in order]

    def _logits(self, query: str, texts: list[str]) -> list[float]:
        with self._loading:
            if self._loaded is None:
                self._loaded = _CrossEncoder(self._model, self.path / "tokenizer.json", self.max_length, self._threads)
        # Pairs of like length share a run, so that little of it is padding.
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        logits = [0.0] * len(texts)
        for start in range(0, len(order), self.batch_size):
            places = order[start : start + self.batch_size]
            scores = self._loaded.logits(query, [texts[place] for place in places])
            for place, score in zip(places, scores, strict=True):
                logits[place] = score
        return logits


class _CrossEncoder:
    """The loaded model. Types of onnxruntime, tokenizers and numpy end here."""

    def __init__(self, model: Path, tokenizer: Path, max_length: int, threads: int | None) -> None:
        try:
            numpy, tokenizers = importlib.import_module("numpy"), importlib.import_module("tokenizers")
            ort = load_onnxruntime()
        except ImportError as error:
            raise MissingExtra(f"CrossEncoderReranker needs {error.name}: install recalld[rerank]") from error
        self._np: Any = numpy
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(max_length)
        # A published tokenizer.json may pad to a fixed length; keep its token and side, pad to the longest of a run.
        padding = self._tokenizer.padding or self._default_padding()
        self._tokenizer.enable_padding(**{**padding, "length": None})
        options = ort.SessionOptions()
        # Inputs of many shapes make the arena grow for good, and spinning threads take time from all other work.
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 3
        self._session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._inputs = [node.name for node in self._session.get_inputs()]

    def _default_padding(self) -> dict[str, Any]:
        for token in ("[PAD]", "<pad>"):
            key = self._tokenizer.token_to_id(token)
            if key is not None:
                return {"pad_id": key, "pad_token": token}
        return {}

    def logits(self, query: str, texts: list[str]) -> list[float]:
        encodings = self._tokenizer.encode_batch([(query, text) for text in texts])
        columns = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        unknown = set(self._inputs) - set(columns)
        if unknown:
            raise InvalidField(f"the model takes {sorted(unknown)}, which no tokenizer gives")
        feed = {name: self._np.array(columns[name], dtype=self._np.int64) for name in self._inputs}
        output = self._session.run(None, feed)[0].reshape(len(texts), -1)
        if output.shape[1] not in (1, 2):
            raise InvalidField(f"a cross-encoder has 1 or 2 outputs a pair, this model has {output.shape[1]}")
        # Of two outputs, the sigmoid of their difference is the softmax of the second.
        column = output[:, 0] if output.shape[1] == 1 else output[:, 1] - output[:, 0]
        return [float(value) if math.isfinite(value) else -math.inf for value in column]


def _max_length(path: Path) -> int:
    """How many tokens the model reads at most, by its own files; 512 where they do not say."""
    tokenizer: Any = _json(path / "tokenizer_config.json").get("model_max_length")
    positions: Any = _json(path / "config.json").get("max_position_embeddings")
    # A model_max_length of 1e30 is how the layout writes "no limit".
    stated = [value for value in (tokenizer, positions) if isinstance(value, int) and 0 < value < 1_000_000]
    return min(stated, default=512)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InvalidField(f"{str(path)!r} is not JSON: {error}") from error
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1.0 + odds)
