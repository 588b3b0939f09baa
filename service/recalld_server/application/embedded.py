"""The embedded engine: a store and an embedder as one hybrid source."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

from recalld.errors import DeadlineExceeded, InternalFailure, PageTokenMismatch, RecalldError, SourceUnavailable
from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application import tokens
from recalld_server.application.fusion import DEFAULT_CANDIDATES, Candidate, fuse
from recalld_server.application.identity import fingerprint
from recalld_server.application.turns import Turns
from recalld_server.application.visibility import ANYTHING, active_unless_named, every, readable_by, unexpired
from recalld_server.ports import (
    Batch,
    Clock,
    Commit,
    Committed,
    Degradation,
    Deleted,
    Embedder,
    Hit,
    Lexical,
    Mode,
    Page,
    Patch,
    QuerySpec,
    Ranked,
    Receipt,
    Row,
    Scored,
    Store,
)

_LOG = logging.getLogger(__name__)

Found = TypeVar("Found")

#: From how many items on a batch keeps the embedder busy by itself.
_FILLS_THE_MODEL = 32

#: The share of a source's time that a leg may take; the rest is for reading the winners.
_LEG_SHARE = 0.8

#: The last place of a list: places are 64-bit integers.
_LAST_PLACE = 2**63 - 1
#: More digits than a place has, and few enough to read as a number whatever they say.
_PLACE_DIGITS = 20


class EmbeddedSource:
    """Finds by words and by meaning, fused, over one store; a `Source` and `Records`."""

    kind = "lancedb"
    accepts_writes = True

    def __init__(self, name: str, store: Store, embedder: Embedder, clock: Clock) -> None:
        self.name = name
        self._store = store
        self._embedder = embedder
        self._clock = clock
        self._turns = Turns()

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        """Runs the legs that `spec.mode` names at the same time, each under the same filter, and reads the winners in
        one call. A leg that fails or is late is a degradation while the other answers; without any, its error."""
        revision = await self._reached(scope, spec.min_commit_token)
        visible = every(
            unexpired(self._clock.now()), active_unless_named(spec.where), readable_by(spec.on_behalf_of), spec.where
        )
        token = tokens.encode(scope, revision)
        if not spec.text:
            listed = await self._store.newest(scope, visible, limit=spec.k, before=None)
            return Ranked([Hit(item) for item in listed.items], commit_token=token)
        lexical, semantic, degradations = await self._run_legs(scope, spec, visible)
        ranking, fusion = fuse(lexical, semantic, spec.fusion)
        return Ranked(await self._read(scope, ranking[: spec.k], visible), degradations, token, fusion)

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        receipt = Receipt(batch.idempotency_key, fingerprint(batch.items)) if batch.idempotency_key else None
        with self._turns.enter(batch.lane) as turn:
            # Looked up before embedding, so that a late retry costs little; the store looks again when it commits.
            replayed = await self._store.receipt(scope, receipt) if receipt else None
            if replayed is not None:
                return _committed(scope, replayed)
            if len(batch.items) >= _FILLS_THE_MODEL:
                # Side by side, the batches of a lane would only slow each other down and be ready late, all at once.
                await turn.comes()
            embeddings = await self._embedder.embed_documents([item.content for item in batch.items])
            rows = [
                Row(item, embedding.vector, embedding.truncated)
                for item, embedding in zip(batch.items, embeddings, strict=True)
            ]
            await turn.comes()
            # The store takes puts in the order in which they begin; tasks begin in the order in which they are made.
            put = asyncio.create_task(self._store.put(scope, rows, receipt, now=self._clock.now()))
        return _committed(scope, await put)

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[MemoryItem]:
        return await self._store.read(scope, ids, unexpired(self._clock.now()))

    async def list(self, scope: Scope, where: Filter | None, *, limit: int, cursor: str | None) -> Page:
        visible = every(unexpired(self._clock.now()), active_unless_named(where), where)
        listed = await self._store.newest(scope, visible, limit=limit, before=_place(cursor))
        return Page(listed.items, None if listed.before is None else str(listed.before))

    async def update(
        self, scope: Scope, item: MemoryItem, mask: Sequence[tuple[str, ...]], *, if_revision: int | None
    ) -> tuple[MemoryItem, str]:
        embedding = None
        if ("content",) in mask:
            (embedding,) = await self._embedder.embed_documents([item.content])
        now = self._clock.now()
        patch = Patch(item, mask, embedding, if_revision)
        updated, revision = await self._store.update(scope, patch, unexpired(now), now=now)
        return updated, tokens.encode(scope, revision)

    async def delete(self, scope: Scope, selected: Sequence[str] | Filter, *, dry_run: bool) -> Deleted:
        """By filter, superseded, archived and expired items go too: who asks for deletion means all of it."""
        count, revision = await self._store.delete(scope, selected, ANYTHING, dry_run=dry_run, now=self._clock.now())
        return Deleted(count, tokens.encode(scope, revision))

    async def close(self) -> None:
        await self._store.close()

    async def _reached(self, scope: Scope, min_commit_token: str) -> int:
        """The scope's revision. Raises SourceUnavailable while it is below what the caller has seen."""
        revision = await self._store.revision(scope)
        if min_commit_token and revision < tokens.decode(scope, min_commit_token):
            raise SourceUnavailable(
                f"source {self.name!r} has not reached the state of min_commit_token", details={"source": self.name}
            )
        return revision

    async def _run_legs(
        self, scope: Scope, spec: QuerySpec, visible: Filter
    ) -> tuple[Lexical | None, Sequence[Scored] | None, list[Degradation]]:
        """What each leg found, None for one that did not run or did not come through, and why not."""
        depth = max(spec.candidates or DEFAULT_CANDIDATES, spec.k)
        timeout = None if spec.timeout is None else spec.timeout * _LEG_SHARE
        by_words = spec.mode != Mode.SEMANTIC
        by_meaning = spec.mode != Mode.LEXICAL
        lexical, semantic = await asyncio.gather(
            _within(timeout, "lexical", self._store.lexical(scope, spec.text, visible, limit=depth))
            if by_words
            else _nothing(),
            _within(timeout, "semantic", self._semantic(scope, spec.text, visible, depth))
            if by_meaning
            else _nothing(),
        )
        failures = {
            leg: result
            for leg, result in (("lexical", lexical), ("semantic", semantic))
            if isinstance(result, RecalldError)
        }
        if len(failures) == by_words + by_meaning:
            raise next(iter(failures.values()))
        degradations = [Degradation(f"{self.name}/{leg}", error.reason, str(error)) for leg, error in failures.items()]
        return _found(lexical), _found(semantic), degradations

    async def _semantic(self, scope: Scope, text: str, visible: Filter, depth: int) -> Sequence[Scored]:
        embedding = await self._embedder.embed_query(text)
        return await self._store.semantic(scope, embedding.vector, visible, limit=depth)

    async def _read(self, scope: Scope, ranking: Sequence[Candidate], visible: Filter) -> Sequence[Hit]:
        if not ranking:
            return []
        # Read under the same filter again: what was deleted or hidden since the legs ran must not come back.
        items = {item.id: item for item in await self._store.read(scope, [each.id for each in ranking], visible)}
        return [
            Hit(
                replace(items[each.id], score=each.score),
                each.lexical_rank,
                each.lexical_score,
                each.semantic_rank,
                each.semantic_score,
            )
            for each in ranking
            if each.id in items
        ]


def _place(cursor: str | None) -> int | None:
    """The place in a list that a cursor names. A page token can be forged, so it may be any text."""
    if cursor is None:
        return None
    # Places are 64-bit; the length is looked at first, since a long number takes long to read.
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 20 and int(cursor) < 2**63):
        raise PageTokenMismatch(violations={"page_token": "was not made by this server"})
    return int(cursor)


def _committed(scope: Scope, commit: Commit) -> Committed:
    return Committed(commit.ids, tokens.encode(scope, commit.revision), commit.replayed)


async def _within(timeout: float | None, name: str, leg: Awaitable[Found]) -> Found | RecalldError:
    try:
        async with asyncio.timeout(timeout):
            return await leg
    except RecalldError as error:
        return error
    except TimeoutError:
        return DeadlineExceeded(f"the {name} leg did not answer in time", details={"stage": name})
    except Exception:  # noqa: BLE001 - a defect of one leg must not take the other's answer away; it is logged
        _LOG.exception("leg_defect", extra={"leg": name})
        return InternalFailure(f"the {name} leg failed")


async def _nothing() -> None:
    return None


def _found(result: Found | RecalldError | None) -> Found | None:
    return None if isinstance(result, RecalldError) else result
