"""The one wrapper that delegates everything; every decorator is this plus one opinion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.source import MemorySource, accepts_writes


class _Wrapping(Protocol):
    inner: MemorySource


class MirroredName:
    """The field `name` of a decorator: the explicit name, or else what the wrapped source is called now.

    Not copied at construction, because a remote source may learn its name later. It is the label of the decorator
    only; items keep the stamp of the wrapped source.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_{name}"

    def __get__(self, wrapper: _Wrapping | None, owner: type) -> str:
        if wrapper is None:
            return ""  # the default of the dataclass field
        own: str = vars(wrapper).get(self._key, "")
        return own or wrapper.inner.name

    def __set__(self, wrapper: _Wrapping, name: str) -> None:
        vars(wrapper)[self._key] = name


#: The default of a decorator's `name: str`. `Any`, because type checkers see no `str` in a descriptor.
MIRRORED: Any = MirroredName()


@dataclass(eq=False)
class WrapperMemory:
    """A source that hands everything to another one. Subclass it and change what you have an opinion about.

    A dataclass among the subclasses takes an explicit name with `name: str = MIRRORED`.
    """

    inner: MemorySource

    # Not a field here: it would come before the fields of every subclass.
    name = MIRRORED

    @property
    def accepts_writes(self) -> bool:
        """Whether the wrapped source accepts writes."""
        return accepts_writes(self.inner)

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        return await self.inner.query(query, k=k, ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        await self.inner.write(items, ctx=ctx)
