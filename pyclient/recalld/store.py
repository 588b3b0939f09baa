"""The second seam: what a store of memories is, and the words of a search, a write and their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, Literal, Protocol

from recalld.errors import CompositeWriteError, RecalldError
from recalld.filters import Filter
from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import CtxLike
from recalld.source import MemorySource

Where = Mapping[str, Any] | Filter | None
"""A condition: the `where` dict of the library, or a typed filter; None matches everything."""


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


#: Says that an argument was not given, where None has a meaning of its own.
UNSET: Final = Unset.UNSET


class RetrievalMode(IntEnum):
    """Which retrievers a search runs. Values equal the wire's."""

    HYBRID = 1
    LEXICAL = 2
    SEMANTIC = 3


@dataclass(frozen=True, slots=True)
class RankFusion:
    """How two rankings become one: score = sum over legs of weight / (k + rank).

    k: 1 to 10,000. Weights: 0 to 1,000,000, not both 0. In a search, None leaves a part to the store; in an answer
    every part is set.
    """

    k: int | None = None
    lexical_weight: float | None = None
    semantic_weight: float | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One search.

    text: empty lists the newest memories, unranked. k: the most hits, 1 to 1,000; 0 and below find nothing.
    candidates: how many each leg contributes, at least `k`; None is the store's default. min_commit_token: a state that
    the answer must have seen, from an earlier answer; empty for none.
    """

    text: str
    k: int = 10
    where: Where = None
    mode: RetrievalMode = RetrievalMode.HYBRID
    fusion: RankFusion = RankFusion()
    candidates: int | None = None
    min_commit_token: str = ""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One hit with how it was ranked: ranks from 1, 0 when it is not in that leg's list; BM25 and cosine as scores."""

    item: MemoryItem
    lexical_rank: int = 0
    lexical_score: float | None = None
    semantic_rank: int = 0
    semantic_score: float | None = None


@dataclass(frozen=True, slots=True)
class Degradation:
    """A part that did not contribute to an answer.

    component: a source's name, or `source/leg`. reason: the name of an `ErrorReason` without its prefix.
    """

    component: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a store answers to a search: hits best first.

    commit_token: names the state that was seen; empty where the store cannot tell. fusion: None when there was nothing
    to fuse.
    """

    hits: Sequence[SearchHit] = ()
    degradations: Sequence[Degradation] = ()
    commit_token: str = ""
    fusion: RankFusion | None = None

    @property
    def items(self) -> list[MemoryItem]:
        """The memories of the hits."""
        return [hit.item for hit in self.hits]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """One write, applied whole or not at all in each store.

    idempotency_key: the same batch under the same key is applied once, whatever comes in between; empty for none.
    lane: batches of one lane are stored in the order in which their commits began. None keeps no order.
    """

    items: Sequence[MemoryItem]
    idempotency_key: str = ""
    lane: Hashable = None


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What became of a batch: every source that was asked is in exactly one of accepted, refused and failed.

    accepted: it committed. refused: read-only by policy, it dropped the batch. ids: of the items, in order; empty when
    none accepted. replayed: every accepting source answered a repeat of an idempotency key.
    """

    accepted: Sequence[str] = ()
    refused: Sequence[str] = ()
    failed: Mapping[str, RecalldError] = field(default_factory=dict[str, RecalldError])
    ids: Sequence[str] = ()
    commit_token: str = ""
    replayed: bool = False

    def raise_for_failures(self) -> None:
        """Raises CompositeWriteError, with the whole split, when a source failed."""
        if self.failed:
            raise CompositeWriteError(accepted=self.accepted, failed=self.failed, refused=self.refused)


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a list, newest first; `next_page_token` continues it, empty on the last page."""

    items: Sequence[MemoryItem] = ()
    next_page_token: str = ""


AttributeChanges = Mapping[str, Any] | MemoryAttributes
"""New attributes: by name, where None clears one, or as attributes, of which those that are set count."""


class MemoryStore(MemorySource, Protocol):
    """A source that also says how it found, what became of a write, and keeps records and their life.

    `query` and `write` are the short forms of `search` and `commit`. What a store cannot do it says: a mode of
    retrieval in a degradation, records by raising UnknownSource. `keeps_records` tells the second beforehand.

    Callers rely on this: every call is made within `ctx.scope`, on behalf of `ctx.user_id`, and no longer than
    `ctx.deadline`; a commit, an update and a delete are durable when they return; reads show unset attributes with
    their defaults; a wrong call raises InvalidRequest or ScopeRequired, naming every violation, before anything is
    touched. `commit` joins its lane before it first waits.
    """

    @property
    def accepts_writes(self) -> bool: ...

    @property
    def keeps_records(self) -> bool: ...

    async def write(self, items: Iterable[MemoryItem], *, ctx: CtxLike, idempotency_key: str = "") -> None:
        """Raises CompositeWriteError when a source failed. idempotency_key: as in `WriteBatch`."""
        ...

    async def search(self, query: SearchQuery, *, ctx: CtxLike) -> SearchResult: ...

    async def commit(self, batch: WriteBatch, *, ctx: CtxLike) -> WriteOutcome: ...

    async def get(self, ids: Sequence[str], *, ctx: CtxLike) -> list[MemoryItem]:
        """The items of these ids, in the order asked; ids that are not there (or not for this user) are left out, a
        repeated id counts once. Any status but deleted; expired ones are not there."""
        ...

    def list(self, *, ctx: CtxLike, where: Where = None, page_size: int = 100) -> AsyncIterator[MemoryItem]:
        """Every item that matches, newest first, read page by page. Only active ones unless `where` names `status`. An
        item that is there from first to last comes exactly once."""
        ...

    async def list_page(
        self, *, ctx: CtxLike, where: Where = None, page_size: int = 100, page_token: str = ""
    ) -> ItemPage:
        """One page of `list`, of 1 to 1,000 items, for callers that keep the place themselves. The token belongs to the
        same scope and `where`; PageTokenMismatch for one that was not made here."""
        ...

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
        """Changes what is given and gives the item as it is now. metadata: in place of all. metadata_changes: by key,
        UNSET removes one. Raises ItemNotFound, and RevisionMismatch when the item has another than `if_revision`."""
        ...

    async def delete(
        self, ids: Sequence[str] | None = None, *, ctx: CtxLike, where: Where = None, dry_run: bool = False
    ) -> int:
        """Deletes by ids or by a condition, exactly one of them; gives how many items it took, or on a dry run would
        take. By condition it takes every status, and expired items too."""
        ...

    async def commit_token(self, *, ctx: CtxLike) -> str:
        """Names the state that a read would see now, every change that has returned included; empty where the store
        cannot tell."""
        ...

    async def close(self) -> None:
        """Lets go of what the store holds open; changes under way are finished first."""
        ...
