"""Who a call is for, and what it carries on from hop to hop: the tenant boundary and the context of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Scope:
    """The tenant of a call. An empty string counts as unset in both fields.

    org_id: the organisation, the customer whose data must meet no other's. domain_id: a part of it that is kept apart
    (a product, a project, an environment). Each pair is a store of its own: nothing is found, counted or ranked across.
    """

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
    """What the library relies on in a caller's own context; the other fields of `Ctx` are read where they exist."""

    @property
    def scope(self) -> ScopeLike: ...


Observe = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Ctx:
    """The context of one call.

    Structural: any object with `.scope.org_id` and `.scope.domain_id` serves in its place.

    user_id: on whose behalf the call is made; other users' private memories are neither seen nor touched. observe:
    takes an event name (`memory.source_failed`) and its fields. session_id, agent_id, run_id: what is written names
    them where the items name none. request_id: names the call in every log on its way. deadline: when nobody waits
    any more, in seconds of `time.monotonic()`. trace: a W3C `traceparent`. hops, via: how many servers the call came
    through, and their ids, so that servers that name each other stop at once.
    """

    scope: ScopeLike = Scope()
    run_id: str | None = None
    user_id: str | None = None
    observe: Observe | None = None
    _: KW_ONLY
    session_id: str | None = None
    agent_id: str | None = None
    request_id: str | None = None
    deadline: float | None = None
    trace: str | None = None
    hops: int = 0
    via: tuple[str, ...] = ()

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        return remaining_of(self)


#: The fields of a context that a caller's own object may have or lack.
_OPTIONAL = ("run_id", "user_id", "observe", "session_id", "agent_id", "request_id", "deadline", "trace")


def as_ctx(ctx: CtxLike) -> Ctx:
    """The same context as a `Ctx`, with empty strings folded to None in the scope and the ids."""
    if isinstance(ctx, Ctx) and isinstance(ctx.scope, Scope):
        return ctx
    return Ctx(
        scope_of(ctx),
        **{name: getattr(ctx, name, None) or None for name in _OPTIONAL},
        hops=getattr(ctx, "hops", 0),
        via=tuple(getattr(ctx, "via", ())),
    )


def scope_of(ctx: CtxLike) -> Scope:
    """The scope of any context, with empty strings folded to None."""
    return Scope(ctx.scope.org_id or None, ctx.scope.domain_id or None)


def user_of(ctx: CtxLike) -> str | None:
    """The user on whose behalf the call runs, if the context says so."""
    user: str | None = getattr(ctx, "user_id", None)
    return user or None


def remaining_of(ctx: CtxLike) -> float | None:
    """Seconds until the deadline of any context, at least 0; None without one."""
    deadline: float | None = getattr(ctx, "deadline", None)
    return None if deadline is None else max(0.0, deadline - time.monotonic())


_LISTENERS: ContextVar[tuple[Observe, ...]] = ContextVar("recalld_listeners", default=())


@contextmanager
def listening(listener: Observe) -> Generator[None]:
    """Within the block (and in tasks that it starts) the listener hears what the context's observer is told, also where
    the context has none."""
    token = _LISTENERS.set((*_LISTENERS.get(), listener))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


def observe(ctx: CtxLike, event: str, **fields: Any) -> None:
    """Tells the context's observer, if it has one, of something that happened."""
    for listener in _LISTENERS.get():
        listener(event, fields)
    observer: Observe | None = getattr(ctx, "observe", None)
    if observer is not None:
        observer(event, fields)
