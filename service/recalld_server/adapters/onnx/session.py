"""An ONNX model as a function from padded token ids to what it computes of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalld.onnx_runtime import load_onnxruntime
from recalld_server.adapters.onnx.layout import BrokenModel

_KNOWN_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
#: Outputs that hold one vector a token, and one a text, as exporters name them.
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
_TEXT_OUTPUTS = ("sentence_embedding", "sentence_embeddings")

_MAX_DEFAULT_THREADS = 4


class ModelSession:
    """A loaded model. `run` may be called from several threads at once. Raises BrokenModel when it cannot be used.

    pooled: whether it gives one vector a text. prefer_tokens: take one vector a token where there is a choice.
    """

    def __init__(self, path: Path, *, threads: int | None, prefer_tokens: bool) -> None:
        session = _open(path, threads or default_threads())
        inputs = {str(node.name) for node in session.get_inputs()}
        if unknown := inputs - _KNOWN_INPUTS:
            raise BrokenModel(f"{path}: needs the input {min(unknown)}, which a text alone does not give")
        if "input_ids" not in inputs:
            raise BrokenModel(f"{path}: has no input input_ids")
        self._session = session
        self._inputs = inputs
        self._output, self.pooled = _choose_output(path, session, prefer_tokens=prefer_tokens)

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """ids, mask: texts x tokens, mask 1 for a token and 0 for padding. Gives texts x dimensions when `pooled`,
        else texts x tokens x dimensions."""
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (output,) = self._session.run([self._output], {name: feed[name] for name in self._inputs})
        return np.asarray(output, dtype=np.float32)


def default_threads() -> int:
    return min(os.cpu_count() or 1, _MAX_DEFAULT_THREADS)


def _open(path: Path, threads: int) -> Any:
    runtime = load_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Inputs of every shape make the arena keep the largest of each; without it memory follows the batch.
    options.enable_cpu_mem_arena = False
    # Threads that spin between runs take the cores from the store and the server.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Folds int8 weights to float once, on load. Left to its quantisation passes the runtime dequantises them in every
    # run, at several times the cost.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise BrokenModel(f"{path}: is not an ONNX model that runs here ({reason})") from error


def _choose_output(path: Path, session: Any, *, prefer_tokens: bool) -> tuple[str, bool]:
    """The output's name, and whether it is one vector a text."""
    ranks = {str(node.name): len(node.shape or ()) for node in session.get_outputs()}
    tokens = _first(_TOKEN_OUTPUTS, [name for name, rank in ranks.items() if rank == 3])
    pooled = next((name for name in _TEXT_OUTPUTS if ranks.get(name) == 2), None)
    if pooled is not None and not (prefer_tokens and tokens is not None):
        return pooled, True
    if tokens is not None:
        return tokens, False
    raise BrokenModel(f"{path}: has no output of embeddings, only {', '.join(sorted(ranks))}")


def _first(preferred: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in (*preferred, *names) if name in names), None)
