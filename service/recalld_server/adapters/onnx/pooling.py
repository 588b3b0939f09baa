"""From one vector a token to one unit vector a text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalld_server.adapters.onnx.config import Pooling


def pool(hidden: NDArray[np.float32], mask: NDArray[np.int64], pooling: Pooling) -> NDArray[np.float32]:
    """hidden: texts x tokens x dimensions; mask: texts x tokens, each text with a token. The mean leaves out padding;
    `cls` is the first token, with padding on the right."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.astype(np.float32) / mask.sum(axis=1, keepdims=True, dtype=np.float32)
    return np.matmul(weights[:, None, :], hidden)[:, 0]


def normalise(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1. A row of zeros, which has no direction, stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, np.where(lengths == 0, 1, lengths), dtype=np.float32)
