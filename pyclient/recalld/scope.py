"""Who a call is for: the tenant boundary and the context that carries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Scope:
    """The tenant of a call. An empty string counts as unset in both fields."""

    org_id: str | None = None
    domain_id: str | None = None

    @property
    def complete(self) -> bool:
        """Whether both parts are set."""
        return bool(self.org_id) and bool(self.domain_id)


class ScopeLike(Protocol):
    """What the library reads of a scope."""

    @property
    def org_id(self) -> str | None: ...
    @property
    def domain_id(self) -> str | None: ...


class CtxLike(Protocol):
    """What the library relies on in a caller's own context.

    `run_id`, `user_id` and `observe` are read where they exist.
    """

    @property
    def scope(self) -> ScopeLike: ...


Observe = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Ctx:
    """The context of one call.

    Structural: any object with `.scope.org_id` and `.scope.domain_id` serves in its place.
    `observe` takes an event name (`memory.source_failed`) and its fields.
    """

    scope: ScopeLike = Scope()
    run_id: str | None = None
    user_id: str | None = None
    observe: Observe | None = None


def scope_of(ctx: CtxLike) -> Scope:
    """The scope of any context, with empty strings folded to None."""
    return Scope(ctx.scope.org_id or None, ctx.scope.domain_id or None)


def user_of(ctx: CtxLike) -> str | None:
    """The user on whose behalf the call runs, if the context says so."""
    user: str | None = getattr(ctx, "user_id", None)
    return user or None


def observe(ctx: CtxLike, event: str, **fields: Any) -> None:
    """Tells the context's observer, if it has one, of something that happened."""
    observer: Observe | None = getattr(ctx, "observe", None)
    if observer is not None:
        observer(event, fields)
