"""A guard at the tenant boundary that fails loudly."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.errors import ScopeRequired, ScopeViolation
from recalld.item import MemoryItem
from recalld.scope import CtxLike, scope_of
from recalld.store import ItemPage, SearchQuery, SearchResult, Where, WriteBatch, WriteOutcome


def require_scope(ctx: CtxLike) -> bool:
    """Raises ScopeRequired unless both parts of the scope are set; an empty string is not set."""
    if not scope_of(ctx).complete:
        raise ScopeRequired("ctx.scope needs both org_id and domain_id")
    return True


@dataclass(eq=False)
class ScopedMemory(WrapperMemory):
    """Check the context before every call but `close`; the wrapped source is not touched otherwise.

    enforce: takes the context, sync or async; a falsy answer or any exception is a ScopeViolation (a PermissionError).
    Without it, both `org_id` and `domain_id` must be set. The check also comes first for `k <= 0` and empty writes, and
    for each page of a list.
    """

    enforce: Callable[[Any], Any] | None = None
    name: str = MIRRORED

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        await self._check(ctx)
        return await super().query(query, k=k, ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        await self._check(ctx)
        await super().write(items, ctx=ctx, idempotency_key=idempotency_key)

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        await self._check(ctx)
        return await super().search(query, ctx=ctx)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        with self._lanes.enter(batch.lane) as place:
            await self._check(ctx)
            await place.comes()
            # Tasks begin in the order in which they are made: before the next of the lane finds its place free.
            committing = asyncio.create_task(super().commit(batch, ctx=ctx))
        return await committing

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        await self._check(ctx)
        return await super().get(ids, ctx=ctx)

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        await self._check(ctx)
        return await super().list_page(ctx=ctx, where=where, page_size=page_size, page_token=page_token)

    async def update(self, id: str, *, ctx: CtxLike, **changes: Any) -> MemoryItem:
        await self._check(ctx)
        return await super().update(id, ctx=ctx, **changes)

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        await self._check(ctx)
        return await super().delete(ids, ctx=ctx, where=where, dry_run=dry_run)

    async def commit_token(self, *, ctx: CtxLike) -> str:
        await self._check(ctx)
        return await super().commit_token(ctx=ctx)

    async def _check(self, ctx: CtxLike) -> None:
        try:
            verdict = (self.enforce or require_scope)(ctx)
            if inspect.isawaitable(verdict):
                verdict = await verdict
            allowed = bool(verdict)
        except ScopeViolation:
            raise
        except Exception as error:
            raise ScopeViolation(f"source {self.name!r} is closed to this context: {error}") from error
        if not allowed:
            raise ScopeViolation(f"source {self.name!r} is closed to this context")
