from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from recalld import (
    Ctx,
    MemoryItem,
    RecalldError,
    Scope,
    ScopedMemory,
    ScopeViolation,
    SearchQuery,
    WrapperMemory,
    WriteBatch,
    WriteOutcome,
)
from recalld.testing import BlockedMemory, ListMemory, ScriptedStore

ITEM = MemoryItem("text", "caller")


async def attempt(guarded: ScopedMemory, verb: str, ctx: Any) -> Any:
    if verb == "query":
        return await guarded.query("q", k=1, ctx=ctx)
    if verb == "query for nothing":
        return await guarded.query("q", k=0, ctx=ctx)
    return await guarded.write([] if verb == "empty write" else [ITEM], ctx=ctx)


VERBS = ["query", "query for nothing", "write", "empty write"]


async def violated(enforce: Any, verb: str, ctx: Any) -> ScopeViolation:
    """The violation; nothing reached the source."""
    inner = ListMemory([ITEM])
    with pytest.raises(PermissionError) as raised:
        await attempt(ScopedMemory(inner, enforce), verb, ctx)
    assert (inner.queries, inner.writes) == ([], [])
    assert isinstance(raised.value, RecalldError)
    assert isinstance(raised.value, ScopeViolation)
    return raised.value


@pytest.mark.parametrize("verb", VERBS)
class TestDefault:
    @pytest.mark.parametrize(
        "scope",
        [Scope(), Scope("acme"), Scope(None, "support"), Scope("", "support"), Scope("acme", "")],
    )
    async def test_an_incomplete_scope_is_a_violation(self, verb: str, scope: Scope):
        assert isinstance(await violated(None, verb, Ctx(scope)), ValueError)

    @pytest.mark.parametrize("ctx", [SimpleNamespace(), SimpleNamespace(scope=None), None])
    async def test_so_is_a_context_without_one(self, verb: str, ctx: Any):
        await violated(None, verb, ctx)

    async def test_a_complete_scope_passes(self, verb: str, ctx: Ctx):
        await attempt(ScopedMemory(ListMemory([ITEM])), verb, ctx)
        await attempt(ScopedMemory(ListMemory([ITEM])), verb, SimpleNamespace(scope=ctx.scope))


async def none_of_it(ctx: Any) -> None: ...


async def refusing(ctx: Any) -> bool:
    return False


async def failing(ctx: Any) -> bool:
    raise KeyError("tenant")


def breaking(ctx: Any) -> bool:
    raise KeyError("tenant")


@pytest.mark.parametrize("verb", VERBS)
class TestEnforce:
    @pytest.mark.parametrize("verdict", [False, None, 0, "", []])
    async def test_a_falsy_answer_is_a_violation(self, verb: str, ctx: Ctx, verdict: Any):
        await violated(lambda _: verdict, verb, ctx)

    @pytest.mark.parametrize("enforce", [none_of_it, refusing])
    async def test_an_async_one_is_awaited(self, verb: str, ctx: Ctx, enforce: Any):
        await violated(enforce, verb, ctx)

    @pytest.mark.parametrize("enforce", [breaking, failing])
    async def test_any_exception_is_a_violation_and_its_cause(self, verb: str, ctx: Ctx, enforce: Any):
        assert isinstance((await violated(enforce, verb, ctx)).__cause__, KeyError)

    async def test_its_own_permission_error_is_a_violation_too(self, verb: str, ctx: Ctx):
        def denied(_: Any) -> bool:
            raise PermissionError("not this tenant")

        assert "not this tenant" in str(await violated(denied, verb, ctx))

    @pytest.mark.parametrize("verdict", [True, 1, "yes", object()])
    async def test_a_truthy_answer_passes_whatever_the_scope(self, verb: str, verdict: Any):
        async def later(_: Any) -> Any:
            return verdict

        nobody = Ctx()
        for enforce in (lambda _: verdict, later):
            await attempt(ScopedMemory(ListMemory([ITEM]), enforce), verb, nobody)

    async def test_it_sees_the_caller_s_context(self, verb: str, ctx: Ctx):
        seen: list[Any] = []
        await attempt(ScopedMemory(ListMemory([ITEM]), lambda given: seen.append(given) or True), verb, ctx)
        assert seen == [ctx]

    async def test_cancellation_is_not_a_violation(self, verb: str, ctx: Ctx):
        waiting = asyncio.Event()

        async def slow(_: Any) -> bool:
            waiting.set()
            await asyncio.Event().wait()
            return True

        task = asyncio.create_task(attempt(ScopedMemory(ListMemory(), slow), verb, ctx))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


