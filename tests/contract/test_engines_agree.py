"""In memory and on LanceDB, one sequence of calls has one sequence of answers: outcomes, errors, items, revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalld import Ctx, MemoryAttributes, MemoryItem, Scope, Visibility
from recalld.engine import LocalMemory
from recalld.engine.ports import Embedding, ModelIdentity
from recalld.errors import RecalldError
from recalld.store import UNSET, RetrievalMode, SearchQuery, WriteBatch
from recalld_server.adapters.lancedb import LanceConfig, MaintenancePolicy, open_records

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
IDS = ["a", "b", "c", "d/\n'"]
TEXTS = ["coffee", "saffron tea", "the error ERR-42", "東京都", "long walk", "getUserName"]
WORDS = ["coffee", "saffron", "tea", "err-42", "東京", "walk", "user name", "absent", ""]
USERS = [None, "ada", "bob"]
KEYS = ["", "", "k1", "k2"]
MODEL = ModelIdentity("tiny", 16, "0" * 64, 16, "f" * 64)


class TextEmbedder:
    """Fixes a direction for each text, of the type that LanceDB takes."""

    identity = MODEL

    async def embed_documents(self, texts: Sequence[str]) -> Sequence[Embedding]:
        return [self._embed(text) for text in texts]

    async def embed_query(self, text: str) -> Embedding:
        return self._embed(text)

    def _embed(self, text: str) -> Embedding:
        seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
        vector = np.random.default_rng(seed).standard_normal(16).astype(np.float32)
        return Embedding(vector / np.linalg.norm(vector), truncated=len(text) > 12)


@dataclass
class Clock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


#: A call of a memory on behalf of someone: what it answers.
Call = Callable[[LocalMemory, Ctx], Awaitable[Any]]


@dataclass(frozen=True)
class Step:
    """One call, by whom, and how much later than the last one. told: how it reads in a failure."""

    told: str
    call: Call
    user: str | None
    later: timedelta

    def __repr__(self) -> str:
        return f"{self.told} by {self.user} after {self.later}"


# What is called


metadatas = st.dictionaries(
    st.sampled_from(["n", "tag", "k\\"]), st.sampled_from([1, 2, 2.0, 2.5, True, "x", "X", None, [1, "x"], START])
)
attributes = st.builds(
    MemoryAttributes,
    user_id=st.sampled_from(["", "ada", "bob"]),
    visibility=st.sampled_from([None, Visibility.PRIVATE, Visibility.ORG]),
    importance=st.sampled_from([None, 0.25, 1.0]),
    namespace=st.sampled_from(["", "trips"]),
    expire_time=st.sampled_from([None, None, START + timedelta(minutes=2), START + timedelta(hours=1)]),
)
items = st.builds(
    lambda id, text, metadata, given: MemoryItem(text, "caller", metadata=metadata, id=id, attributes=given),
    st.sampled_from(IDS),
    st.sampled_from(TEXTS),
    metadatas,
    st.none() | attributes,
)
conditions = st.sampled_from(
    [
        {"n": 2},
        {"n": {"$gte": 2}},
        {"tag": {"$in": ["x", 1]}},
        {"tag": {"$exists": False}},
        {"$or": [{"n": 1}, {"attributes.namespace": "trips"}]},
        {"attributes.importance": {"$gte": 0.5}},
        {"$not": {"n": {"$gt": 1}}},
        {"attributes.status": "active"},
        {"attributes.expire_time": {"$exists": True}},
    ]
)
ids = st.lists(st.sampled_from([*IDS, "never"]), min_size=1, max_size=3)


def commit(given: Sequence[MemoryItem], key: str) -> Call:
    # An id left out is derived from the key, and without one it is chance.
    batch = [replace(item, id=None) if key and index == 2 else item for index, item in enumerate(given)]
    return lambda memory, ctx: memory.commit(WriteBatch(batch, key), ctx=ctx)


def search(text: str, mode: RetrievalMode, where: Any, k: int) -> Call:
    async def call(memory: LocalMemory, ctx: Ctx) -> Any:
        result = await memory.search(SearchQuery(text, k, where, mode=mode), ctx=ctx)
        if mode is RetrievalMode.SEMANTIC:
            # Cosines come from other arithmetic; ranks and items do not.
            return [(hit.semantic_rank, replace(hit.item, score=None)) for hit in result.hits], result.commit_token
        # So do the scores of words: a word that many have may rank them in another order.
        return {hit.item.id: replace(hit.item, score=None) for hit in result.hits}, result.commit_token

    return call


def listing(where: Any, size: int) -> Call:
    async def call(memory: LocalMemory, ctx: Ctx) -> Any:
        pages: list[Any] = []
        token = ""
        while True:
            page = await memory.list_page(ctx=ctx, where=where, page_size=size, page_token=token)
            pages.append((list(page.items), page.next_page_token))
            token = page.next_page_token
            if not token:
                return pages

    return call


def update(id: str, changes: Any, revision: int | None) -> Call:
    return lambda memory, ctx: memory.update(id, ctx=ctx, if_revision=revision, **changes)


def delete(wanted: Any, where: Any, dry_run: bool) -> Call:
    return lambda memory, ctx: memory.delete(wanted, ctx=ctx, where=where, dry_run=dry_run)


def told(name: str, make: Callable[..., Call], *given: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Call]]:
    return st.tuples(*given).map(lambda drawn: (f"{name}{drawn}", make(*drawn)))


changes = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from([*TEXTS, UNSET]),
        "metadata": metadatas,
        "metadata_changes": st.dictionaries(st.sampled_from(["n", "tag"]), st.sampled_from([7, "y", UNSET])),
        "attributes": st.dictionaries(st.just("importance"), st.sampled_from([0.75, None])) | attributes,
    },
)
batches = st.lists(items, min_size=1, max_size=3, unique_by=lambda item: item.id)
some = st.none() | conditions
by_words, by_meaning = st.just(RetrievalMode.LEXICAL), st.just(RetrievalMode.SEMANTIC)
commits = told("commit", commit, batches, st.sampled_from(KEYS))
calls = st.one_of(
    commits,
    commits,
    told("update", update, st.sampled_from([*IDS, "never"]), changes, st.sampled_from([None, None, None, 1, 2])),
    told("delete", delete, ids, st.none(), st.booleans()),
    told("delete", delete, st.none(), conditions, st.booleans()),
    told("get", lambda wanted: lambda memory, ctx: memory.get(wanted, ctx=ctx), ids),
    told("list", listing, some, st.integers(1, 3)),
    told("search", search, st.sampled_from(WORDS), by_words, some, st.just(50)),
    told("search", search, st.sampled_from(TEXTS), by_meaning, some, st.integers(1, 5)),
    told("token", lambda: lambda memory, ctx: memory.commit_token(ctx=ctx)),
)
steps = st.builds(
    lambda call, user, later: Step(*call, user, later),
    calls,
    st.sampled_from(USERS),
    st.sampled_from([timedelta(0), timedelta(seconds=1), timedelta(minutes=5)]),
)


# Who answers


class Engines:
    """Both, behind calls that hypothesis can make: its tests are not coroutines. Every run has a scope of its own."""

    def __init__(self, root: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._clock = Clock()
        self._runs = count()
        # Tidied all the time, which must change no answer.
        config = LanceConfig(
            name="memory",
            root=root,
            model=MODEL,
            durability="commit",
            maintenance=MaintenancePolicy(commits=2, quiet=0.0, horizon=timedelta(seconds=5)),
            clock=self._clock,
        )
        records = self._run(open_records(config))
        self._memories = [
            LocalMemory(embedder=TextEmbedder(), clock=self._clock),
            LocalMemory(records, TextEmbedder(), clock=self._clock),
        ]

    def agree(self, sequence: Sequence[Step]) -> None:
        scope = Scope("acme", f"run{next(self._runs)}")
        self._clock.now = START
        for at, step in enumerate([*sequence, Step("list()", listing(None, 100), None, timedelta(0))]):
            self._clock.now += step.later
            ctx = Ctx(scope, user_id=step.user)
            expected, found = (self._run(self._answer(step, memory, ctx)) for memory in self._memories)
            assert found == expected, f"step {at}: {step}"

    async def _answer(self, step: Step, memory: LocalMemory, ctx: Ctx) -> Any:
        try:
            return await step.call(memory, ctx)
        except RecalldError as error:
            return type(error), error.message, dict(error.details)

    def _run(self, call: Any) -> Any:
        return self._loop.run_until_complete(call)

    def close(self) -> None:
        for memory in self._memories:
            self._run(memory.close())
        self._loop.close()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    engines = Engines(tmp_path_factory.mktemp("agree") / "data")
    yield engines
    engines.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(sequence=st.lists(steps, min_size=4, max_size=14))
def test_any_sequence_of_calls_is_answered_alike(engines: Engines, sequence: list[Step]) -> None:
    engines.agree(sequence)
