"""The Embedder that the server uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recalld.engine.ports import Embedding, ModelIdentity
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.lane import Lane
from recalld_server.adapters.onnx.model import TextModel
from recalld_server.adapters.onnx.recent import RecentEmbeddings


class OnnxEmbedder:
    """An `Embedder` over one model, for callers of any event loop, also of several at once.

    Queries and documents have a queue and a thread each, on one model: a query shares the cores with a bulk load and
    does not wait for it. Vectors are read-only arrays, since callers share them.
    """

    def __init__(self, model: TextModel, config: EmbedderConfig) -> None:
        bounds = {"max_batch_tokens": config.max_batch_tokens, "max_texts": config.max_queued_texts}
        self._model = model
        self._queries = Lane(model, "queries", **bounds)
        self._documents = Lane(model, "documents", **bounds)
        self._recent = RecentEmbeddings(config.query_cache_size)

    @property
    def identity(self) -> ModelIdentity:
        return self._model.identity

    async def warm(self) -> None:
        """Runs the model once on each path, so that the first caller finds threads and memory in place."""
        await asyncio.gather(self._queries.embed(["warm"]), self._documents.embed(["warm"]))

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """One embedding a text, in order; an empty text has one too.

        Raises Overloaded when the queue is full, SourceUnavailable once closed.
        """
        prefix = self._model.document_prefix
        return await self._documents.embed([prefix + text for text in texts] if prefix else texts)

    async def embed_query(self, text: str) -> Embedding:
        """As `embed_documents`, and remembers the vectors of recent queries."""
        embedding = self._recent.get(text)
        if embedding is None:
            (embedding,) = await self._queries.embed([self._model.query_prefix + text])
            self._recent.put(text, embedding)
        return embedding

    async def close(self) -> None:
        """Ends both threads; whoever waits gets SourceUnavailable. From any event loop; more than one call is fine."""
        await asyncio.gather(self._queries.close(), self._documents.close())


def load_embedder(config: EmbedderConfig | None = None) -> OnnxEmbedder:
    """Loads the model, which blocks for some tenths of a second. Raises BrokenModel naming the file at fault."""
    config = config or EmbedderConfig()
    return OnnxEmbedder(TextModel(config), config)
