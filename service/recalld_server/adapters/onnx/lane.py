"""One queue in front of the model, with one thread that empties it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, zip_longest

from recalld.engine.ports import Embedding
from recalld.errors import InternalFailure, Overloaded, RecalldError, SourceUnavailable
from recalld_server.adapters.onnx.batches import around_first
from recalld_server.adapters.onnx.model import TextModel
from recalld_server.adapters.onnx.tokens import Tokens

_LOG = logging.getLogger(__name__)

#: How many texts are looked at to fill one batch with texts of about one length. With 128 chat turns 2.6% of what is
#: computed is padding, with 32 it is 8%; sorting all of a bulk load would leave 0.6%.
_WINDOW = 128


@dataclass(slots=True, eq=False)
class _Waiting:
    """A text that someone waits for. call: the texts that came with it and are not done, itself included."""

    text: str
    call: dict[str, _Waiting]
    result: asyncio.Future[Embedding]
    callers: int = 0
    tokens: Tokens | None = None


class Lane:
    """A bounded queue of texts, shared by all callers of one event loop.

    Calls take turns: each batch is built around the oldest text of the next call, so that a small call does not wait
    for a large one to end. A text that waits or runs already is not embedded again. A text that nobody waits for any
    more leaves the queue.
    """

    def __init__(self, model: TextModel, name: str, *, max_batch_tokens: int, max_texts: int) -> None:
        self._model = model
        self._max_batch_tokens = max_batch_tokens
        self._max_texts = max_texts
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"embed-{name}")
        self._waiting: dict[str, _Waiting] = {}
        self._calls: deque[dict[str, _Waiting]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._seconds_per_text = 0.02
        self._closed = False

    async def embed(self, texts: Sequence[str]) -> list[Embedding]:
        """One embedding a text, in order.

        Raises Overloaded when the queue has no room for the call (a call larger than the queue is taken when the queue
        is empty), SourceUnavailable when the lane closes first, InternalFailure when the model fails on a text.
        """
        wanted = self._join(texts)
        if not wanted:
            return []
        try:
            await asyncio.wait([entry.result for entry in wanted.values()], return_when=asyncio.FIRST_EXCEPTION)
            for entry in wanted.values():
                if entry.result.done():
                    entry.result.result()
            return [wanted[text].result.result() for text in texts]
        finally:
            for entry in wanted.values():
                self._leave(entry)

    async def close(self) -> None:
        """Ends the run in progress; whoever waits gets SourceUnavailable."""
        self._closed = True
        for entry in list(self._waiting.values()):
            self._finish(entry, SourceUnavailable("the embedder is closed"))
        if self._worker is not None and not self._worker.done():  # done ones may be of an earlier event loop
            await asyncio.wait([self._worker])
        await asyncio.to_thread(self._executor.shutdown)

    def _join(self, texts: Sequence[str]) -> dict[str, _Waiting]:
        """Queues what does not wait already; a call is taken whole or not at all."""
        if self._closed:
            raise SourceUnavailable("the embedder is closed")
        fresh = [text for text in dict.fromkeys(texts) if text not in self._waiting]
        if self._waiting and len(self._waiting) + len(fresh) > self._max_texts:
            retry_after = min(max(len(self._waiting) * self._seconds_per_text / 2, 0.1), 30.0)
            raise Overloaded(f"{len(self._waiting)} texts wait to be embedded already", retry_after=retry_after)
        loop = asyncio.get_running_loop()
        call: dict[str, _Waiting] = {}
        for text in fresh:
            call[text] = self._waiting[text] = _Waiting(text, call, loop.create_future())
        wanted = {text: self._waiting[text] for text in dict.fromkeys(texts)}
        for entry in wanted.values():
            entry.callers += 1
        if call:
            self._calls.append(call)
            if self._worker is None or self._worker.done():
                self._worker = asyncio.create_task(self._work(), name="embed", context=contextvars.Context())
        return wanted

    def _leave(self, entry: _Waiting) -> None:
        entry.callers -= 1
        if entry.result.done():
            if not entry.result.cancelled():
                entry.result.exception()  # seen, also by a caller that another text's failure or a cancellation ended
        elif not entry.callers:
            entry.result.cancel()
            self._forget(entry)

    def _finish(self, entry: _Waiting, outcome: Embedding | RecalldError) -> None:
        if entry.result.done():
            return
        if isinstance(outcome, Embedding):
            entry.result.set_result(outcome)
        else:
            entry.result.set_exception(outcome)
        self._forget(entry)

    def _forget(self, entry: _Waiting) -> None:
        del self._waiting[entry.text]
        del entry.call[entry.text]

    async def _work(self) -> None:
        while window := self._next_window():
            await self._embed_some(window)

    def _next_window(self) -> list[_Waiting]:
        """Texts of every call in turn, the call first whose turn was longest ago."""
        self._calls = deque(call for call in self._calls if call)
        self._calls.rotate(-1)
        turns = zip_longest(*(call.values() for call in self._calls))
        return list(islice((entry for turn in turns for entry in turn if entry is not None), _WINDOW))

    async def _embed_some(self, window: Sequence[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        try:
            done = await loop.run_in_executor(self._executor, self._run, window)
        except Exception as error:  # noqa: BLE001 - the runtime's classes share no base but this one
            if len(window) == 1:
                _LOG.error("the model failed on a text", exc_info=error)
                self._finish(window[0], InternalFailure("the model failed on this text"))
                return
            for entry in window:  # so that only the text at fault fails
                await self._embed_some([entry])
            return
        self._seconds_per_text += 0.1 * ((time.monotonic() - started) / len(done) - self._seconds_per_text)
        for entry, embedding in done:
            self._finish(entry, embedding)

    def _run(self, window: Sequence[_Waiting]) -> list[tuple[_Waiting, Embedding]]:
        """In the lane's thread, which alone touches `tokens`: embeds the first of the window and what goes with it."""
        unread = [entry for entry in window if entry.tokens is None]
        for entry, tokens in zip(unread, self._model.tokenise([entry.text for entry in unread]), strict=True):
            entry.tokens = tokens
        read = [(entry, entry.tokens) for entry in window if entry.tokens is not None]
        batch = [read[index] for index in around_first([len(t.ids) for _, t in read], self._max_batch_tokens)]
        embeddings = self._model.run([tokens for _, tokens in batch])
        return [(entry, embedding) for (entry, _), embedding in zip(batch, embeddings, strict=True)]
