"""A guard at the tenant boundary that fails loudly."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.errors import ScopeRequired, ScopeViolation
from recalld.item import MemoryItem
from recalld.scope import CtxLike, scope_of


def require_scope(ctx: CtxLike) -> bool:
    """Raises ScopeRequired unless both parts of the scope are set; an empty string is not set."""
    if not scope_of(ctx).complete:
        raise ScopeRequired("ctx.scope needs both org_id and domain_id")
    return True


@dataclass(eq=False)
class ScopedMemory(WrapperMemory):
    """Check the context before every query and every write; the wrapped source is not touched otherwise.

    enforce: takes the context, sync or async; a falsy answer or any exception is a ScopeViolation (a PermissionError).
    Without it, both `org_id` and `domain_id` must be set. The check also comes first for `k <= 0` and empty writes.
    """

    enforce: Callable[[Any], Any] | None = None
    name: str = MIRRORED

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        await self._check(ctx)
        return await self.inner.query(query, k=k, ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        await self._check(ctx)
        await self.inner.write(items, ctx=ctx)

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
