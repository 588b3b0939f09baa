from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from recalld import Ctx, MemoryItem, RecalldError, Scope, ScopedMemory, ScopeViolation
from recalld.testing import ListMemory

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
