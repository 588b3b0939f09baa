"""What the engine needs of the world: a place that keeps records and finds them, and a model that embeds texts.

Implementations raise `recalld.errors` classes only, and `HeadMoved` where it is named. `recalld.testing` has the suite
that a `RecordStore` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from recalld.engine.records import Commit, Head, Receipt, Record, Snapshot, Vector
from recalld.errors import RecalldError
from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope


class HeadMoved(RecalldError):
    """Somebody else committed to the scope first; nothing of this commit is stored. Never leaves the engine."""


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
class NewestItems:
    """Stored items, newest first. before: continues the list, the sequence of the last one; None at the end."""

    items: Sequence[MemoryItem] = ()
    before: int | None = None


class Turn(Protocol):
    """One scope for as long as nobody else of this process (and, where the storage can lock, of this machine) changes
    it. What others commit meanwhile makes `commit` raise HeadMoved; then the turn is to be taken again."""

    async def snapshot(
        self, ids: Collection[str] = (), *, whole: Collection[str] = (), receipts: Collection[str] = ()
    ) -> Snapshot:
        """The head, the records of these ids (tombstones too), and the receipts of these keys. whole: ids whose records
        come with bodies; those of `ids` may lack them. What it tells is durable, also where a crash came between a
        commit and its sync."""
        ...

    async def matching(self, where: Filter, *, limit: int) -> Sequence[Record]:
        """At most `limit` live records that match, without bodies."""
        ...

    async def commit(self, commit: Commit) -> None:
        """Stores all of it in one step, durably, and moves the head; called at most once a turn. Raises HeadMoved when
        the head is no longer `commit.base`: then nothing is stored."""
        ...


class RecordStore(Protocol):
    """Keeps the records of every scope apart, and finds them by words and by vector.

    Filters are typed trees, applied before ranking; tombstones and receipts match none. Reads see every commit that
    returned, in this process and in others. Items carry all attributes with their defaults; `source` is the store's
    name, `score` None.
    """

    @property
    def name(self) -> str:
        """Stamped on every item as its source and origin."""
        ...

    def turn(self, scope: Scope) -> AbstractAsyncContextManager[Turn]:
        """The scope's turn, once it is free."""
        ...

    async def head(self, scope: Scope) -> Head: ...

    async def receipt(self, scope: Scope, key: str) -> Receipt | None:
        """The receipt under this idempotency key; what it tells is durable."""
        ...

    async def lexical(self, scope: Scope, text: str, where: Filter | None, *, limit: int) -> Lexical:
        """The best by BM25, ties by id."""
        ...

    async def semantic(self, scope: Scope, vector: Vector, where: Filter | None, *, limit: int) -> Sequence[Scored]:
        """The best by cosine similarity, ties by id."""
        ...

    async def read(self, scope: Scope, ids: Sequence[str], where: Filter | None) -> Sequence[MemoryItem]:
        """The items of these ids that match, in no promised order."""
        ...

    async def newest(self, scope: Scope, where: Filter | None, *, limit: int, before: int | None = None) -> NewestItems:
        """The last first-stored, below sequence `before` where it is given."""
        ...

    async def count(self, scope: Scope, where: Filter | None) -> int:
        """How many live records match."""
        ...

    async def close(self) -> None:
        """Finishes what is under way, then closes."""
        ...


@dataclass(frozen=True, slots=True)
class Embedding:
    """A unit vector, and whether the text was longer than the model reads."""

    vector: Vector
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The space that vectors live in.

    name: a label. sha256: of the weights, lower-case hex. max_tokens: of a text that are read. fingerprint: a digest of
    all that shapes vectors; two models with one fingerprint give one text one vector. traits: what went into the
    fingerprint, by name, so that a difference can be told.
    """

    name: str
    dimensions: int
    sha256: str
    max_tokens: int
    fingerprint: str = ""
    traits: Mapping[str, str] = field(default_factory=dict[str, str])


class Embedder(Protocol):
    """Turns texts into unit vectors; the same text has the same vector whatever it is batched with."""

    @property
    def identity(self) -> ModelIdentity: ...

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """One embedding a text, in order. Raises Overloaded when the queue is full."""
        ...

    async def embed_query(self, text: str) -> Embedding: ...


Clock = Callable[[], datetime]
"""Tells the time, aware and in UTC."""
