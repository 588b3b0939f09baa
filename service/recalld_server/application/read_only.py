"""A source that is read-only by policy, on the server's side of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn

from recalld.errors import MemoryWriteRefused
from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application.composition import RecordSource
from recalld_server.ports import Batch, Committed, Deleted, Page, QuerySpec, Ranked, Source

Policy = Literal["refuse", "ignore"]


class ReadOnlySource:
    """Passes reads on as they are. A write raises MemoryWriteRefused, or is dropped where the policy is ignore."""

    accepts_writes = False

    def __init__(self, inner: Source, policy: Policy) -> None:
        self._inner = inner
        self._policy = policy
        self.name = inner.name
        self.kind = inner.kind

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        return await self._inner.search(scope, spec)

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        if self._policy == "refuse":
            raise MemoryWriteRefused(source=self.name, n=len(batch.items))
        return Committed(())

    async def close(self) -> None:
        await self._inner.close()


class ReadOnlyRecords(ReadOnlySource):
    """The same for a source that holds records. To update or delete is refused under either policy: a caller who
    names a record must not be told that it changed."""

    _inner: RecordSource

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[MemoryItem]:
        return await self._inner.get(scope, ids)

    async def list(self, scope: Scope, where: Filter | None, *, limit: int, cursor: str | None) -> Page:
        return await self._inner.list(scope, where, limit=limit, cursor=cursor)

    async def update(
        self, scope: Scope, item: MemoryItem, mask: Sequence[tuple[str, ...]], *, if_revision: int | None
    ) -> NoReturn:
        raise MemoryWriteRefused(source=self.name, n=1)

    async def delete(self, scope: Scope, selected: Sequence[str] | Filter, *, dry_run: bool) -> Deleted:
        raise MemoryWriteRefused(source=self.name, n=0)
