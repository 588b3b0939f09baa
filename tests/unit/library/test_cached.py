from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld import (
    CachedMemory,
    CompositeMemory,
    Ctx,
    Degradation,
    MemoryItem,
    RankFusion,
    RetrievalMode,
    Scope,
    SearchHit,
    SearchQuery,
    ToolMemory,
    WrapperMemory,
    WriteBatch,
)
from recalld.decorators.cached import _make_key  # pyright: ignore[reportPrivateUsage]
from recalld.errors import ScopeRequired
from recalld.filters import All, Compare, Field, Op
from recalld.testing import BlockedMemory, FailingMemory, ListMemory, ScriptedStore

ITEM = MemoryItem("text", "inner")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


@pytest.fixture
def inner() -> ListMemory:
    return ListMemory([ITEM], "inner")


def ctx_of(org: str | None = "acme", domain: str | None = "support", user: str | None = None) -> Ctx:
    return Ctx(Scope(org, domain), user_id=user)


class TestHits:
    async def test_a_repeated_query_does_not_reach_the_source(self, inner: ListMemory, ctx: Ctx):
        cached = CachedMemory(inner)
        first = await cached.query("q", k=1, ctx=ctx, where={"$not": {"a": 1}})
        assert await cached.query("q", k=1, ctx=ctx, where={"$not": {"a": 1}}) == first == [ITEM]
        assert len(inner.queries) == 1

    async def test_an_empty_answer_is_kept_too(self, ctx: Ctx):
        inner = ListMemory()
        cached = CachedMemory(inner)
        for _ in range(2):
            assert await cached.query("q", k=1, ctx=ctx) == []
        assert len(inner.queries) == 1

    async def test_no_where_and_an_empty_one_are_the_same(self, inner: ListMemory, ctx: Ctx):
        cached = CachedMemory(inner)
        await cached.query("q", k=1, ctx=ctx)
        await cached.query("q", k=1, ctx=ctx, where={})
        assert len(inner.queries) == 1

    async def test_what_a_caller_does_to_a_list_does_not_reach_the_cache(self, inner: ListMemory, ctx: Ctx):
        cached = CachedMemory(inner)
        for _ in range(3):
            answer = await cached.query("q", k=1, ctx=ctx)
            assert answer == [ITEM]
            answer.clear()
        assert inner.items == [ITEM]

    async def test_the_run_makes_no_difference(self, inner: ListMemory):
        cached = CachedMemory(inner)
        for run in ("1", "2"):
            await cached.query("q", k=1, ctx=Ctx(Scope("acme", "support"), run_id=run))
        assert len(inner.queries) == 1

    async def test_errors_are_not_kept(self, ctx: Ctx):
        cached = CachedMemory(FailingMemory(OSError("disk")))
        for _ in range(2):
            with pytest.raises(OSError, match="disk"):
                await cached.query("q", k=1, ctx=ctx)


KEYS: dict[str, dict[str, Any]] = {
    "org": {"ctx": ctx_of(org="other")},
    "no org": {"ctx": ctx_of(org=None)},
    "domain": {"ctx": ctx_of(domain="other")},
    "user": {"ctx": ctx_of(user="ada")},
    "query": {"query": "Q"},
    "k": {"k": 2},
    "where": {"where": {"a": 1}},
}


@pytest.mark.parametrize("change", KEYS)
async def test_the_key_holds(inner: ListMemory, change: str):
    cached = CachedMemory(inner)
    call: dict[str, Any] = {"query": "q", "k": 1, "ctx": ctx_of(), "where": None}
    for changed in (call, {**call, **KEYS[change]}):
        await cached.query(changed["query"], k=changed["k"], ctx=changed["ctx"], where=changed["where"])
    assert len(inner.queries) == 2


async def test_two_tenants_never_share_an_entry_also_with_lists_and_dicts(ctx: Ctx):
    class Tenants(ListMemory):
        async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
            return [MemoryItem(f"secret of {ctx.scope.org_id}", "inner")]

    cached = CachedMemory(Tenants())
    for where in (None, {"a": [1, {"b": 2}]}, {"a": {"$in": [1, 2]}}):
        for org in ("acme", "other", "acme"):
            (item,) = await cached.query("q", k=1, ctx=ctx_of(org=org), where=where)
            assert item.content == f"secret of {org}"