STORE_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "query": lambda store, ctx: store.query("q", k=1, ctx=ctx),
    "write": lambda store, ctx: store.write([ITEM], ctx=ctx),
    "search": lambda store, ctx: store.search(SearchQuery("q", 1), ctx=ctx),
    "search for nothing": lambda store, ctx: store.search(SearchQuery("q", 0), ctx=ctx),
    "commit": lambda store, ctx: store.commit(WriteBatch([ITEM]), ctx=ctx),
    "empty commit": lambda store, ctx: store.commit(WriteBatch([]), ctx=ctx),
    "get": lambda store, ctx: store.get(["1"], ctx=ctx),
    "list": lambda store, ctx: anext(aiter(store.list(ctx=ctx))),
    "list_page": lambda store, ctx: store.list_page(ctx=ctx),
    "update": lambda store, ctx: store.update("1", ctx=ctx, content="x"),
    "delete": lambda store, ctx: store.delete(["1"], ctx=ctx),
    "dry run": lambda store, ctx: store.delete(["1"], ctx=ctx, dry_run=True),
    "commit_token": lambda store, ctx: store.commit_token(ctx=ctx),
}


class TestAsAStore:
    @pytest.mark.parametrize("call", STORE_CALLS.values(), ids=STORE_CALLS)
    @pytest.mark.parametrize("enforce", [None, refusing])
    async def test_checks_before_every_method(self, call: Any, enforce: Any):
        inner = ScriptedStore(items=[MemoryItem("text", "inner", id="1")])
        with pytest.raises(ScopeViolation):
            await call(ScopedMemory(inner, enforce), Ctx(Scope("acme")))
        assert inner.calls == []
        await call(ScopedMemory(inner), Ctx(Scope("acme", "support")))
        assert len(inner.calls) == 1

    def test_no_method_of_a_store_is_left_out(self):
        unguarded = {"close", "name", "accepts_writes", "keeps_records", "retrieval_modes"}
        of_a_store = {name for name in dir(WrapperMemory) if not name.startswith("_")}
        assert of_a_store - unguarded - {"inner"} == {name for name in STORE_CALLS if " " not in name}

    async def test_closing_needs_no_scope(self):
        inner = ScriptedStore()
        await ScopedMemory(inner).close()
        assert [call.method for call in inner.calls] == ["close"]

    async def test_a_slow_check_keeps_the_order_of_a_lane(self, ctx: Ctx):
        checks = {name: asyncio.Event() for name in ("first", "second", "other")}

        async def check(given: Any) -> bool:
            await checks[given.run_id].wait()
            return True

        inner = ScriptedStore()
        memory = ScopedMemory(inner, check)

        def begin(name: str, lane: str) -> asyncio.Task[Any]:
            batch = WriteBatch([MemoryItem(name, "me")], lane=lane)
            return asyncio.create_task(memory.commit(batch, ctx=replace(ctx, run_id=name)))

        tasks = [begin("first", "lane"), begin("second", "lane"), begin("other", "another")]
        checks["second"].set()
        checks["other"].set()
        await tasks[2]
        assert [given["batch"].items[0].content for given in inner.calls_of("commit")] == ["other"]
        checks["first"].set()
        await asyncio.gather(*tasks)
        assert [given["batch"].items[0].content for given in inner.calls_of("commit")] == ["other", "first", "second"]

    async def test_a_violation_lets_the_next_of_the_lane_go(self, ctx: Ctx):
        memory = ScopedMemory(ScriptedStore(), lambda given: given.run_id == "good")
        batch = WriteBatch([ITEM], lane="lane")
        outcomes = await asyncio.gather(
            *(memory.commit(batch, ctx=replace(ctx, run_id=run)) for run in ("bad", "good")), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [ScopeViolation, WriteOutcome]

    async def test_a_cancelled_commit_cancels_the_wrapped_one(self, ctx: Ctx):
        inner = BlockedMemory()
        task = asyncio.create_task(ScopedMemory(inner).commit(WriteBatch([ITEM], lane="lane"), ctx=ctx))
        await inner.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inner.cancelled == 1
