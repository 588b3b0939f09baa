"""What the use cases need of the world, as Protocols; adapters implement them and nothing here knows one.

Two seams. A `Source` is what a server fans out over (the embedded engine, a directory of files, another server); those
that also hold records a client can address are `Records`. A `Store` and an `Embedder` are what the embedded engine is
made of. Every method raises `recalld.errors` classes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope

Vector = NDArray[np.float32]


class Mode(IntEnum):
    """Which retrievers run. Values equal the wire's."""

    HYBRID = 1
    LEXICAL = 2
    SEMANTIC = 3


@dataclass(frozen=True, slots=True)
class FusionSpec:
    """What the caller says of fusion; None leaves it to the server."""

    k: int | None = None
    lexical_weight: float | None = None
    semantic_weight: float | None = None


@dataclass(frozen=True, slots=True)
class Fusion:
    """The fusion that ranked: score = sum over legs of weight / (k + rank)."""

    k: int
    lexical_weight: float
    semantic_weight: float


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One query, validated.

    text: empty lists the newest items unranked. candidates: per leg; None means the default, never fewer than k.
    on_behalf_of: if not empty, private memories of other users are left out. min_commit_token: may be empty.
    timeout: seconds that the caller has left, None for no limit.
    """

    text: str
    k: int
    where: Filter | None = None
    mode: Mode = Mode.HYBRID
    fusion: FusionSpec = FusionSpec()
    candidates: int | None = None
    min_commit_token: str = ""
    on_behalf_of: str = ""
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit with how it was ranked; ranks from 1, 0 when it is not in that leg's list."""

    item: MemoryItem
    lexical_rank: int = 0
    lexical_score: float | None = None
    semantic_rank: int = 0
    semantic_score: float | None = None


@dataclass(frozen=True, slots=True)
class Degradation:
    """A part that did not contribute. component: `memory/semantic` or a source's name; reason: an ErrorReason name."""

    component: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """What a source answers to a query: hits best first."""

    hits: Sequence[Hit]
    degradations: Sequence[Degradation] = ()
    commit_token: str = ""
    fusion: Fusion | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One validated write. Every item has its key; `idempotency_key` may be empty.

    lane: hashable; batches of one lane are stored in the order in which they were given. None keeps no order.
    """

    items: Sequence[MemoryItem]
    idempotency_key: str = ""
    lane: object | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What a source answers to a write that it committed whole, durably."""

    ids: Sequence[str]
    commit_token: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page of items, newest first; `next_cursor` is None on the last."""

    items: Sequence[MemoryItem]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many items a delete took, or would take."""

    count: int
    commit_token: str = ""


class Source(Protocol):
    """One member of the server's composition."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str:
        """`lancedb`, `files` or `remote`."""
        ...

    @property
    def accepts_writes(self) -> bool:
        """Whether a write can commit here."""
        ...

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked: ...

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        """Commits the whole batch durably or raises. A source with `accepts_writes` False raises
        MemoryWriteRefused, or returns having stored nothing where its policy is to ignore."""
        ...

    async def close(self) -> None: ...


class Records(Protocol):
    """A source whose records a client can address by id."""

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[MemoryItem]:
        """The items found, each id once, whatever their status except deleted or expired, in no promised order."""
        ...

    async def list(self, scope: Scope, where: Filter | None, *, limit: int, cursor: str | None) -> Page:
        """Newest (last first-stored) first. Only active items unless the filter names `status`."""
        ...

    async def update(
        self, scope: Scope, item: MemoryItem, mask: Sequence[tuple[str, ...]], *, if_revision: int | None
    ) -> tuple[MemoryItem, str]:
        """The item as it is now and a commit token. `mask` paths: ("content",), ("metadata",), ("metadata", key),
        ("attributes", field)."""
        ...

    async def delete(self, scope: Scope, selected: Sequence[str] | Filter, *, dry_run: bool) -> Deleted: ...


# What the embedded engine is made of.


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The space that vectors live in. sha256: of the model file, lower-case hex."""

    name: str
    dimensions: int
    sha256: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Embedding:
    """A unit vector of float32, and whether the text was longer than the model reads."""

    vector: Vector
    truncated: bool = False


class Embedder(Protocol):
    """Turns texts into unit vectors; the same text has the same vector whatever it is batched with."""

    @property
    def identity(self) -> ModelIdentity: ...

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """One embedding a text, in order. Raises Overloaded when the queue is full."""
        ...

    async def embed_query(self, text: str) -> Embedding: ...


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate of one leg: BM25 or cosine similarity."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Lexical:
    """What the lexical leg found: best first, and how much of the query the best match covers, 0 to 1."""

    candidates: Sequence[Scored] = ()
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """What the store takes for one item: the item (id set) with its vector. `attributes` may be unset."""

    item: MemoryItem
    vector: Vector
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """What makes a write apply once. fingerprint: a digest of the batch's content."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What one committed change was. revision: the highest of the scope after it; 0 for a scope never written."""

    revision: int
    ids: Sequence[str] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """The change of one item. `mask` as in Records.update; `embedding` is given exactly when content is in the mask."""

    item: MemoryItem
    mask: Sequence[tuple[str, ...]]
    embedding: Embedding | None = None
    if_revision: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """Stored items, newest first. `before` continues the list: the sequence of the last one, None at the end."""

    items: Sequence[MemoryItem] = field(default_factory=list[MemoryItem])
    before: int | None = None


class Store(Protocol):
    """Keeps the memories of every scope apart and finds them by words and by vector.

    Filters are typed trees and are applied before ranking; tombstones match none. Every change is durable when the
    call returns, one change of a scope after another, also between processes. Reads see every change that returned.
    Returned items carry all stored attributes; `source` is the store's name, `score` None.
    """

    async def lexical(self, scope: Scope, text: str, where: Filter | None, *, limit: int) -> Lexical:
        """The best by BM25, ties by id."""
        ...

    async def semantic(self, scope: Scope, vector: Vector, where: Filter | None, *, limit: int) -> Sequence[Scored]:
        """The best by cosine similarity, ties by id."""
        ...

    async def read(self, scope: Scope, ids: Sequence[str], where: Filter | None) -> Sequence[MemoryItem]:
        """The items of these ids that match, in no promised order."""
        ...

    async def newest(self, scope: Scope, where: Filter | None, *, limit: int, before: int | None) -> Listed:
        """The last first-stored, below sequence `before` where it is given."""
        ...

    async def revision(self, scope: Scope) -> int:
        """The highest revision of the scope, 0 when it was never written."""
        ...

    async def receipt(self, scope: Scope, receipt: Receipt) -> Commit | None:
        """What an earlier put with this receipt answered, marked replayed. Raises IdempotencyKeyReused when the
        fingerprint is another."""
        ...

    async def put(self, scope: Scope, rows: Sequence[Row], receipt: Receipt | None, *, now: datetime) -> Commit:
        """Inserts or replaces by id. A replaced live item keeps its create time, place and counters; a deleted id
        starts anew."""
        ...

    async def update(self, scope: Scope, patch: Patch, where: Filter, *, now: datetime) -> tuple[MemoryItem, int]:
        """Changes one item that matches `where`; gives it as it is now, and its revision. Raises ItemNotFound and
        RevisionMismatch."""
        ...

    async def delete(
        self, scope: Scope, selected: Sequence[str] | Filter, where: Filter, *, dry_run: bool, now: datetime
    ) -> tuple[int, int]:
        """Blanks the selected items that match `where`, by id or by filter; gives how many, and the revision."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        ...
