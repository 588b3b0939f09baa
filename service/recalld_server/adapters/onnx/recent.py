"""The vectors of recent queries."""

from __future__ import annotations

import threading
from collections import OrderedDict

from recalld.engine.ports import Embedding


class RecentEmbeddings:
    """At most `size` embeddings by text; the one least recently asked for goes first. For any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Embedding] = OrderedDict()

    def get(self, text: str) -> Embedding | None:
        with self._lock:
            embedding = self._kept.get(text)
            if embedding is not None:
                self._kept.move_to_end(text)
            return embedding

    def put(self, text: str, embedding: Embedding) -> None:
        with self._lock:
            self._kept[text] = embedding
            self._kept.move_to_end(text)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