async def test_an_unset_part_of_a_scope_and_an_empty_one_are_the_same(inner: ListMemory):
    cached = CachedMemory(inner)
    await cached.query("q", k=1, ctx=ctx_of(org="", user=""))
    bare = SimpleNamespace(scope=SimpleNamespace(org_id=None, domain_id="support"))
    await cached.query("q", k=1, ctx=bare)
    assert len(inner.queries) == 1


class TestWhereInTheKey:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
            ({"a": {"x": 1, "y": [2]}}, {"a": {"y": [2], "x": 1}}),
            ({"a": {"$in": [1, 2]}}, {"a": {"$in": (1, 2)}}),
        ],
    )
    async def test_equal_filters_share_an_entry(self, inner: ListMemory, ctx: Ctx, one: Any, other: Any):
        cached = CachedMemory(inner)
        for where in (one, other):
            await cached.query("q", k=1, ctx=ctx, where=where)
        assert len(inner.queries) == 1

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"a": 1}, {"a": True}),
            ({"a": 1}, {"a": 1.0}),
            ({"a": 0}, {"a": False}),
            ({"a": 1}, {"a": "1"}),
            ({"a": [1]}, {"a": [True]}),
            ({"a": [1, 2]}, {"a": [2, 1]}),
            ({"a": {"b": 1}}, {"a": {"b": 1.0}}),
            ({"a": {"b": 1}}, {"a": [["b", 1]]}),
            ({"a": None}, {"a": "None"}),
            ({"a": None}, {}),
        ],
    )
    async def test_other_filters_do_not(self, inner: ListMemory, ctx: Ctx, one: Any, other: Any):
        cached = CachedMemory(inner)
        for where in (one, other, one):
            await cached.query("q", k=1, ctx=ctx, where=where)
        assert len(inner.queries) == 2

    async def test_a_value_that_cannot_be_a_key_is_asked_each_time(self, ctx: Ctx):
        class Unhashable:
            __hash__ = None  # type: ignore[assignment]

        asked: list[Any] = []
        cached = CachedMemory(ToolMemory(lambda **args: asked.append(args) or "x"))
        for _ in range(2):
            assert len(await cached.query("q", k=1, ctx=ctx, where={"odd": Unhashable()})) == 1
        assert len(asked) == 2

    values = st.recursive(
        st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, "", "a", "1"]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
        max_leaves=4,
    )

    @given(values, values)
    def test_keys_are_equal_exactly_when_values_and_types_are(self, one: Any, other: Any):
        assert (_make_key(one) == _make_key(other)) is (typed(one) == typed(other))


def typed(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{typed(value[key])}" for key in sorted(value)) + "}"
    return "[" + ",".join(map(typed, value)) + "]" if isinstance(value, list) else repr(value)


class TestTimeToLive:
    async def test_an_entry_is_served_until_its_time_is_up(self, inner: ListMemory, ctx: Ctx, clock: Clock):
        cached = CachedMemory(inner, ttl_seconds=10.0)
        for later, asked in ((0.0, 1), (9.9, 1), (0.1, 2), (9.9, 2), (10.0, 3)):
            clock.now += later
            await cached.query("q", k=1, ctx=ctx)
            assert len(inner.queries) == asked

    async def test_its_age_counts_from_when_the_source_was_asked(self, ctx: Ctx, clock: Clock):
        slow = BlockedMemory([ITEM])
        cached = CachedMemory(slow, ttl_seconds=10.0)
        asking = asyncio.create_task(cached.query("q", k=1, ctx=ctx))
        await slow.started.wait()
        clock.now += 9.0
        slow.release.set()
        await asking
        slow.items = []
        assert await cached.query("q", k=1, ctx=ctx) == [MemoryItem("text", "blocked")]
        clock.now += 1.0
        assert await cached.query("q", k=1, ctx=ctx) == []

    async def test_zero_keeps_nothing(self, inner: ListMemory, ctx: Ctx, clock: Clock):
        cached = CachedMemory(inner, ttl_seconds=0.0)
        for _ in range(2):
            await cached.query("q", k=1, ctx=ctx)
        assert len(inner.queries) == 2


