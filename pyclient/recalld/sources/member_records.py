"""The records of a composite: those of its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

from recalld import commit_tokens
from recalld.errors import UnknownSource
from recalld.item import MemoryItem
from recalld.lift import Lifts, keeps_records
from recalld.scope import CtxLike
from recalld.source import MemorySource
from recalld.sources.members import ask_members, label_members, name_failures
from recalld.store import UNSET, AttributeChanges, ItemPage, MemoryStore, Unset, Where
from recalld.store_base import StoreBase


class MemberRecords(StoreBase):
    """What composites do alike as stores: they read and change the records of members, and let go of all members."""

    sources: list[MemorySource]
    name: str

    @property
    def keeps_records(self) -> bool:
        """Whether any member does."""
        return any(keeps_records(source) for source in self.sources)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        return await self._find_reader().get(ids, ctx=ctx)

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        return await self._find_reader().list_page(ctx=ctx, where=where, page_size=page_size, page_token=page_token)

    async def update(
        self,
        id: str,
        *,
        ctx: CtxLike,
        content: str | Literal[Unset.UNSET] = UNSET,
        metadata: Mapping[str, object] | Literal[Unset.UNSET] = UNSET,
        metadata_changes: Mapping[str, object] | None = None,
        attributes: AttributeChanges | Literal[Unset.UNSET] = UNSET,
        if_revision: int | None = None,
    ) -> MemoryItem:
        return await self._find_writers(changes=1)[0].update(
            id,
            ctx=ctx,
            content=content,
            metadata=metadata,
            metadata_changes=metadata_changes,
            attributes=attributes,
            if_revision=if_revision,
        )

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        """Deletes in every member that is to be written to, one after another; gives how many items it took in all. A
        failure is raised after the others were tried; deleting again is safe."""
        count = 0
        failures: list[Exception] = []
        for store in self._find_writers(changes=0 if ids is None else len(ids)):
            try:
                count += await store.delete(ids, ctx=ctx, where=where, dry_run=dry_run)
            except Exception as error:  # noqa: BLE001 - the other members are tried first; it is raised below
                failures.append(error)
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"and in another source: {other}")
            raise failures[0]
        return count

    async def commit_token(self, *, ctx: CtxLike) -> str:
        """One token for the states of all members. A member that fails is left out, and the context's observer is told;
        raises AllSourcesFailed when all do."""
        answers, failures = await ask_members(
            label_members(self._stores()), lambda store, ctx: store.commit_token(ctx=ctx), ctx
        )
        if failures and not answers:
            raise name_failures(failures)
        return commit_tokens.join(answers)

    async def close(self) -> None:
        """Closes every member, the last one first, also when one of them fails to; raises an ExceptionGroup of the
        failures."""
        failures: list[Exception] = []
        for store in reversed(self._stores()):
            try:
                await store.close()
            except Exception as error:  # noqa: BLE001 - the others must be closed too; all are raised below
                failures.append(error)
        if failures:
            raise ExceptionGroup("closing the sources failed", failures)

    def _stores(self) -> list[MemoryStore]:
        """The members as stores, each the same one from call to call."""
        return self._lifts.of(self.sources)

    @cached_property
    def _lifts(self) -> Lifts:
        return Lifts()

    def _find_reader(self) -> MemoryStore:
        """The member whose records are read: the first that keeps any."""
        for store in self._stores():
            if keeps_records(store):
                return store
        raise self._without_records()

    def _find_writers(self, *, changes: int) -> Sequence[MemoryStore]:
        """The members whose records are changed, one or more. changes: how many records a refusal speaks of."""
        return [self._find_reader()]

    def _without_records(self) -> UnknownSource:
        named = self.sources[0].name if len(self.sources) == 1 else self.name
        return UnknownSource(f"source {named!r} keeps no records", details={"source": named})
