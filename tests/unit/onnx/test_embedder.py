"""Many callers of one event loop, one model: each gets its own vectors, none waits for more than it must, nothing is
left behind. `test_event_loops.py` has callers of several."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from recalld.engine.ports import Embedding
from recalld.errors import InternalFailure, Overloaded, SourceUnavailable
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.embedder import OnnxEmbedder
from recalld_server.adapters.onnx.model import TextModel
from recalld_server.adapters.onnx.tokens import Tokens

WORDS = [f"w{i}" for i in range(60)]


class WatchedModel(TextModel):
    """The model itself, which also says what it ran, and can be held before a run of documents."""

    def __init__(self, config: EmbedderConfig) -> None:
        self.runs: list[list[int]] = []
        self.threads: set[str] = set()
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        super().__init__(config)

    def tokenise(self, texts: Sequence[str]) -> list[Tokens]:
        self.threads.add(threading.current_thread().name)
        return super().tokenise(texts)

    def run(self, batch: Sequence[Tokens]) -> list[Embedding]:
        thread = threading.current_thread().name
        self.threads.add(thread)
        if thread.startswith("embed-documents"):
            self.held.set()
            assert self.go_on.wait(30)
        self.runs.extend(tokens.ids for tokens in batch)
        return super().run(batch)

    def times_run(self, word: str) -> int:
        return self.runs.count(self.ids(word))

    def ids(self, text: str) -> list[int]:
        return super().tokenise([text])[0].ids

    async def until_held(self) -> None:
        assert await asyncio.to_thread(self.held.wait, 30)


Make = Callable[..., tuple[OnnxEmbedder, WatchedModel]]


@pytest.fixture
async def make(build: Any) -> AsyncIterator[Make]:
    made: list[tuple[OnnxEmbedder, WatchedModel]] = []

    def new(files: dict[str, Any] | None = None, **settings: Any) -> tuple[OnnxEmbedder, WatchedModel]:
        config = EmbedderConfig(model=build(files=files), **settings)
        model = WatchedModel(config)
        model.runs.clear()
        model.threads.clear()
        made.append((OnnxEmbedder(model, config), model))
        return made[-1]

    yield new
    for embedder, model in made:
        model.go_on.set()
        await embedder.close()


async def queued() -> None:
    """Lets every task that can run do so: a call to the embedder queues its texts before it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_documents_come_back_in_order_with_their_own_vectors(make: Make, tiny: Any) -> None:
    embedder, _ = make()
    texts = [" ".join(WORDS[i : i + 1 + i % 9]) for i in range(50)]
    embeddings = await embedder.embed_documents(texts)
    for text, embedding in zip(texts, embeddings, strict=True):
        np.testing.assert_allclose(embedding.vector, tiny.expected(text), atol=1e-6)
    assert await embedder.embed_documents([]) == []


async def test_a_query_and_a_document_of_one_text_agree_and_truncation_is_flagged(make: Make) -> None:
    embedder, _ = make()
    text = " ".join(WORDS[:30])
    (document,), query = await embedder.embed_documents([text]), await embedder.embed_query(text)
    np.testing.assert_array_equal(document.vector, query.vector)
    assert document.truncated
    assert query.truncated
    with pytest.raises(ValueError, match="read-only"):
        query.vector[0] = 1


async def test_each_kind_has_its_prefix(make: Make, tiny: Any) -> None:
    embedder, _ = make(query_prefix="w1 ", document_prefix="w2 ")
    (document,) = await embedder.embed_documents(["w7"])
    np.testing.assert_allclose(document.vector, tiny.expected("w2 w7"), atol=1e-6)
    np.testing.assert_allclose((await embedder.embed_query("w7")).vector, tiny.expected("w1 w7"), atol=1e-6)


async def test_many_callers_at_once_get_what_one_alone_gets(make: Make, tiny: Any) -> None:
    embedder, _ = make(max_batch_tokens=40)
    calls = [[WORDS[(i + j) % 60] for j in range(1 + i % 4)] for i in range(60)]
    answers = await asyncio.gather(
        *(embedder.embed_documents(call) for call in calls), *(embedder.embed_query(word) for word in WORDS)
    )
    for call, answer in zip(calls, answers, strict=False):
        for text, embedding in zip(call, answer, strict=True):
            np.testing.assert_allclose(embedding.vector, tiny.expected(text), atol=1e-6)


async def test_the_event_loop_does_none_of_the_work(make: Make) -> None:
    embedder, model = make()
    await embedder.warm()
    await embedder.embed_documents(WORDS)
    assert model.threads
    assert all(name.startswith("embed-") for name in model.threads)


