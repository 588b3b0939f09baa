"""Lanes keep their order and hold up nobody else."""

from __future__ import annotations

import asyncio

import pytest

from recalld.lanes import Lanes


async def test_a_lane_goes_in_the_order_of_entering_whoever_is_ready_first():
    lanes, order = Lanes(), list[str]()
    ready = {name: asyncio.Event() for name in "abc"}

    async def write(name: str) -> None:
        with lanes.enter("lane") as place:
            await ready[name].wait()
            await place.comes()
            order.append(name)

    tasks = [asyncio.create_task(write(name)) for name in "abc"]
    await asyncio.sleep(0)
    for name in "cba":
        ready[name].set()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]


async def test_other_lanes_and_no_lane_wait_for_nobody():
    lanes = Lanes()
    with lanes.enter("lane"), lanes.enter("other") as other, lanes.enter(None) as none:
        await asyncio.wait_for(other.comes(), 1)
        await asyncio.wait_for(none.comes(), 1)


async def test_a_failure_lets_the_next_one_go():
    lanes = Lanes()
    first = lanes.enter("lane")
    second = lanes.enter("lane")
    with pytest.raises(RuntimeError), first:
        raise RuntimeError
    with second:
        await asyncio.wait_for(second.comes(), 1)
    with lanes.enter("lane") as third:
        await asyncio.wait_for(third.comes(), 1)


async def test_one_that_gives_up_early_lets_nobody_overtake_those_before_it():
    lanes = Lanes()
    first, second, third = (lanes.enter("lane") for _ in range(3))
    with second:
        pass
    waiting = asyncio.create_task(third.comes())
    await asyncio.sleep(0)
    assert not waiting.done()
    with lanes.enter("lane") as fourth:
        behind = asyncio.create_task(fourth.comes())
        await asyncio.sleep(0)
        assert not behind.done()
        with first:
            pass
        await asyncio.wait_for(waiting, 1)
        with third:
            pass
        await asyncio.wait_for(behind, 1)