class TestSize:
    async def ask(self, cached: CachedMemory, *queries: str) -> None:
        for query in queries:
            await cached.query(query, k=1, ctx=ctx_of())

    async def test_the_oldest_entry_goes_when_it_is_full(self, inner: ListMemory):
        cached = CachedMemory(inner, max_entries=2)
        await self.ask(cached, "a", "b", "c", "b", "c")
        assert [call.query for call in inner.queries] == ["a", "b", "c"]
        await self.ask(cached, "a")
        assert len(inner.queries) == 4

    async def test_a_renewed_entry_is_young_again(self, inner: ListMemory, clock: Clock):
        cached = CachedMemory(inner, ttl_seconds=10.0, max_entries=2)
        await self.ask(cached, "a")
        clock.now += 6
        await self.ask(cached, "b")
        clock.now += 6
        await self.ask(cached, "a")  # too old, asked anew
        await self.ask(cached, "c")  # so b goes
        inner.queries.clear()
        await self.ask(cached, "a", "c")
        assert inner.queries == []

    async def test_an_answer_that_comes_twice_pushes_nobody_out(self):
        slow = Slow()
        cached = CachedMemory(slow, max_entries=2)
        slow.hold = False
        await self.ask(cached, "a")
        slow.hold = True
        twice = [asyncio.create_task(self.ask(cached, "b")) for _ in range(2)]
        await slow.started.wait()
        slow.release.set()
        await asyncio.gather(*twice)
        slow.asked = 0
        await self.ask(cached, "a", "b")
        assert slow.asked == 0

    @pytest.mark.parametrize("size", [0, -1])
    async def test_without_room_nothing_is_kept(self, inner: ListMemory, size: int):
        await self.ask(CachedMemory(inner, max_entries=size), "a", "a")
        assert len(inner.queries) == 2


class TestWrites:
    async def test_drop_the_entries_of_their_scope_and_no_others(self, inner: ListMemory):
        cached = CachedMemory(inner)
        ada, bob, other = ctx_of(user="ada"), ctx_of(user="bob"), ctx_of(org="other")
        for ctx in (ada, bob, other):
            await cached.query("q", k=1, ctx=ctx)
        await cached.write([ITEM], ctx=ada)
        inner.queries.clear()
        for ctx in (ada, bob, other):
            await cached.query("q", k=1, ctx=ctx)
        assert [call.ctx for call in inner.queries] == [ada, bob]

    async def test_a_failed_one_too(self, ctx: Ctx):
        class ReadsButFailsToWrite(ListMemory):
            async def write(self, items: Any, *, ctx: Any) -> None:
                raise OSError("after half of it")

        inner = ReadsButFailsToWrite([ITEM])
        cached = CachedMemory(inner)
        await cached.query("q", k=1, ctx=ctx)
        with pytest.raises(OSError, match="half"):
            await cached.write([ITEM], ctx=ctx)
        await cached.query("q", k=1, ctx=ctx)
        assert len(inner.queries) == 2

    async def test_a_query_under_way_brings_back_nothing_stale(self, ctx: Ctx):
        slow = Slow()
        cached = CachedMemory(slow)
        asking = asyncio.create_task(cached.query("q", k=9, ctx=ctx))
        await slow.started.wait()
        await cached.write([ITEM], ctx=ctx)
        slow.release.set()
        assert await asking == []  # what it read
        assert len(await cached.query("q", k=9, ctx=ctx)) == 1  # and not what it left behind

    async def test_nor_one_that_starts_and_ends_within_the_write(self, ctx: Ctx):
        class SlowToWrite(ListMemory):
            writing = asyncio.Event()
            release = asyncio.Event()

            async def write(self, items: Any, *, ctx: Any) -> None:
                self.writing.set()
                await self.release.wait()
                await super().write(items, ctx=ctx)

        inner = SlowToWrite()
        cached = CachedMemory(inner)
        writing = asyncio.create_task(cached.write([ITEM], ctx=ctx))
        await inner.writing.wait()
        assert await cached.query("q", k=9, ctx=ctx) == []
        inner.release.set()
        await writing
        assert len(await cached.query("q", k=9, ctx=ctx)) == 1

    async def test_a_late_stale_answer_does_not_replace_a_fresh_one(self, ctx: Ctx):
        slow = Slow()
        cached = CachedMemory(slow)
        stale = asyncio.create_task(cached.query("q", k=9, ctx=ctx))
        await slow.started.wait()
        await cached.write([ITEM], ctx=ctx)
        slow.hold = False
        assert len(await cached.query("q", k=9, ctx=ctx)) == 1
        slow.release.set()
        assert await stale == []
        assert len(await cached.query("q", k=9, ctx=ctx)) == 1

    async def test_another_scope_s_write_does_not_spoil_a_query(self, ctx: Ctx):
        slow = Slow()
        cached = CachedMemory(slow)
        asking = asyncio.create_task(cached.query("q", k=9, ctx=ctx))
        await slow.started.wait()
        await cached.write([ITEM], ctx=ctx_of(org="other"))
        slow.release.set()
        await asking
        slow.asked = 0
        await cached.query("q", k=9, ctx=ctx)
        assert slow.asked == 0