async def test_a_text_that_several_ask_for_at_once_runs_once(make: Make) -> None:
    embedder, model = make()
    model.go_on.clear()
    calls = [asyncio.create_task(embedder.embed_documents(["w1", "w2", "w1"])) for _ in range(5)]
    await model.until_held()
    calls.append(asyncio.create_task(embedder.embed_documents(["w2"])))  # joins what runs already
    await queued()
    model.go_on.set()
    await asyncio.gather(*calls)
    assert model.times_run("w1") == model.times_run("w2") == 1


async def test_a_query_does_not_wait_for_documents(make: Make) -> None:
    embedder, model = make()
    model.go_on.clear()
    bulk = asyncio.create_task(embedder.embed_documents(WORDS))
    await model.until_held()
    await embedder.embed_query("w1")
    assert not bulk.done()
    model.go_on.set()
    await bulk


async def test_a_small_call_does_not_wait_for_a_large_one_to_end(make: Make) -> None:
    embedder, model = make(max_batch_tokens=1)  # one text a run
    model.go_on.clear()
    large = asyncio.create_task(embedder.embed_documents(WORDS[:50]))
    await model.until_held()
    small = asyncio.create_task(embedder.embed_documents(["w59"]))
    await queued()
    model.go_on.set()
    await small
    assert not large.done()
    await large
    assert model.runs.index(model.ids("w59")) <= 2


async def test_a_full_queue_says_when_to_come_again(make: Make) -> None:
    embedder, model = make(max_queued_texts=3)
    model.go_on.clear()
    waiting = asyncio.create_task(embedder.embed_documents(["w1", "w2"]))
    await model.until_held()
    with pytest.raises(Overloaded) as caught:
        await embedder.embed_documents(["w3", "w4"])
    assert 0 < caught.value.retry_after <= 30
    fits = asyncio.create_task(embedder.embed_documents(["w1", "w2", "w5"]))  # one that is not queued yet
    await queued()
    model.go_on.set()
    await asyncio.gather(waiting, fits)
    assert model.times_run("w3") == model.times_run("w4") == 0
    await embedder.embed_documents(["w3", "w4"])


async def test_a_call_larger_than_the_queue_is_taken_when_nothing_waits(make: Make) -> None:
    embedder, _ = make(max_queued_texts=3)
    assert len(await embedder.embed_documents(WORDS)) == 60


async def test_texts_of_a_cancelled_caller_leave_the_queue(make: Make) -> None:
    embedder, model = make(max_queued_texts=4, max_batch_tokens=1)
    model.go_on.clear()
    running = asyncio.create_task(embedder.embed_documents(["w1"]))
    await model.until_held()
    given_up = asyncio.create_task(embedder.embed_documents(["w2", "w3", "w4"]))
    await queued()
    kept = asyncio.create_task(embedder.embed_documents(["w4"]))
    await queued()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    more = asyncio.create_task(embedder.embed_documents(["w5", "w6"]))  # there is room again
    await queued()
    model.go_on.set()
    await asyncio.gather(running, kept, more)
    assert [model.times_run(word) for word in ("w2", "w3", "w4", "w5", "w6")] == [0, 0, 1, 1, 1]


async def test_a_text_that_the_model_fails_on_fails_alone(make: Make, tiny: Any) -> None:
    embedder, _ = make()
    bad = asyncio.create_task(embedder.embed_documents(["w1", "w2 poison"]))
    good = asyncio.create_task(embedder.embed_documents(["w3", "w4"]))
    with pytest.raises(InternalFailure, match="the model failed on this text"):
        await bad
    for text, embedding in zip(["w3", "w4"], await good, strict=True):
        np.testing.assert_allclose(embedding.vector, tiny.expected(text), atol=1e-6)
    await embedder.embed_documents(["w1"])


async def test_closing_ends_whoever_waits(make: Make) -> None:
    embedder, model = make()
    model.go_on.clear()
    calls = [asyncio.create_task(embedder.embed_documents([word])) for word in WORDS[:5]]
    await model.until_held()
    closing = asyncio.create_task(embedder.close())
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [SourceUnavailable] * 5
    model.go_on.set()
    await closing
    await embedder.close()
    with pytest.raises(SourceUnavailable):
        await embedder.embed_documents(["w1"])
    with pytest.raises(SourceUnavailable):
        await embedder.embed_query("w1")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("embed-")]


async def test_recent_queries_are_remembered_and_the_oldest_forgotten(make: Make) -> None:
    embedder, model = make(query_cache_size=2)
    first = await embedder.embed_query("w1")
    await embedder.embed_query("w2")
    assert await embedder.embed_query("w1") is first
    await embedder.embed_query("w3")  # w2 was asked for least recently
    assert await embedder.embed_query("w1") is first
    await embedder.embed_query("w2")
    assert [model.times_run(word) for word in ("w1", "w2", "w3")] == [1, 2, 1]


async def test_no_query_is_remembered_without_a_cache(make: Make) -> None:
    embedder, model = make(query_cache_size=0)
    await embedder.embed_query("w1")
    await embedder.embed_query("w1")
    assert model.times_run("w1") == 2
