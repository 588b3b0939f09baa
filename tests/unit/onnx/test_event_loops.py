"""One embedder for callers of several event loops, one after another and at once, in several threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class HeldModel(TextModel):
    """The model, which can be held before it runs, and counts its runs of each text."""

    def __init__(self, config: EmbedderConfig) -> None:
        self.runs: list[list[int]] = []
        self.held = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        super().__init__(config)
        self.runs.clear()
        self.held.clear()

    def run(self, batch: Sequence[Tokens]) -> list[Embedding]:
        self.held.set()
        assert self.go_on.wait(30)
        self.runs.extend(tokens.ids for tokens in batch)
        return super().run(batch)

    def times_run(self, text: str) -> int:
        return self.runs.count(self.tokenise([text])[0].ids)


@pytest.fixture
def model(build: Any) -> HeldModel:
    return HeldModel(EmbedderConfig(model=build()))


@pytest.fixture
def embedder(model: HeldModel) -> Iterator[OnnxEmbedder]:
    embedder = OnnxEmbedder(model, EmbedderConfig(max_batch_tokens=64, max_queued_texts=4))
    yield embedder
    model.go_on.set()
    asyncio.run(embedder.close())


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def begin(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Starts `work`; returns once it waits for something, with a future of its result."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(30)
        return future

    def end(self) -> None:
        """Ends the loop as it stands: what waits in it is neither cancelled nor awaited."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def loops() -> Iterator[Any]:
    made: list[Loop] = []

    def new() -> Loop:
        made.append(Loop())
        return made[-1]

    yield new
    for loop in made:
        if not loop.loop.is_closed():
            loop.end()


def test_one_loop_after_another(embedder: OnnxEmbedder, tiny: Any) -> None:
    asyncio.run(embedder.warm())
    for word in WORDS[:5]:
        (document,) = asyncio.run(embedder.embed_documents([word]))
        np.testing.assert_allclose(document.vector, tiny.expected(word), atol=1e-6)
        assert asyncio.run(embedder.embed_query(word)) is asyncio.run(embedder.embed_query(word))


def test_several_at_once_each_get_their_own(model: HeldModel, tiny: Any) -> None:
    embedder = OnnxEmbedder(model, EmbedderConfig(query_cache_size=3))

    def ask(number: int) -> list[Sequence[Embedding]]:
        async def ask_some() -> list[Sequence[Embedding]]:
            calls = [[WORDS[(number + i + j) % 60] for j in range(1 + i % 4)] for i in range(30)]
            await asyncio.gather(*(embedder.embed_query(word) for word in WORDS[number : number + 5]))
            return list(await asyncio.gather(*map(embedder.embed_documents, calls)))

        return asyncio.run(ask_some())

    with ThreadPoolExecutor(8) as threads:
        for number, answers in enumerate(threads.map(ask, range(8))):
            for i, answer in enumerate(answers):
                for j, embedding in enumerate(answer):
                    expected = tiny.expected(WORDS[(number + i + j) % 60])
                    np.testing.assert_allclose(embedding.vector, expected, atol=1e-6)
    asyncio.run(embedder.close())


def test_a_text_that_two_loops_ask_for_runs_once(embedder: OnnxEmbedder, model: HeldModel, loops: Any) -> None:
    model.go_on.clear()
    here = loops().begin(embedder.embed_documents(["w1"]))
    there = loops().begin(embedder.embed_documents(["w1"]))
    model.go_on.set()
    np.testing.assert_array_equal(here.result(30)[0].vector, there.result(30)[0].vector)
    assert model.times_run("w1") == 1


def test_a_failure_reaches_the_loop_that_asked(embedder: OnnxEmbedder, model: HeldModel, loops: Any) -> None:
    model.go_on.clear()
    bad = loops().begin(embedder.embed_documents(["w1", "w2 poison"]))
    good = loops().begin(embedder.embed_documents(["w3"]))
    model.go_on.set()
    assert isinstance(bad.exception(30), InternalFailure)
    assert len(good.result(30)) == 1


def test_texts_of_a_cancelled_caller_leave_the_queue(embedder: OnnxEmbedder, model: HeldModel, loops: Any) -> None:
    model.go_on.clear()
    stays, goes = loops(), loops()
    running = stays.begin(embedder.embed_documents(["w1"]))
    assert model.held.wait(30)
    gone = goes.begin(embedder.embed_documents(["w2", "w3", "w4"]))
    full = stays.begin(embedder.embed_documents(["w5", "w6"]))
    assert isinstance(full.exception(30), Overloaded)
    gone.cancel()
    goes.begin(asyncio.sleep(0)).result(30)
    fits = stays.begin(embedder.embed_documents(["w5", "w6"]))
    model.go_on.set()
    assert len(running.result(30)) == 1
    assert len(fits.result(30)) == 2
    assert model.times_run("w2") == 0


def test_a_loop_that_ended_holds_up_nobody(embedder: OnnxEmbedder, model: HeldModel, loops: Any) -> None:
    model.go_on.clear()
    ends, stays = loops(), loops()
    waiting = ends.begin(embedder.embed_documents(["w1", "w2"]))
    assert model.held.wait(30)
    ends.end()
    more = stays.begin(embedder.embed_documents(["w2", "w3"]))
    model.go_on.set()
    assert len(more.result(30)) == 2
    assert not waiting.done()


def test_closing_from_one_loop_ends_who_waits_in_another(model: HeldModel, loops: Any) -> None:
    embedder = OnnxEmbedder(model, EmbedderConfig())
    model.go_on.clear()
    waiting = loops().begin(embedder.embed_documents(["w1"]))
    assert model.held.wait(30)
    closing = loops().begin(embedder.close())
    assert isinstance(waiting.exception(30), SourceUnavailable)
    model.go_on.set()
    closing.result(30)
    with pytest.raises(SourceUnavailable):
        asyncio.run(embedder.embed_documents(["w1"]))
