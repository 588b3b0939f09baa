"""`LocalMemory`: the rules of a scope's memories, over a record store and an embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal
from weakref import WeakKeyDictionary

from recalld import commit_tokens
from recalld.checks import check_batch, check_delete, check_ids, check_list, check_search, check_update
from recalld.engine.changes import Change, Delete, DeleteMatching, Patch, Put, Update, read_attribute_changes, recall
from recalld.engine.fusion import DEFAULT_CANDIDATES, Candidate, fuse
from recalld.engine.in_memory import InMemoryRecords
from recalld.engine.legs import Legs
from recalld.engine.ports import Clock, Embedder, Embedding, RecordStore
from recalld.engine.records import Receipt, Record
from recalld.engine.turns import ScopeTurns, TurnBounds
from recalld.engine.visibility import ANYTHING, active_unless_named, every, unexpired, visible_to
from recalld.errors import PageTokenMismatch, RecalldError, SourceUnavailable
from recalld.filters import Filter
from recalld.identity import assign_ids, compute_fingerprint, derive_part_key
from recalld.item import MemoryItem, assign_owner
from recalld.lanes import Lanes
from recalld.limits import LIMITS, Limits
from recalld.scope import Ctx, CtxLike, Scope, as_ctx, observe, scope_of
from recalld.source import check_query
from recalld.store import (
    UNSET,
    AttributeChanges,
    ItemPage,
    SearchHit,
    SearchQuery,
    SearchResult,
    Unset,
    Where,
    WriteBatch,
    WriteOutcome,
)
from recalld.store_base import StoreBase
from recalld.where import parse_where

#: From how many items on a batch keeps an embedder busy by itself.
_FILLS_THE_MODEL = 32
#: From how many characters on a batch is checked and digested off the event loop.
_LARGE = 32_768
#: How many scopes may have a queue that is empty.
_SPARE_TURNS = 256


def read_system_clock() -> datetime:
    """The machine's time, in UTC."""
    return datetime.now(UTC)


