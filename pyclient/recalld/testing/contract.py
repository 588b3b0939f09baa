"""What every memory source keeps to, as tests that a source of your own can run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from recalld.errors import CompositeWriteError, MemoryWriteRefused
from recalld.filters import matches
from recalld.item import MemoryItem
from recalld.scope import Ctx, CtxLike, Scope
from recalld.source import MemorySource, accepts_writes
from recalld.testing.suite import check, fail, on_a_loop, skip_unless, typed
from recalld.where import parse_where

_SPARE = 50  # more than a test's source holds


class MemorySourceContract:
    """Subclass it, name the subclass `Test...`, override `make_source`, and pytest runs the suite on your source.

        class TestNotes(MemorySourceContract):
            query = "coffee"

            async def make_source(self) -> MemorySource:
                return await notes_with("coffee at nine", "no coffee after six", "coffee is out")

    Every test makes its own source, on its own event loop, so the suite needs no plugin. The hooks below say what your
    source can do; a test that does not apply is skipped, and says why.
    """

    #: Words that at least three memories of a fresh source match.
    query: ClassVar[str] = "coffee"
    #: Words that the memories written by the suite hold, beside `query`; a source that writes must find them by these.
    written: ClassVar[str] = "freshly written"
    #: Whether the items come best first, by score. False for a source that keeps another order on purpose.
    ranked: ClassVar[bool] = True
    #: Whether a memory written in one scope is invisible in another.
    scoped: ClassVar[bool] = False
    #: Whether `where` filters by metadata. False for a source that hands `where` on to something else.
    filters: ClassVar[bool] = True
    #: Filters that pass some of the memories and not others, beyond those that every source can be asked.
    wheres: ClassVar[Sequence[Mapping[str, Any]]] = ()
    #: Whether what is written can be asked for again, with the metadata in `metadata`.
    keeps_metadata: ClassVar[bool] = False
    #: Metadata of the written memory, of every type that the source keeps.
    metadata: ClassVar[Mapping[str, Any]] = {
        "text": "é 漢 🙂",
        "whole": 2**53 + 1,
        "fraction": 0.1,
        "yes": True,
        "none": None,
        "list": [1, "two", False, {"deep": [1.5]}],
        "map": {"a": {"b": 1}},
        "when": datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
    }
    #: The names that may stand in `item.source`; None for the source's own name only.
    stamps: ClassVar[frozenset[str] | None] = None

    async def make_source(self) -> MemorySource:
        """A fresh source that holds at least three memories, in the scope of `ctx`, that match `query`."""
        raise NotImplementedError("override make_source")

    async def make_subject(self) -> Any:
        return await self.make_source()

    async def close_subject(self, subject: Any) -> None:
        await self.close_source(subject)

    async def close_source(self, source: MemorySource) -> None:
        """Let go of the source; calls its `close` if there is one."""
        close = getattr(source, "close", None)
        if close is not None:
            closing = close()
            if inspect.isawaitable(closing):
                await closing

    def ctx(self, scope: Scope | None = None) -> CtxLike:
        """The context of a call: tenant `acme`, domain `support`, unless the test asks for another."""
        return Ctx(scope=scope or Scope("acme", "support"))

    def calls(self, source: MemorySource) -> int | None:
        """How often the backend was asked so far; None when that cannot be told."""
        return None

    # What every source is

    @on_a_loop
    async def test_has_a_name(self, source: MemorySource) -> None:
        """It has a name that is text and stays the same."""
        check(isinstance(source, MemorySource), "not a MemorySource: it needs name, query and write")  # pyright: ignore[reportUnnecessaryIsInstance]
        await source.query(self.query, k=1, ctx=self.ctx())
        name: Any = source.name
        check(isinstance(name, str) and name, f"the name is text, not {name!r}")
        check(name == source.name, "the name changes")

    # What a query gives

    @on_a_loop
    async def test_finds_memories(self, source: MemorySource) -> None:
        """A fresh source has at least three matches, as a list of items with content."""
        found: Any = await self._find(source)
        check(isinstance(found, list), f"query gives a list, not {type(found).__name__}")
        check(len(found) >= 3, f"the suite needs three matches for {self.query!r}, not {len(found)}")
        for item in found:
            check(isinstance(item, MemoryItem), f"query gives items, not {type(item).__name__}")
            check(item.content, f"an item has content: {item}")

    @on_a_loop
    async def test_stamps_its_name(self, source: MemorySource) -> None:
        """Each item says which source it came from."""
        allowed = self.stamps if self.stamps is not None else {source.name}
        for item in await self._find(source):
            check(item.source in allowed, f"item.source is {item.source!r}, not of {sorted(allowed)}")

    @on_a_loop
    async def test_keeps_to_k(self, source: MemorySource) -> None:
        """Never more than `k` items, and as many as there are."""
        total = len(await self._find(source))
        for k in (1, 2, total):
            found = await self._find(source, k=k)
            check(len(found) <= k, f"{len(found)} items for k={k}")
            check(found, f"nothing for k={k}, though there are {total}")

    @on_a_loop
    async def test_asks_nobody_for_nothing(self, source: MemorySource) -> None:
        """`k <= 0` gives an empty list."""
        for k in (0, -1):
            check(await self._find(source, k=k) == [], f"k={k} gives items")

    @on_a_loop
    async def test_spares_its_backend(self, source: MemorySource) -> None:
        """Neither `k <= 0` nor an unknown operator reaches the backend."""
        before = self.calls(source)
        skip_unless(before is not None, "the suite cannot count the calls of the backend")
        await self._find(source, k=0)
        with suppress(ValueError):
            await self._find(source, where={"page": {"$near": 3}})
        check(self.calls(source) == before, "the backend was asked for nothing, or with an unknown operator")

    @on_a_loop
    async def test_puts_the_best_first(self, source: MemorySource) -> None:
        """Scores never rise along the list, and items without one come last."""
        skip_unless(self.ranked, "the source keeps another order on purpose")
        scores = [item.score for item in await self._find(source)]
        unscored = [score is None for score in scores]
        check(unscored == sorted(unscored), f"items without a score come before others: {scores}")
        given = [score for score in scores if score is not None]
        check(given == sorted(given, reverse=True), f"scores rise along the list: {scores}")

    @on_a_loop
    async def test_answers_alike(self, source: MemorySource) -> None:
        """The same question on the same memories has the same answer, also when asked several times at once."""
        first = await self._find(source)
        check(await self._find(source) == first, "the second answer differs")
        for answer in await asyncio.gather(*(self._find(source) for _ in range(5))):
            check(answer == first, "an answer differs when several are asked for at once")

    @on_a_loop
    async def test_gives_lists_away(self, source: MemorySource) -> None:
        """What a caller does to a returned list does not show in a later answer."""
        first = await self._find(source)
        kept = list(first)
        first.clear()
        check(await self._find(source) == kept, "clearing a returned list changed a later answer")

    @on_a_loop
    async def test_takes_any_context_with_a_scope(self, source: MemorySource) -> None:
        """A context is structural: `run_id`, `user_id` and `observe` may be absent."""
        scope = self.ctx().scope
        bare = SimpleNamespace(scope=SimpleNamespace(org_id=scope.org_id, domain_id=scope.domain_id))
        found = await source.query(self.query, k=_SPARE, ctx=bare)
        check(found == await self._find(source), "a bare context is answered otherwise")

    # What a filter does

    @on_a_loop
    async def test_refuses_unknown_operators(self, source: MemorySource) -> None:
        """An operator that no filter has is a ValueError."""
        for where in ({"page": {"$near": 3}}, {"$nor": [{"page": 3}]}, {"$or": [{"page": {"$gt": 1, "$lte_": 2}}]}):
            with suppress(ValueError):
                await self._find(source, where=where)
                fail(f"{where} is taken")

    @on_a_loop
    async def test_filters(self, source: MemorySource) -> None:
        """A `where` leaves exactly the items for which `recalld.filters.matches` says so."""
        skip_unless(self.filters, "the source hands `where` on")
        everything = await self._find(source)
        general: list[Mapping[str, Any]] = [
            {"no_such_field": 1},
            {"no_such_field": {"$ne": 1}},
            {"no_such_field": {"$exists": False}},
            {"$or": [{"no_such_field": 1}, {"$not": {"no_such_field": "x"}}]},
        ]
        for where in (*general, *self.wheres):
            condition = parse_where(where)
            expected = [item for item in everything if condition is not None and matches(condition, item)]
            found = await self._find(source, where=where)
            check(_contents(found) == _contents(expected), f"{where}: {_contents(found)}, not {_contents(expected)}")

    # What a write does

    @on_a_loop
    async def test_stores_what_it_accepts(self, source: MemorySource) -> None:
        """After `write` returned, a source that accepts writes finds the memory."""
        skip_unless(await self._writable(source), "the source takes no writes")
        item = self._new(1)
        await source.write([item], ctx=self.ctx())
        found = await self._written(source)
        check(_contents(found) == [item.content], f"wrote {item.content!r}, found {_contents(found)}")

    @on_a_loop
    async def test_takes_any_iterable(self, source: MemorySource) -> None:
        """A generator is read once, to its end."""
        skip_unless(await self._writable(source), "the source takes no writes")
        read: list[int] = []

        def items() -> Any:
            for number in (1, 2, 3):
                read.append(number)
                yield self._new(number)

        await source.write(items(), ctx=self.ctx())
        check(read == [1, 2, 3], f"the generator was read as {read}")
        check(len(await self._written(source)) == 3, "not every item of the generator is stored")

    @on_a_loop
    async def test_an_empty_write_changes_nothing(self, source: MemorySource) -> None:
        """A write of no items is no error, except where a policy refuses any write."""
        before = await self._find(source)
        with suppress(MemoryWriteRefused):
            await source.write([], ctx=self.ctx())
        check(await self._find(source) == before, "an empty write changed the answer")

    @on_a_loop
    async def test_says_when_it_stores_nothing(self, source: MemorySource) -> None:
        """A source with `accepts_writes` False refuses or ignores a write, and its answers stay as they were."""
        skip_unless(not await self._writable(source), "the source takes writes")
        before = await self._find(source)
        with suppress(MemoryWriteRefused, CompositeWriteError):
            await source.write([self._new(1)], ctx=self.ctx())
        check(await self._find(source) == before, "a source that says it takes no writes took one")

    @on_a_loop
    async def test_keeps_metadata(self, source: MemorySource) -> None:
        """Metadata comes back equal, of the same types, and frozen."""
        skip_unless(self.keeps_metadata, "the source does not keep the metadata of what is written")
        await source.write([self._new(1, self.metadata)], ctx=self.ctx())
        (found,) = await self._written(source)
        for key, value in self.metadata.items():
            check(key in found.metadata, f"metadata[{key!r}] is gone")
            kept: Any = found.metadata[key]
            check(typed(kept) == typed(value), f"metadata[{key!r}] was {value!r}, came back as {kept!r}")
        with suppress(TypeError):
            found.metadata["new"] = 1
            fail("the metadata of a found item can be changed")

    @on_a_loop
    async def test_keeps_scopes_apart(self, source: MemorySource) -> None:
        """What one tenant wrote, no other finds; nor does another domain of the same tenant."""
        skip_unless(self.scoped, "the source is shared by all scopes")
        await source.write([self._new(1)], ctx=self.ctx())
        own = self.ctx().scope
        for scope in (Scope("another", own.domain_id), Scope(own.org_id, "another")):
            found = await source.query(f"{self.written} {self.query}", k=_SPARE, ctx=self.ctx(scope))
            check(found == [], f"{scope} sees {_contents(found)}")

    async def _find(
        self, source: MemorySource, *, k: int = _SPARE, where: Mapping[str, Any] | None = None
    ) -> list[MemoryItem]:
        return await source.query(self.query, k=k, ctx=self.ctx(), where=None if where is None else dict(where))

    async def _written(self, source: MemorySource) -> list[MemoryItem]:
        found = await source.query(self.written, k=_SPARE, ctx=self.ctx())
        return [item for item in found if self.written in item.content]

    async def _writable(self, source: MemorySource) -> bool:
        await self._find(source, k=1)  # a remote source learns from its server whether it accepts writes
        return accepts_writes(source)

    def _new(self, number: int, metadata: Mapping[str, Any] | None = None) -> MemoryItem:
        return MemoryItem(f"{self.query} {self.written} {number}", "contract", metadata=dict(metadata or {}))


def _contents(items: Sequence[MemoryItem]) -> list[str]:
    return sorted(item.content for item in items)
