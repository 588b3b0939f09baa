"""How long the largest legal calls make others wait: the event loop's worst lag, as a health check sees it.

Asks for health every few milliseconds, first while the server is idle and then while one heavy call after the other
runs. Prints the worst and the p99 answer time of health in each case. The goal: no call holds the loop for more than
20 ms. What a health check takes includes this process and the machine, so read it against the idle figure.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from output import server, write_json
from rich.console import Console
from rich.table import Table

from recalld.v1 import filter_pb2, item_pb2, memory_service_pb2, memory_service_pb2_grpc

_SCOPE = item_pb2.Scope(org_id="bench", domain_id="lag")
_BETWEEN = 0.002

Work = Callable[[], Awaitable[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each heavy call is made (default: 5)")
    arguments = parser.parse_args()
    with server() as running:
        figures = asyncio.run(run(running.target, arguments.rounds))
    show(figures)
    write_json("lag", figures)


async def run(target: str, rounds: int) -> dict[str, dict[str, float]]:
    # Two channels, so that a health check does not queue behind a large message on its connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        grpc.aio.insecure_channel(target, options=options) as calls,
        grpc.aio.insecure_channel(target, options=options) as checks,
    ):
        memory = memory_service_pb2_grpc.MemoryServiceStub(calls)
        health: Any = health_pb2_grpc.HealthStub(checks)
        batch, query = _batch().SerializeToString(), _query()
        anything: Any = calls  # gRPC has no types for a call of bytes
        write = anything.unary_unary("/recalld.v1.MemoryService/BatchWrite")

        async def filtered() -> None:
            async for _ in memory.Query(query):
                pass

        await write(batch)
        figures = {"idle": await watched(health, lambda: asyncio.sleep(1.0), 1)}
        figures["BatchWrite of 4 MB metadata"] = await watched(health, lambda: write(batch), rounds)
        figures["Query with 250 conditions of 1,000 values"] = await watched(health, filtered, rounds)
    return figures


async def watched(health: Any, work: Work, rounds: int) -> dict[str, float]:
    """The answer times of health, in milliseconds, while the work is done `rounds` times."""
    done = asyncio.Event()
    took: list[float] = []

    async def watch() -> None:
        while not done.is_set():
            began = time.perf_counter()
            await health.Check(health_pb2.HealthCheckRequest())
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(_BETWEEN)

    watching = asyncio.create_task(watch())
    for _ in range(rounds):
        await work()
    done.set()
    await watching
    return {"worst_ms": max(took), "p99_ms": statistics.quantiles(took, n=100)[98], "checks": len(took)}


def _batch() -> memory_service_pb2.BatchWriteRequest:
    """Close to the largest message, most of it metadata: what costs most to check. One key, so that only the first is
    stored, and the later ones show what reading and recognising one costs."""
    items = [_item(number) for number in range(70)]
    return memory_service_pb2.BatchWriteRequest(scope=_SCOPE, items=items, idempotency_key="lag")


def _item(number: int) -> item_pb2.MemoryItem:
    metadata = {f"k{key}": _many(item_pb2.Value(integer_value=1_000_000 + at) for at in range(80)) for key in range(60)}
    return item_pb2.MemoryItem(id=str(number), content="short", metadata=metadata)


def _many(values: Iterable[item_pb2.Value]) -> item_pb2.Value:
    return item_pb2.Value(list_value=item_pb2.ListValue(values=values))


def _query() -> memory_service_pb2.QueryRequest:
    """A filter close to what a request may hold."""
    values = [item_pb2.Value(integer_value=at) for at in range(1_000)]
    where = filter_pb2.Filter()
    for number in range(250):
        # `in` is a word of Python.
        member = getattr(where.any.filters.add(), "in")
        member.CopyFrom(filter_pb2.Membership(field=f"metadata.k{number}", values=values))
    return memory_service_pb2.QueryRequest(scope=_SCOPE, query="short", k=10, where=where)


def show(figures: dict[str, dict[str, float]]) -> None:
    table = Table(title="health checks while heavy calls run")
    for column in ("while", "worst", "p99", "checks"):
        table.add_column(column, justify="left" if column == "while" else "right")
    for name, each in figures.items():
        table.add_row(name, f"{each['worst_ms']:.1f} ms", f"{each['p99_ms']:.1f} ms", f"{each['checks']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