class Slow(ListMemory):
    """Reads, then waits before it answers, while `hold`."""

    def __init__(self) -> None:
        super().__init__()
        self.hold, self.asked = True, 0
        self.started, self.release = asyncio.Event(), asyncio.Event()

    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        self.asked += 1
        found = await super().query(query, k=k, ctx=ctx, where=where)
        if self.hold:
            self.started.set()
            await self.release.wait()
        return found


async def test_identical_queries_at_the_same_time_all_have_the_answer(ctx: Ctx):
    slow = BlockedMemory([ITEM])
    cached = CachedMemory(slow)
    asking = [asyncio.create_task(cached.query("q", k=1, ctx=ctx)) for _ in range(3)]
    await slow.started.wait()
    asking[0].cancel()
    slow.release.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [[MemoryItem("text", "blocked")]] * 2
    slow.release.clear()
    assert await cached.query("q", k=1, ctx=ctx) == [MemoryItem("text", "blocked")]


class TestStrictScope:
    @pytest.mark.parametrize("ctx", [ctx_of(org=None), ctx_of(domain=None), ctx_of(org="")])
    async def test_an_incomplete_scope_is_refused_by_both_verbs(self, inner: ListMemory, ctx: Ctx):
        cached = CachedMemory(inner, strict_scope=True)
        for call in (cached.query("q", k=1, ctx=ctx), cached.query("q", k=0, ctx=ctx), cached.write([ITEM], ctx=ctx)):
            with pytest.raises(PermissionError) as raised:
                await call
            assert isinstance(raised.value, ScopeRequired)
        assert (inner.queries, inner.writes) == ([], [])

    async def test_a_complete_one_passes(self, inner: ListMemory, ctx: Ctx):
        assert await CachedMemory(inner, strict_scope=True).query("q", k=1, ctx=ctx) == [ITEM]


QUERY = SearchQuery("q", 1, {"a": 1}, RetrievalMode.LEXICAL, RankFusion(2, 0.5, 0.5), 100, "token")
OTHERS: dict[str, SearchQuery] = {
    "text": replace(QUERY, text="Q"),
    "k": replace(QUERY, k=2),
    "where": replace(QUERY, where={"a": True}),
    "mode": replace(QUERY, mode=RetrievalMode.HYBRID),
    "fusion": replace(QUERY, fusion=RankFusion(2, 0.5, 0.25)),
    "candidates": replace(QUERY, candidates=None),
    "min_commit_token": replace(QUERY, min_commit_token=""),
}


def store_holding(*contents: str, **more: Any) -> ScriptedStore:
    return ScriptedStore("inner", [SearchHit(MemoryItem(text, "inner"), 1) for text in contents], **more)


