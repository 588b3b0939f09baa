"""A source that is read-only by policy says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, get_args

from recalld.decorators.wrapper import MIRRORED, WrapperMemory
from recalld.errors import InvalidField, MemoryWriteRefused
from recalld.item import MemoryItem
from recalld.scope import CtxLike, observe
from recalld.store import UNSET, AttributeChanges, Unset, Where, WriteBatch, WriteOutcome

OnWritePolicy = Literal["refuse", "ignore"]
"""What a `ReadOnlyMemory` does with a write: raise, or drop it and return."""


@dataclass(eq=False)
class ReadOnlyMemory(WrapperMemory):
    """Let every read through untouched and no change at all.

    on_write: `"refuse"` raises MemoryWriteRefused; `"ignore"` drops the write and returns, so that one read-only member
    does not make a whole fan-out fail. A dropped write is not silent: `refused_writes` counts it, the context's
    observer is told (`memory.write_refused` with `source` and `count`), and `accepts_writes` is False, so a composite
    files the member as refused and not as accepted. Raises InvalidField (a ValueError) for another policy word.

    An update and a delete raise MemoryWriteRefused under either policy, a dry run too: who names a record must not be
    told that it changed.
    """

    on_write: OnWritePolicy = "refuse"
    name: str = MIRRORED
    #: How many calls that change something were turned away, under either policy, empty writes included.
    refused_writes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.on_write not in get_args(OnWritePolicy):
            raise InvalidField(f"on_write is 'refuse' or 'ignore', not {self.on_write!r}")

    @property
    def accepts_writes(self) -> bool:
        """False, under either policy."""
        return False

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Turn the write away, an empty one too: what calls this has items sooner or later, and should learn it now."""
        self._turn_away(len(list(items)), ctx)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        """Turn the batch away; where it is ignored, the outcome has this memory's name among the refused."""
        self._turn_away(len(batch.items), ctx)
        return WriteOutcome(refused=[self.name])

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
    ) -> NoReturn:
        self._refuse(1, ctx)

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> NoReturn:
        self._refuse(0 if ids is None else len(ids), ctx)

    def _turn_away(self, count: int, ctx: CtxLike) -> None:
        if self.on_write == "refuse":
            self._refuse(count, ctx)
        self._tell(count, ctx)

    def _refuse(self, count: int, ctx: CtxLike) -> NoReturn:
        self._tell(count, ctx)
        raise MemoryWriteRefused(source=self.inner.name, n=count)

    def _tell(self, count: int, ctx: CtxLike) -> None:
        self.refused_writes += 1
        observe(ctx, "memory.write_refused", source=self.inner.name, count=count)
