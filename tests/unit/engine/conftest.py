"""A memory whose ports can be told to fail, wait, or count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import pytest

from recalld import Ctx, MemoryItem, Scope
from recalld.engine import InMemoryRecords
from recalld.engine.ports import Embedding, HeadMoved, Lexical, ModelIdentity, Scored
from recalld.engine.records import Commit

SCOPE = Scope("acme", "support")


class WordEmbedder:
    """Texts that share words point the same way. texts: what was embedded so far; gate: when set, documents wait."""

    identity = ModelIdentity("words", 64, "0" * 64, 100, "words")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.failure: Exception | None = None
        self.gates: dict[str, asyncio.Event] = {}

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        for text in texts:
            if text in self.gates:
                await self.gates[text].wait()
        self.texts.extend(texts)
        return [Embedding(_direction(text), truncated=len(text.split()) > 100) for text in texts]

    async def embed_query(self, text: str) -> Embedding:
        if self.failure is not None:
            raise self.failure
        return Embedding(_direction(text))


def _direction(text: str) -> list[float]:
    vector = [1e-6] * 64
    for word in text.casefold().split():
        vector[blake2b(word.encode(), digest_size=1).digest()[0] % 64] += 1.0
    length = sum(number * number for number in vector) ** 0.5
    return [number / length for number in vector]


@dataclass
class TestingRecords(InMemoryRecords):
    """In memory, with what a test wants to happen."""

    __test__ = False

    lexical_answer: Callable[[], Awaitable[Any]] | None = None
    after_legs: Callable[[], Awaitable[Any]] | None = None
    heads_moved: int = 0
    before_turn: Callable[[], Awaitable[Any]] | None = None
    commits: list[Commit] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    async def lexical(self, scope: Scope, text: str, where: Any, *, limit: int) -> Lexical:
        self.limits.append(limit)
        if self.lexical_answer is not None:
            await self.lexical_answer()
        return await super().lexical(scope, text, where, limit=limit)

    async def semantic(self, scope: Scope, vector: Any, where: Any, *, limit: int) -> Sequence[Scored]:
        return await super().semantic(scope, vector, where, limit=limit)

    async def read(self, scope: Scope, ids: Sequence[str], where: Any) -> Sequence[MemoryItem]:
        if self.after_legs is not None:
            act, self.after_legs = self.after_legs, None
            await act()
        return await super().read(scope, ids, where)

    @asynccontextmanager
    async def turn(self, scope: Scope) -> Any:
        if self.before_turn is not None:
            await self.before_turn()
        async with super().turn(scope) as turn:
            yield _TestingTurn(self, turn)


class _TestingTurn:
    def __init__(self, records: TestingRecords, turn: Any) -> None:
        self._records = records
        self._turn = turn
        self.snapshot = turn.snapshot
        self.matching = turn.matching

    async def commit(self, commit: Commit) -> None:
        if self._records.heads_moved:
            self._records.heads_moved -= 1
            raise HeadMoved("somebody was first")
        await self._turn.commit(commit)
        self._records.commits.append(commit)


class SettableClock:
    """Tells the time that it was set to."""

    def __init__(self) -> None:
        self.time = datetime(2025, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, **span: float) -> None:
        self.time += timedelta(**span)


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def records() -> TestingRecords:
    return TestingRecords()


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def ctx() -> Ctx:
    return Ctx(SCOPE)