class TestSearches:
    async def test_a_repeated_search_does_not_reach_the_store(self, ctx: Ctx):
        inner = store_holding("a", token="1", fusion=RankFusion(2, 1, 0))  # noqa: S106
        cached = CachedMemory(inner)
        first = await cached.search(QUERY, ctx=ctx)
        assert await cached.search(replace(QUERY), ctx=ctx) == first
        assert (first.items, first.commit_token, first.fusion) == ([inner.hits[0].item], "1", RankFusion(2, 1, 0))
        assert len(inner.calls) == 1

    @pytest.mark.parametrize("field", OTHERS)
    async def test_the_key_holds_every_field(self, ctx: Ctx, field: str):
        assert set(OTHERS) == {each.name for each in fields(SearchQuery)}
        inner = store_holding("a")
        cached = CachedMemory(inner)
        for query in (QUERY, OTHERS[field], QUERY):
            await cached.search(query, ctx=ctx)
        assert [given["query"] for given in inner.calls_of("search")] == [QUERY, OTHERS[field]]

    async def test_and_scope_and_user(self):
        inner = store_holding("a")
        cached = CachedMemory(inner)
        for ctx in (ctx_of(), ctx_of(org="other"), ctx_of(domain="other"), ctx_of(user="ada")):
            await cached.search(QUERY, ctx=ctx)
        assert len(inner.calls) == 4

    async def test_values_of_typed_filters_keep_their_types(self, ctx: Ctx):
        inner = store_holding("a")
        cached = CachedMemory(inner)
        for value in (1, True, 1.0, 1):
            where = All((Compare(Field("metadata", ("a",)), Op.EQ, value),))
            await cached.search(SearchQuery("q", where=where), ctx=ctx)
        assert len(inner.calls) == 3

    async def test_a_search_and_a_query_do_not_share_an_entry(self, ctx: Ctx):
        inner = store_holding("a")
        cached = CachedMemory(inner)
        assert await cached.query("q", k=1, ctx=ctx) == (await cached.search(SearchQuery("q", 1), ctx=ctx)).items
        assert len(inner.calls) == 2

    async def test_k_of_zero_is_not_kept(self, ctx: Ctx):
        inner = store_holding("a")
        cached = CachedMemory(inner)
        for _ in range(2):
            assert (await cached.search(SearchQuery("q", 0), ctx=ctx)).items == []
        assert len(inner.calls) == 2


class TestDegradedAnswers:
    @pytest.mark.parametrize("verb", ["search", "query"])
    async def test_are_given_and_not_kept(self, ctx: Ctx, verb: str):
        class Flaky(ListMemory):
            down = True

            async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
                if self.down:
                    raise OSError("gone")
                return await super().query(query, k=k, ctx=ctx, where=where)

        flaky, up = Flaky([MemoryItem("second", "flaky")], "flaky"), ListMemory([MemoryItem("first", "up")], "up")
        cached = CachedMemory(CompositeMemory([up, flaky]))

        async def ask() -> list[str]:
            if verb == "query":
                return [item.content for item in await cached.query("q", k=5, ctx=ctx)]
            return [hit.item.content for hit in (await cached.search(SearchQuery("q"), ctx=ctx)).hits]

        assert await ask() == ["first"]
        flaky.down = False
        assert await ask() == ["first", "second"]
        flaky.down = True
        assert await ask() == ["first", "second"]  # that one was whole, and is kept

    @pytest.mark.parametrize("verb", ["search", "query"])
    async def test_also_where_nobody_observes_and_a_decorator_stands_between(self, verb: str):
        class Own(WrapperMemory):
            async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
                return await super().query(query, k=k, ctx=ctx, where=where)

        up = ListMemory([ITEM], "up")
        cached = CachedMemory(Own(CompositeMemory([up, FailingMemory(OSError())])))
        for _ in range(2):
            if verb == "query":
                assert len(await cached.query("q", k=5, ctx=ctx_of())) == 1
            else:
                assert len((await cached.search(SearchQuery("q"), ctx=ctx_of())).hits) == 1
        assert len(up.queries) == 2

    async def test_a_leg_that_is_missing_is_told_by_the_answer(self, ctx: Ctx):
        inner = store_holding("a", degradations=[Degradation("inner/semantic", "DEADLINE_EXCEEDED", "late")])
        cached = CachedMemory(inner)
        for _ in range(2):
            assert len((await cached.search(QUERY, ctx=ctx)).degradations) == 1
        assert len(inner.calls) == 2

    async def test_what_another_call_observes_meanwhile_does_not_matter(self, ctx: Ctx):
        slow = BlockedMemory([ITEM], "slow")
        cached = CachedMemory(slow)
        asking = asyncio.create_task(cached.query("q", k=1, ctx=ctx))
        await slow.started.wait()
        await CompositeMemory([FailingMemory(OSError()), ListMemory([ITEM])]).query("q", k=1, ctx=ctx)
        slow.release.set()
        await asking
        await cached.query("q", k=1, ctx=ctx)
        assert len(slow.queries) == 1


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "write": lambda store, ctx: store.write([ITEM], ctx=ctx),
    "commit": lambda store, ctx: store.commit(WriteBatch([ITEM]), ctx=ctx),
    "update": lambda store, ctx: store.update("1", ctx=ctx, content="x"),
    "delete": lambda store, ctx: store.delete(["1"], ctx=ctx),
}


