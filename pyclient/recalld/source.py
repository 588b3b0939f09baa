"""The seam: what a source of memories is, and what a reranker is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from recalld.errors import WrongType
from recalld.item import MemoryItem
from recalld.values import Violations, name_type


@runtime_checkable
class MemorySource(Protocol):
    """Something that finds memories and may take new ones.

    Callers rely on this: `name` is stamped on every item that the source returns; `query` gives at most `k` items,
    best first, and `[]` for `k <= 0` without touching a backend; a source whose backend holds several tenants keeps
    to `ctx.scope`; `write` returns only when the items are stored, and raises otherwise. A source that cannot take
    writes returns from `write` having stored nothing and has `accepts_writes = False`.

    `ctx` is a `Ctx` or anything shaped like one (`CtxLike`). It is `Any` here because a source may ask for more: one
    that annotates its own framework's context is still a source of this protocol.
    """

    @property
    def name(self) -> str: ...

    async def query(self, query: str, *, k: int, ctx: Any, where: dict[str, Any] | None = None) -> list[MemoryItem]: ...

    async def write(self, items: Iterable[MemoryItem], *, ctx: Any) -> None: ...


@runtime_checkable
class Reranker(Protocol):
    """A second pass over merged items; gives at most `k` of them, best first."""

    async def __call__(self, query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]: ...


def check_query(query: Any, *, k: Any) -> None:
    """Raises WrongType, naming each, unless the query is a str and `k` an int; a bool is none."""
    violations: Violations = {}
    if not isinstance(query, str):
        violations["query"] = f"must be a str, not {name_type(query)}"
    if not isinstance(k, int) or isinstance(k, bool):
        violations["k"] = f"must be an int, not {name_type(k)}"
    if violations:
        raise WrongType(violations=violations)


def accepts_writes(source: MemorySource) -> bool:
    """Whether a write to `source` can be stored. A source that does not say accepts writes."""
    return bool(getattr(source, "accepts_writes", True))