class LocalMemory(StoreBase):
    """A `MemoryStore` in this process.

    records: where the records are kept; None keeps them in memory, for tests and small tools. embedder: None finds by
    words alone. clock: tells the time. limits: what a call may hold; None where whoever calls has checked already.
    `close` closes the record store; the embedder stays its maker's.

    One turn a scope: read, rules, commit with the head that it was read at. So concurrent writers of one id leave one
    record, in one process or in several over one storage.
    """

    keeps_records = True
    accepts_writes = True

    def __init__(
        self,
        records: RecordStore | None = None,
        embedder: Embedder | None = None,
        *,
        clock: Clock = read_system_clock,
        limits: Limits | None = LIMITS,
        bounds: TurnBounds | None = None,
    ) -> None:
        self._records: RecordStore = InMemoryRecords() if records is None else records
        self._embedder = embedder
        self._clock = clock
        self._limits = limits
        self._bounds = bounds or TurnBounds()
        self._legs = Legs(self._records, embedder)
        self._lanes = Lanes()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Scope, ScopeTurns]] = WeakKeyDictionary()
        self._closed = False

    @property
    def name(self) -> str:
        """What items are stamped with."""
        return self._records.name

    async def query(self, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None = None) -> list[MemoryItem]:
        """The items of a hybrid `search`, at most 1,000 of them."""
        check_query(query, k=k)
        most = (self._limits or LIMITS).max_k
        return await super().query(query, k=min(k, most), ctx=ctx, where=where)

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Commits the items, in batches where they are more than one may hold; all are checked before the first is
        stored. An error of a later batch carries a note of what is stored. idempotency_key: the same items under the
        same key are applied once."""
        whole = list(assign_owner(items, as_ctx(ctx)))
        most = len(whole) if self._limits is None else self._limits.max_batch_items
        if self._limits is not None and len(whole) > most:
            check_batch(whole, as_ctx(ctx), replace(self._limits, max_batch_items=len(whole)))
        for number, start in enumerate(range(0, len(whole), max(1, most))):
            key = derive_part_key(idempotency_key, number) if idempotency_key else ""
            try:
                await self.commit(WriteBatch(whole[start : start + most], key), ctx=ctx)
            except RecalldError as error:
                if start:
                    error.add_note(f"the first {start} of {len(whole)} items are stored")
                raise

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult:
        """Runs the legs that the mode names, fuses their rankings and reads the winners in one call.

        A leg that failed or was late is a degradation, which the context's observer hears of too
        (`memory.source_degraded`); when no leg came through, the first one's error is raised. Raises SourceUnavailable
        while the state of `min_commit_token` is not reached.
        """
        call = as_ctx(ctx)
        if self._limits is not None:
            check_search(query, call, self._limits)
        if query.k <= 0:
            return SearchResult()
        scope = scope_of(call)
        where = parse_where(query.where)
        revision = await self._reached(scope, query.min_commit_token)
        visible = every(unexpired(self._clock()), active_unless_named(where), visible_to(call.user_id), where)
        token = commit_tokens.encode(scope, revision)
        if not query.text:
            newest = await self._records.newest(scope, visible, limit=query.k)
            return SearchResult([SearchHit(item) for item in newest.items], commit_token=token)
        found = await self._legs.run(
            scope,
            query.text,
            visible,
            mode=query.mode,
            depth=max(query.candidates or DEFAULT_CANDIDATES, query.k),
            remaining=call.remaining,
        )
        for each in found.degradations:
            observe(
                call,
                "memory.source_degraded",
                source=self.name,
                component=each.component,
                reason=each.reason,
                message=each.message,
            )
        ranking, fusion = fuse(found.lexical, found.semantic, query.fusion)
        hits = await self._read_winners(scope, ranking[: query.k], visible)
        return SearchResult(hits, found.degradations, token, fusion)

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome:
        """Stores the batch, durably. Raises IdempotencyKeyReused for a key that was used for other items."""
        with self._lanes.enter(batch.lane) as place:
            call = as_ctx(ctx)
            scope = scope_of(call)
            items, fingerprint = await self._prepare(batch, call, scope)
            # Looked up before embedding, so that a late retry costs little; the turn looks again.
            found = await self._records.receipt(scope, batch.idempotency_key) if batch.idempotency_key else None
            if found is not None:
                return self._outcome(scope, recall(found, fingerprint), replayed=True)
            if len(items) >= _FILLS_THE_MODEL:
                # Side by side, the batches of a lane would only slow each other down and be ready late, all at once.
                await place.comes()
            embeddings = await self._embed([item.content for item in items])
            put = Put(items, embeddings, call.user_id, batch.idempotency_key, fingerprint, self._clock())
            await place.comes()
            # Turns take changes in the order of the calls; tasks begin in the order in which they are made.
            answer = asyncio.create_task(self._submit(scope, put))
        receipt, replayed = await answer
        return self._outcome(scope, receipt, replayed=replayed)

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        call = as_ctx(ctx)
        if self._limits is not None:
            check_ids(ids, call, self._limits)
        wanted = list(dict.fromkeys(ids))
        visible = every(unexpired(self._clock()), visible_to(call.user_id))
        found = {item.id: item for item in await self._records.read(scope_of(call), wanted, visible)}
        return [found[id] for id in wanted if id in found]

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        call = as_ctx(ctx)
        if self._limits is not None:
            check_list(where, page_size, call, self._limits)
        condition = parse_where(where)
        visible = every(unexpired(self._clock()), active_unless_named(condition), visible_to(call.user_id), condition)
        page = await self._records.newest(scope_of(call), visible, limit=page_size, before=_read_page_token(page_token))
        return ItemPage(page.items, "" if page.before is None else str(page.before))

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
    ) -> MemoryItem:
        call = as_ctx(ctx)
        changes = None if attributes is UNSET else read_attribute_changes(attributes)
        patch = Patch(
            content=None if content is UNSET else content,
            metadata=None if metadata is UNSET else metadata,
            metadata_changes=metadata_changes,
            attributes=changes,
        )
        if self._limits is not None:
            check_update(
                id,
                call,
                self._limits,
                content=patch.content,
                metadata=patch.metadata,
                metadata_changes=metadata_changes,
                attributes=changes,
                if_revision=if_revision,
            )
        if patch.content is not None:
            (embedding,) = await self._embed([patch.content])
            patch = replace(patch, embedding=embedding)
        record: Record = await self._submit(scope_of(call), Update(id, patch, call.user_id, if_revision, self._clock()))
        return record.item(self.name)

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        call = as_ctx(ctx)
        if self._limits is not None:
            check_delete(ids, where, call, self._limits)
        scope = scope_of(call)
        condition = parse_where(where)
        visible = every(ANYTHING, visible_to(call.user_id), condition)
        if dry_run:
            return await (self._count(scope, ids, visible) if ids is not None else self._records.count(scope, visible))
        if ids is not None:
            return await self._submit(scope, Delete(ids, call.user_id, self._clock()))
        return await self._submit(scope, DeleteMatching(visible, self._clock()))

    async def commit_token(self, *, ctx: CtxLike) -> str:
        scope = scope_of(ctx)
        return commit_tokens.encode(scope, (await self._records.head(scope)).revision)

    async def close(self) -> None:
        """Finishes the changes that wait, then closes the record store."""
        self._closed = True
        for turns in list(self._turns.get(asyncio.get_running_loop(), {}).values()):
            await turns.close()
        await self._records.close()

    # Inside.

    async def _prepare(self, batch: WriteBatch, call: Ctx, scope: Scope) -> tuple[Sequence[MemoryItem], str]:
        """The items with owner and id, checked, and the fingerprint of the batch where it has a key."""

        def prepare() -> tuple[Sequence[MemoryItem], str]:
            items = list(assign_owner(batch.items, call))
            if self._limits is not None:
                check_batch(items, call, self._limits, idempotency_key=batch.idempotency_key)
            items = assign_ids(items, scope=scope, idempotency_key=batch.idempotency_key)
            return items, compute_fingerprint(items) if batch.idempotency_key else ""

        # A batch is as heavy as its texts, or has so many items that their metadata may be.
        large = len(batch.items) > _FILLS_THE_MODEL or sum(len(item.content) for item in batch.items) > _LARGE
        return await asyncio.to_thread(prepare) if large else prepare()

    async def _embed(self, texts: Sequence[str]) -> Sequence[Embedding | None]:
        if self._embedder is None:
            return [None] * len(texts)
        return await self._embedder.embed_documents(texts)

    async def _submit(self, scope: Scope, change: Change) -> Any:
        if self._closed:
            raise SourceUnavailable("the store is closed", details={"source": self.name})
        return await self._turns_of(scope).submit(change)

    def _turns_of(self, scope: Scope) -> ScopeTurns:
        """The scope's queue. Each event loop has its own, since a queue's locks belong to one; between loops, as
        between processes, the head decides."""
        of_loop = self._turns.setdefault(asyncio.get_running_loop(), {})
        turns = of_loop.get(scope)
        if turns is None:
            if len(of_loop) >= _SPARE_TURNS:
                for key in [key for key, each in of_loop.items() if each.idle]:
                    del of_loop[key]
            turns = of_loop[scope] = ScopeTurns(scope, self._records, self._bounds)
        return turns

    def _outcome(self, scope: Scope, receipt: Receipt, *, replayed: bool) -> WriteOutcome:
        token = commit_tokens.encode(scope, receipt.revision)
        return WriteOutcome([self.name], ids=receipt.ids, commit_token=token, replayed=replayed)

    async def _reached(self, scope: Scope, min_commit_token: str) -> int:
        """The scope's revision. Raises SourceUnavailable while it is below what the caller has seen."""
        revision = (await self._records.head(scope)).revision
        if min_commit_token and revision < commit_tokens.decode(scope, min_commit_token):
            raise SourceUnavailable(
                f"source {self.name!r} has not reached the state of min_commit_token", details={"source": self.name}
            )
        return revision

    async def _read_winners(self, scope: Scope, ranking: Sequence[Candidate], visible: Filter) -> Sequence[SearchHit]:
        if not ranking:
            return []
        # Read under the same filter again: what was deleted or hidden since the legs ran must not come back.
        items = {item.id: item for item in await self._records.read(scope, [each.id for each in ranking], visible)}
        return [
            SearchHit(
                replace(items[each.id], score=each.score),
                each.lexical_rank,
                each.lexical_score,
                each.semantic_rank,
                each.semantic_score,
            )
            for each in ranking
            if each.id in items
        ]

    async def _count(self, scope: Scope, ids: Sequence[str], visible: Filter) -> int:
        return len(await self._records.read(scope, list(dict.fromkeys(ids)), visible))


def _read_page_token(token: str) -> int | None:
    """The place in a list that a token names. It can be forged, so it may be any text."""
    if not token:
        return None
    # Places are 64-bit; the length is looked at first, since a long number takes long to read.
    if not (token.isascii() and token.isdecimal() and len(token) < 20 and int(token) < 2**63):
        raise PageTokenMismatch(violations={"page_token": "was not made by this store"})
    return int(token)