class TestRecords:
    @pytest.mark.parametrize("fails", [False, True])
    @pytest.mark.parametrize("change", CHANGES)
    async def test_every_change_drops_the_entries_of_its_scope(self, change: str, fails: bool):
        failing = "commit" if change == "write" else change
        failures: dict[str, BaseException] = {failing: OSError("after half of it")} if fails else {}
        inner = store_holding("a", items=[MemoryItem("a", "inner", id="1")], failures=failures)
        cached = CachedMemory(inner)
        ada, bob, other = ctx_of(user="ada"), ctx_of(user="bob"), ctx_of(org="other")
        for ctx in (ada, bob, other):
            await cached.search(QUERY, ctx=ctx)
            await cached.query("q", k=1, ctx=ctx)
        if fails:
            with pytest.raises(OSError, match="half"):
                await CHANGES[change](cached, ada)
        else:
            await CHANGES[change](cached, ada)
        inner.calls.clear()
        for ctx in (ada, bob, other):
            await cached.search(QUERY, ctx=ctx)
            await cached.query("q", k=1, ctx=ctx)
        assert [call.ctx for call in inner.calls] == [ada, ada, bob, bob]

    async def test_a_search_under_way_brings_back_nothing_stale(self, ctx: Ctx):
        gate = asyncio.Event()
        inner = store_holding("a", items=[MemoryItem("a", "inner", id="1")], until={"search": gate})
        cached = CachedMemory(inner)
        asking = asyncio.create_task(cached.search(QUERY, ctx=ctx))
        await asyncio.sleep(0)
        await cached.delete(["1"], ctx=ctx)
        gate.set()
        await asking
        await cached.search(QUERY, ctx=ctx)
        assert len(inner.calls_of("search")) == 2

    async def test_reads_by_id_and_lists_are_never_kept(self, ctx: Ctx):
        inner = store_holding("a", items=[MemoryItem("a", "inner", id="1")])
        cached = CachedMemory(inner)
        for _ in range(2):
            assert len(await cached.get(["1"], ctx=ctx)) == 1
            assert len([item async for item in cached.list(ctx=ctx)]) == 1
        assert [call.method for call in inner.calls] == ["get", "list_page"] * 2

    async def test_a_closed_cache_answers_nothing_by_itself(self, ctx: Ctx):
        inner = store_holding("a")
        cached = CachedMemory(inner)
        await cached.search(QUERY, ctx=ctx)
        await cached.close()
        await cached.search(QUERY, ctx=ctx)
        assert [call.method for call in inner.calls] == ["search", "close", "search"]

    async def test_strict_scope_is_for_every_call(self):
        inner = store_holding("a")
        cached = CachedMemory(inner, strict_scope=True)
        nobody = ctx_of(org=None)
        for call in (
            cached.search(QUERY, ctx=nobody),
            cached.commit(WriteBatch([ITEM]), ctx=nobody),
            cached.get(["1"], ctx=nobody),
            cached.list_page(ctx=nobody),
            cached.update("1", ctx=nobody, content="x"),
            cached.delete(["1"], ctx=nobody),
        ):
            with pytest.raises(ScopeRequired):
                await call
        assert inner.calls == []
