"""The engine of the server in this process, without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from recalld.engine import LocalMemory
from recalld.errors import SourceUnavailable
from recalld.item import MemoryItem
from recalld.scope import Ctx, CtxLike, Scope
from recalld.sources.vector import Chunk
from recalld.store import (
    UNSET,
    AttributeChanges,
    ItemPage,
    RetrievalMode,
    SearchQuery,
    SearchResult,
    Unset,
    Where,
    WriteBatch,
    WriteOutcome,
)
from recalld.store_base import StoreBase
from recalld_server.adapters.onnx.embedder import OnnxEmbedder
from recalld_server.adapters.onnx.model import TextModel
from recalld_server.settings import load_settings
from recalld_server.wiring import embedder_config, limits_of, open_memory

#: What settings are called where they are arguments.
_ARGUMENTS = {"data": "path", "model": "model"}


@dataclass(frozen=True, slots=True)
class _Opened:
    """The engine in one event loop, and what closes it."""

    memory: LocalMemory
    resources: AsyncExitStack


class EmbeddedMemory(StoreBase):
    """`LocalMemory` on LanceDB and ONNX: a `MemoryStore` over the store, embedder and search that the server uses.

    What is written here, a server on the same directory serves, and the other way round; the limits are the server's
    too. It opens on first use, in any event loop, also in several at once, and works as an async context manager; a
    call after `close` opens it anew.

    name: what items are stamped with. path: the data directory. model: an embedding model's directory, None for the
    bundled one. Every other setting is the server's, also from the environment. Raises SettingsError (a ValueError).
    """

    keeps_records = True
    accepts_writes = True

    def __init__(self, path: str | Path, *, name: str = "memory", model: Path | None = None) -> None:
        self.name = name
        self._settings = load_settings({"data": str(path), "model": model}, None, spelled=_ARGUMENTS.__getitem__)
        self._model: TextModel | None = None
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[_Opened]] = WeakKeyDictionary()

    @property
    def vectors(self) -> EmbeddedVectors:
        """The same memories as a `VectorPort`, for `VectorMemory`: by meaning alone."""
        return EmbeddedVectors(self)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        return await (await self._open()).query(query, k=k, ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        await (await self._open()).write(items, ctx=ctx, idempotency_key=idempotency_key)

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        return await (await self._open()).search(query, ctx=ctx)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        return await (await self._open()).commit(batch, ctx=ctx)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        return await (await self._open()).get(ids, ctx=ctx)

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        opened = await self._open()
        return await opened.list_page(ctx=ctx, where=where, page_size=page_size, page_token=page_token)

    async def update(
        self,
        id: str,
        *,
        ctx: CtxLike,
        content: str | Literal[Unset.UNSET] = UNSET,
        metadata: Mapping[str, Any] | Literal[Unset.UNSET] = UNSET,
        metadata_changes: Mapping[str, Any] | None = None,
        attributes: AttributeChanges | Literal[Unset.UNSET] = UNSET,
        if_revision: int | None = None,
    ) -> MemoryItem:
        return await (await self._open()).update(
            id,
            ctx=ctx,
            content=content,
            metadata=metadata,
            metadata_changes=metadata_changes,
            attributes=attributes,
            if_revision=if_revision,
        )

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        return await (await self._open()).delete(ids, ctx=ctx, where=where, dry_run=dry_run)

    async def commit_token(self, *, ctx: CtxLike) -> str:
        return await (await self._open()).commit_token(ctx=ctx)

    async def close(self) -> None:
        """Finishes what was taken in this event loop and closes the store here."""
        opening = self._opened.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).resources.aclose()

    async def _open(self) -> LocalMemory:
        # LanceDB's handles, the queues and the locks belong to an event loop; the model is for all. What an ended loop
        # left goes with it: between its calls it holds nothing of the directory.
        loop = asyncio.get_running_loop()
        opening = self._opened.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._opened[loop] = asyncio.create_task(self._open_here())
        try:
            return (await asyncio.shield(opening)).memory
        except asyncio.CancelledError:
            if opening.cancelled():
                raise SourceUnavailable("opening was cancelled", details={"source": self.name}) from None
            raise

    async def _open_here(self) -> _Opened:
        config = embedder_config(self._settings)
        if self._model is None:
            self._model = await asyncio.to_thread(TextModel, config)
        async with AsyncExitStack() as stack:
            embedder = OnnxEmbedder(self._model, config)
            stack.push_async_callback(embedder.close)
            memory = await open_memory(
                self._settings, self.name, self._settings.data, embedder, limits=limits_of(self._settings)
            )
            stack.push_async_callback(memory.close)
            return _Opened(memory, stack.pop_all())
        raise AssertionError("an exit stack does not swallow errors")


class EmbeddedVectors:
    """A `VectorPort` over an `EmbeddedMemory`; its score is a cosine similarity."""

    def __init__(self, memory: EmbeddedMemory) -> None:
        self._memory = memory

    async def upsert(self, chunks: Sequence[Chunk], *, scope: Scope) -> None:
        """Stores the chunks, replacing those of the same id. Raises as `write` does."""
        items = [MemoryItem(chunk.text, self._memory.name, None, chunk.metadata, id=chunk.id) for chunk in chunks]
        await self._memory.write(items, ctx=Ctx(scope))

    async def search(
        self, query: str, *, k: int, scope: Scope, where: dict[str, Any] | None = None
    ) -> list[tuple[float, Chunk]]:
        """The `k` chunks nearest in meaning, at most 1,000, with their cosine similarity. Raises as a search does."""
        asked = SearchQuery(query, min(k, 1000), where, RetrievalMode.SEMANTIC)
        result = await self._memory.search(asked, ctx=Ctx(scope))
        return [
            (hit.item.score or 0.0, Chunk(hit.item.id or "", hit.item.content, dict(hit.item.metadata)))
            for hit in result.hits
        ]
