"""The engine of the server in this process, behind the library's own seams and without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recalld.errors import InvalidField, RecalldError, ScopeRequired
from recalld.item import MemoryItem, owned
from recalld.limits import Limits
from recalld.scope import CtxLike, Scope, observe, scope_of, user_of
from recalld.sources.vector import Chunk
from recalld.where import parse_where
from recalld.wire import Violations, checked_text, encode_writes
from recalld_server.application import Application
from recalld_server.ports import Mode, QuerySpec, Ranked
from recalld_server.settings import load_settings
from recalld_server.transport.requests import read_items
from recalld_server.wiring import application


class EmbeddedMemory:
    """A `MemorySource` and a `VectorPort` over the store, embedder and search that the server uses.

    What is written here, a server on the same directory serves, and the other way round; the limits are the server's
    too. `query` finds by words and by meaning; `search` by meaning alone, so that its score is a cosine similarity.
    It opens on first use, belongs to the event loop of that use, and works as an async context manager.

    name: what items are stamped with. path: the data directory. model: an embedding model's directory, None for the
    bundled one. Every other setting is the server's, also from the environment. Raises SettingsError (a ValueError).
    """

    def __init__(self, path: str | Path, *, name: str = "memory", model: Path | None = None) -> None:
        self.name = name
        self._settings = load_settings({"data": str(path), "model": model}, None)
        self._limits = Limits()
        self._opened: AsyncExitStack | None = None
        self._application: Application | None = None
        self._opening = asyncio.Lock()

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The best `k` items of `ctx.scope`, at most 1000, on behalf of `ctx.user_id`.

        A leg that failed is observed: `memory.source_degraded` with `source`, `component`, `reason` and `message`.
        Raises InvalidFilter, InvalidField and ScopeRequired before anything is touched.
        """
        ranked = await self._search(query, k, scope_of(ctx), where, Mode.HYBRID, on_behalf_of=user_of(ctx) or "")
        for each in ranked.degradations:
            observe(
                ctx,
                "memory.source_degraded",
                source=self.name,
                component=each.component,
                reason=each.reason,
                message=each.message,
            )
        return [self._stamped(hit.item) for hit in ranked.hits]

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Stores the items durably.

        An item that names no user is `ctx.user_id`'s. An item's `id` is kept and writes that record; one without gets a
        fresh id.

        All items are checked before anything is stored. Raises InvalidField, naming every violation, and ScopeRequired.
        """
        await self._write(encode_writes(owned(items, user_of(ctx))), scope_of(ctx))

    async def upsert(self, chunks: Sequence[Chunk], *, scope: Scope) -> None:
        """Stores the chunks, replacing those of the same id. Raises as `write` does."""
        items = [MemoryItem(chunk.text, self.name, None, chunk.metadata, id=chunk.id) for chunk in chunks]
        await self._write(encode_writes(items), scope)

    async def search(
        self, query: str, *, k: int, scope: Scope, where: dict[str, Any] | None = None
    ) -> list[tuple[float, Chunk]]:
        """The `k` chunks nearest in meaning, with their cosine similarity. Raises as `query` does."""
        ranked = await self._search(query, k, scope, where, Mode.SEMANTIC)
        return [
            (hit.item.score or 0.0, Chunk(hit.item.id or "", hit.item.content, hit.item.metadata))
            for hit in ranked.hits
        ]

    async def close(self) -> None:
        """Finishes what was taken and closes the store; a call after that opens it anew."""
        async with self._opening:
            opened, self._opened, self._application = self._opened, None, None
            if opened is not None:
                await opened.aclose()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self) -> Application:
        async with self._opening:
            if self._application is None:
                stack = AsyncExitStack()
                self._application = await stack.enter_async_context(application(self._settings))
                self._opened = stack
            return self._application

    async def _search(
        self, query: str, k: int, scope: Scope, where: dict[str, Any] | None, mode: Mode, on_behalf_of: str = ""
    ) -> Ranked:
        condition = parse_where(where)
        _require(scope)
        if k <= 0:
            return Ranked(())
        violations: Violations = {}
        text = checked_text(query, "query", violations)
        if len(text.encode("utf-8", "replace")) > self._limits.max_query_bytes:
            violations["query"] = f"is longer than {self._limits.max_query_bytes} bytes"
        if violations:
            raise InvalidField(violations=violations)
        spec = QuerySpec(text, min(k, self._limits.max_k), condition, mode, on_behalf_of=on_behalf_of)
        return await (await self._open()).query(scope, spec, ())

    async def _write(self, items: Sequence[Any], scope: Scope) -> None:
        _require(scope)
        checked = read_items(scope, items, self._limits)
        opened = await self._open()
        most = self._limits.max_batch_items
        for at in range(0, len(checked), most):
            try:
                await opened.write(scope, checked[at : at + most], idempotency_key="", sources=())
            except RecalldError as error:
                if at:
                    error.add_note(f"the first {at} of {len(checked)} items are stored")
                raise

    def _stamped(self, item: MemoryItem) -> MemoryItem:
        return item if item.source == self.name else replace(item, source=self.name)


def _require(scope: Scope) -> None:
    if not scope.complete:
        raise ScopeRequired("the scope needs an org_id and a domain_id")
