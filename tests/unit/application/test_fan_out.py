"""One request over several sources: what answers is merged, what does not is named, nothing is swallowed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from recalld.errors import (
    AllSourcesFailed,
    IdempotencyKeyReused,
    InvalidField,
    InvalidRequest,
    MemoryWriteRefused,
    RecalldError,
    SourceUnavailable,
    UnknownSource,
)
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application.composition import Composition
from recalld_server.application.query import QueryMemories
from recalld_server.application.read_only import ReadOnlySource
from recalld_server.application.write import WriteMemories
from recalld_server.ports import Batch, Committed, Degradation, Hit, QuerySpec, Ranked

SCOPE = Scope("acme", "support")


@dataclass
class Shelf:
    """A source that holds what it is given, or raises what it is told to."""

    name: str
    hits: Sequence[MemoryItem] = ()
    error: Exception | None = None
    hang: bool = False
    kind: str = "shelf"
    accepts_writes: bool = True
    written: list[MemoryItem] = field(default_factory=list)
    degradations: Sequence[Degradation] = ()

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        await self._reach()
        hits = [Hit(item, lexical_rank=rank) for rank, item in enumerate(self.hits[: spec.k], 1)]
        return Ranked(hits, self.degradations, commit_token=f"seen-{self.name}")

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        await self._reach()
        self.written.extend(batch.items)
        return Committed([item.id or "" for item in batch.items], f"wrote-{self.name}")

    async def close(self) -> None:
        await self._reach()

    async def _reach(self) -> None:
        if self.hang:
            await asyncio.Event().wait()
        if self.error:
            raise self.error


def item(content: str, source: str, id: str | None = None) -> MemoryItem:
    return MemoryItem(content, source, 1.0, id=id)


def query(*sources: Shelf) -> QueryMemories:
    return QueryMemories(Composition("all", sources))


def write(*sources: Shelf | ReadOnlySource) -> WriteMemories:
    return WriteMemories(Composition("all", sources))


async def test_a_single_source_passes_through_unchanged():
    hits = [item("b", "one", "1"), item("b", "one", "2")]
    ranked = await query(Shelf("one", hits))(SCOPE, QuerySpec("q", 5), ())
    assert [hit.item for hit in ranked.hits] == hits


async def test_copies_of_one_fact_become_one_hit_and_sources_take_turns():
    one = Shelf("one", [item("tea", "one", "a"), item("milk", "one", "b")])
    two = Shelf("two", [item("tea", "two", "x"), item("sugar", "two", "y")])
    ranked = await query(one, two)(SCOPE, QuerySpec("q", 3), ())
    assert [hit.item.content for hit in ranked.hits] == ["tea", "sugar", "milk"]
    assert ranked.hits[0].item.metadata["dedupe_count"] == 2
    assert ranked.hits[0].lexical_rank == 1


async def test_a_failed_and_a_late_source_are_named_and_the_others_answer():
    down = Shelf("down", error=SourceUnavailable("gone"))
    late = Shelf("late", hang=True)
    broken = Shelf("broken", error=RuntimeError("a defect with a secret"))
    leg = Degradation("up/semantic", "DEADLINE_EXCEEDED", "late")
    up = Shelf("up", [item("tea", "up")], degradations=[leg])
    ranked = await query(down, late, broken, up)(SCOPE, QuerySpec("q", 3, timeout=0.2), ())
    assert [hit.item.content for hit in ranked.hits] == ["tea"]
    assert [(each.component, each.reason) for each in ranked.degradations] == [
        ("up/semantic", "DEADLINE_EXCEEDED"),
        ("down", "SOURCE_UNAVAILABLE"),
        ("late", "DEADLINE_EXCEEDED"),
        ("broken", "INTERNAL"),
    ]
    assert "secret" not in " ".join(each.message for each in ranked.degradations)


async def test_only_when_every_source_fails_is_an_error_raised():
    gone = SourceUnavailable("gone")
    with pytest.raises(SourceUnavailable):
        await query(Shelf("down", error=gone))(SCOPE, QuerySpec("q", 3), ())
    with pytest.raises(AllSourcesFailed) as failure:
        await query(Shelf("down", error=gone), Shelf("too", error=gone))(SCOPE, QuerySpec("q", 3), ())
    assert set(failure.value.failed) == {"down", "too"}


async def test_a_wrong_request_is_an_error_also_when_others_answer():
    wrong = Shelf("wrong", error=InvalidField(violations={"where": "is odd"}))
    with pytest.raises(InvalidField):
        await query(wrong, Shelf("up", [item("tea", "up")]))(SCOPE, QuerySpec("q", 3), ())


async def test_cancellation_reaches_every_source():
    task = asyncio.create_task(query(Shelf("late", hang=True), Shelf("up"))(SCOPE, QuerySpec("q", 3), ()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_sources_are_asked_by_name_and_an_unknown_one_is_named():
    one, two = Shelf("one", [item("tea", "one")]), Shelf("two", [item("milk", "two")])
    ranked = await query(one, two)(SCOPE, QuerySpec("q", 3), ["two"])
    assert [hit.item.content for hit in ranked.hits] == ["milk"]
    with pytest.raises(UnknownSource) as failure:
        await query(one, two)(SCOPE, QuerySpec("q", 3), ["three"])
    assert failure.value.details == {"source": "three"}


def test_two_sources_of_one_name_are_refused():
    with pytest.raises(InvalidRequest, match="one"):
        Composition("all", [Shelf("one"), Shelf("one")])


async def test_each_source_ends_in_exactly_one_bucket():
    up = Shelf("up")
    sources = [
        up,
        Shelf("files", accepts_writes=False),
        ReadOnlySource(Shelf("kept"), "ignore"),
        ReadOnlySource(Shelf("sealed"), "refuse"),
        Shelf("down", error=SourceUnavailable("gone")),
        Shelf("broken", error=RuntimeError("a defect")),
    ]
    outcome = await write(*sources)(SCOPE, [item("tea", "me", "a")], idempotency_key="", sources=())
    assert outcome.accepted == ["up"]
    assert outcome.refused == ["files", "kept"]
    assert {name: type(error).__name__ for name, error in outcome.failed.items()} == {
        "sealed": "MemoryWriteRefused",
        "down": "SourceUnavailable",
        "broken": "InternalFailure",
    }
    assert outcome.ids == ["a"]
    assert [each.id for each in up.written] == ["a"]


async def test_where_one_source_was_asked_its_error_is_the_call_s():
    for error in (IdempotencyKeyReused("used"), SourceUnavailable("gone")):
        with pytest.raises(type(error)):
            await write(Shelf("one", error=error), Shelf("two"))(
                SCOPE, [item("tea", "me")], idempotency_key="k", sources=["one"]
            )
    with pytest.raises(MemoryWriteRefused):
        await write(ReadOnlySource(Shelf("one"), "refuse"))(SCOPE, [item("tea", "me")], idempotency_key="", sources=())


async def test_all_sources_get_the_same_ids():
    one, two = Shelf("one"), Shelf("two")
    outcome = await write(one, two)(SCOPE, [MemoryItem("tea", "me")], idempotency_key="", sources=())
    assert [each.id for each in one.written] == [each.id for each in two.written] == outcome.ids


async def test_closing_closes_every_source_and_tells_of_failures():
    with pytest.raises(ExceptionGroup):
        await Composition("all", [Shelf("one", error=RecalldError("stuck")), Shelf("two")]).close()
