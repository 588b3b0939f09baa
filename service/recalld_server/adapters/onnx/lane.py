"""One queue in front of the model, with one thread that empties it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
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
    callers: list[_Caller] = field(default_factory=list["_Caller"])
    outcome: Embedding | RecalldError | None = None
    tokens: Tokens | None = None

    def result(self) -> Embedding:
        """The embedding, once there is an outcome; raises the error that the outcome is."""
        if not isinstance(self.outcome, Embedding):
            raise self.outcome or InternalFailure("a text was left without an embedding")
        return self.outcome


class _Caller:
    """One call, in the event loop that it was made from. missing: how many of its texts have no outcome yet."""

    def __init__(self) -> None:
        self.wanted: dict[str, _Waiting] = {}
        self.missing = 0
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()

    async def ready(self) -> None:
        """Waits until every text has an outcome, or one has failed."""
        if self.missing:
            await self._ready

    def tell(self, *, failed: bool) -> None:
        """One text has its outcome. For any thread."""
        self.missing -= 1
        if failed or not self.missing:
            with suppress(RuntimeError):  # a loop that is closed has nobody who waits
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)


class Lane:
    """A bounded queue of texts, shared by callers of any number of event loops, in any threads.

    Calls take turns: each batch is built around the oldest text of the next call, so that a small call does not wait
    for a large one to end. A text that waits or runs already is not embedded again. A text that nobody waits for any
    more leaves the queue.
    """

    def __init__(self, model: TextModel, name: str, *, max_batch_tokens: int, max_texts: int) -> None:
        self._model = model
        self._max_batch_tokens = max_batch_tokens
        self._max_texts = max_texts
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"embed-{name}")
        self._lock = threading.Lock()  # over all that follows, save for `_gone`
        self._waiting: dict[str, _Waiting] = {}
        self._calls: deque[dict[str, _Waiting]] = deque()
        self._working = False
        self._seconds_per_text = 0.02
        self._closed = False
        # Callers that wait no more. A coroutine that is thrown away ends wherever the garbage collector runs, also in a
        # thread that holds the lock; so a caller only leaves its name here, and who takes the lock next sees to it.
        self._gone: deque[_Caller] = deque()

    async def embed(self, texts: Sequence[str]) -> list[Embedding]:
        """One embedding a text, in order.

        Raises Overloaded when the queue has no room for the call (a call larger than the queue is taken when the queue
        is empty), SourceUnavailable when the lane closes first, InternalFailure when the model fails on a text.
        """
        caller = _Caller()
        self._join(caller, texts)
        try:
            await caller.ready()
        finally:
            if caller.missing:
                self._gone.append(caller)
        for entry in caller.wanted.values():
            if isinstance(entry.outcome, RecalldError):
                raise entry.outcome
        return [caller.wanted[text].result() for text in texts]

    async def close(self) -> None:
        """Ends the run in progress; whoever waits gets SourceUnavailable."""
        with self._lock:
            self._closed = True
            for entry in list(self._waiting.values()):
                self._finish(entry, SourceUnavailable("the embedder is closed"))
        await asyncio.to_thread(self._executor.shutdown)

    def _join(self, caller: _Caller, texts: Sequence[str]) -> None:
        """Queues what does not wait already; a call is taken whole or not at all."""
        with self._lock:
            if self._closed:
                raise SourceUnavailable("the embedder is closed")
            self._drop_gone()
            fresh = [text for text in dict.fromkeys(texts) if text not in self._waiting]
            if self._waiting and len(self._waiting) + len(fresh) > self._max_texts:
                retry_after = min(max(len(self._waiting) * self._seconds_per_text / 2, 0.1), 30.0)
                raise Overloaded(f"{len(self._waiting)} texts wait to be embedded already", retry_after=retry_after)
            call: dict[str, _Waiting] = {}
            for text in fresh:
                call[text] = self._waiting[text] = _Waiting(text, call)
            caller.wanted = {text: self._waiting[text] for text in dict.fromkeys(texts)}
            caller.missing = len(caller.wanted)
            for entry in caller.wanted.values():
                entry.callers.append(caller)
            if call:
                self._calls.append(call)
                if not self._working:
                    self._working = True
                    self._executor.submit(self._work)

    # What follows is called with the lock held.

    def _drop_gone(self) -> None:
        while self._gone:
            caller = self._gone.popleft()
            for entry in caller.wanted.values():
                if caller in entry.callers:
                    entry.callers.remove(caller)
                    if not entry.callers:
                        self._forget(entry)

    def _finish(self, entry: _Waiting, outcome: Embedding | RecalldError) -> None:
        if self._waiting.get(entry.text) is not entry:  # closed, or nobody waits for it any more
            return
        entry.outcome = outcome
        self._forget(entry)
        for caller in entry.callers:
            caller.tell(failed=isinstance(outcome, RecalldError))
        entry.callers.clear()

    def _forget(self, entry: _Waiting) -> None:
        del self._waiting[entry.text]
        del entry.call[entry.text]

    # What follows runs in the lane's thread, which takes the lock where it needs it and alone touches `tokens`.

    def _work(self) -> None:
        while window := self._next_window():
            self._embed_some(window)

    def _next_window(self) -> list[_Waiting]:
        """Texts of every call in turn, the call first whose turn was longest ago. Empty ends the work."""
        with self._lock:
            self._drop_gone()
            self._calls = deque(call for call in self._calls if call)
            self._calls.rotate(-1)
            turns = zip_longest(*(call.values() for call in self._calls))
            window = list(islice((entry for turn in turns for entry in turn if entry is not None), _WINDOW))
            self._working = bool(window)
            return window

    def _embed_some(self, window: Sequence[_Waiting]) -> None:
        started = time.monotonic()
        try:
            done = self._run(window)
        except Exception as error:  # noqa: BLE001 - the runtime's classes share no base but this one
            if len(window) > 1:
                for entry in window:  # so that only the text at fault fails
                    self._embed_some([entry])
                return
            _LOG.error("the model failed on a text", exc_info=error)
            with self._lock:
                self._finish(window[0], InternalFailure("the model failed on this text"))
            return
        with self._lock:
            self._seconds_per_text += 0.1 * ((time.monotonic() - started) / len(done) - self._seconds_per_text)
            for entry, embedding in done:
                self._finish(entry, embedding)

    def _run(self, window: Sequence[_Waiting]) -> list[tuple[_Waiting, Embedding]]:
        """Embeds the first of the window and what goes with it."""
        unread = [entry for entry in window if entry.tokens is None]
        for entry, tokens in zip(unread, self._model.tokenise([entry.text for entry in unread]), strict=True):
            entry.tokens = tokens
        read = [(entry, entry.tokens) for entry in window if entry.tokens is not None]
        batch = [read[index] for index in around_first([len(t.ids) for _, t in read], self._max_batch_tokens)]
        embeddings = self._model.run([tokens for _, tokens in batch])
        return [(entry, embedding) for (entry, _), embedding in zip(batch, embeddings, strict=True)]
