"""Turns keep the order of a lane and hold up nobody else."""

from __future__ import annotations

import asyncio

import pytest

from recalld_server.application.turns import Turns


async def test_a_lane_goes_in_the_order_of_entering_whoever_is_ready_first():
    turns, order = Turns(), list[str]()
    ready = {name: asyncio.Event() for name in "abc"}

    async def write(name: str) -> None:
        with turns.enter("lane") as turn:
            await ready[name].wait()
            await turn.comes()
            order.append(name)

    tasks = [asyncio.create_task(write(name)) for name in "abc"]
    await asyncio.sleep(0)
    for name in "cba":
        ready[name].set()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]


async def test_other_lanes_and_no_lane_wait_for_nobody():
    turns = Turns()
    with turns.enter("lane"), turns.enter("other") as other, turns.enter(None) as none:
        await asyncio.wait_for(other.comes(), 1)
        await asyncio.wait_for(none.comes(), 1)


async def test_a_failure_lets_the_next_one_go():
    turns = Turns()
    first = turns.enter("lane")
    second = turns.enter("lane")
    with pytest.raises(RuntimeError), first:
        raise RuntimeError
    with second:
        await asyncio.wait_for(second.comes(), 1)
    with turns.enter("lane") as third:
        await asyncio.wait_for(third.comes(), 1)


async def test_one_that_gives_up_early_lets_nobody_overtake_those_before_it():
    turns = Turns()
    first, second, third = (turns.enter("lane") for _ in range(3))
    with second:
        pass
    waiting = asyncio.create_task(third.comes())
    await asyncio.sleep(0)
    assert not waiting.done()
    with turns.enter("lane") as fourth:
        behind = asyncio.create_task(fourth.comes())
        await asyncio.sleep(0)
        assert not behind.done()
        with first:
            pass
        await asyncio.wait_for(waiting, 1)
        with third:
            pass
        await asyncio.wait_for(behind, 1)
