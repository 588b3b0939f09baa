"""A source that is read-only by policy says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.errors import InvalidField, MemoryWriteRefused
from recalld.item import MemoryItem
from recalld.scope import CtxLike, observe

OnWritePolicy = Literal["refuse", "ignore"]
"""What a `ReadOnlyMemory` does with a write: raise, or drop it and return."""


@dataclass(eq=False)
class ReadOnlyMemory(WrapperMemory):
    """Let every query through untouched and no write at all.

    on_write: `"refuse"` raises MemoryWriteRefused; `"ignore"` drops the write and returns, so that one read-only member
    does not make a whole fan-out fail. A dropped write is not silent: `refused_writes` counts it, the context's
    observer is told (`memory.write_refused` with `source` and `count`), and `accepts_writes` is False, so a composite
    files the member as refused and not as accepted. Raises InvalidField (a ValueError) for another policy word.
    """

    on_write: OnWritePolicy = "refuse"
    name: str = MIRRORED
    #: How many calls of `write` were turned away, under either policy, empty ones included.
    refused_writes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.on_write not in get_args(OnWritePolicy):
            raise InvalidField(f"on_write is 'refuse' or 'ignore', not {self.on_write!r}")

    @property
    def accepts_writes(self) -> bool:
        """False, under either policy."""
        return False

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike) -> None:
        """Turn the write away, an empty one too: what calls this has items sooner or later, and should learn it now."""
        count = len(list(items))
        source = self.inner.name
        self.refused_writes += 1
        observe(ctx, "memory.write_refused", source=source, count=count)
        if self.on_write == "refuse":
            raise MemoryWriteRefused(source=source, n=count)
