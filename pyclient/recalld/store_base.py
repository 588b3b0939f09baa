"""What every store has in common: the short forms of its methods, and being an async context manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

from recalld.item import MemoryItem
from recalld.scope import CtxLike
from recalld.store import ItemPage, SearchQuery, SearchResult, Where, WriteBatch, WriteOutcome


class StoreBase(ABC):
    """The base of the stores of this package; a `MemoryStore` need not have it."""

    @abstractmethod
    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult: ...

    @abstractmethod
    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome: ...

    @abstractmethod
    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The items of a hybrid `search`."""
        return (await self.search(SearchQuery(query, k, where), ctx=ctx)).items

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Commits the items as one batch; an empty write does nothing. Raises CompositeWriteError when a source
        failed."""
        batch = list(items)
        if batch:
            (await self.commit(WriteBatch(batch, idempotency_key), ctx=ctx)).raise_for_failures()

    async def list(self, *, ctx: CtxLike, where: Where = None, page_size: int = 100) -> AsyncIterator[MemoryItem]:
        """Every item that matches, newest first, read page by page."""
        token = ""
        while True:
            page = await self.list_page(ctx=ctx, where=where, page_size=page_size, page_token=token)
            for item in page.items:
                yield item
            token = page.next_page_token
            if not token:
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
