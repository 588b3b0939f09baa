"""What each layer of the library costs around a source that answers at once: microseconds a call.

    python bench/library.py [--rounds N]

Prints a table and writes bench/out/library.json. Each figure is the best of several rounds: what the layer costs, not
what else the machine was doing. `added` is the cost over asking the bare source.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from recalld import (
    CachedMemory,
    CompositeMemory,
    Ctx,
    MemoryItem,
    ReadOnlyMemory,
    Scope,
    ScopedMemory,
    SequentialMemory,
    rrf_rerank,
)
from recalld.fusion import merge_duplicates

CTX = Ctx(Scope("acme", "support"))
OUT = Path(__file__).parent / "out" / "library.json"


class Instant:
    """A source that costs nothing."""

    def __init__(self, name: str, items: list[MemoryItem]) -> None:
        self.name = name
        self.items = items

    async def query(self, query: str, *, k: int, ctx: Any, where: Any = None) -> list[MemoryItem]:
        return self.items

    async def write(self, items: Any, *, ctx: Any) -> None: ...


def kilobyte(number: int) -> str:
    return f"memory {number} ".ljust(1024, "x")


def items(source: str, numbers: range) -> list[MemoryItem]:
    return [MemoryItem(kilobyte(n), source, 1.0 / (n + 1), {"page": n}, id=f"{source}-{n}") for n in numbers]


async def microseconds(call: Callable[[], Awaitable[object]], rounds: int, calls: int) -> float:
    """The best round's mean time of a call."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            await call()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


async def measure(rounds: int) -> list[dict[str, Any]]:
    one = Instant("one", items("one", range(5)))
    four = [Instant(name, items(name, range(n * 5, n * 5 + 5))) for n, name in enumerate("abcd")]
    # Four sources that hold the same 50 memories, and four that share none.
    pool = [
        replace(i, content=kilobyte(number)) for n in range(4) for number, i in enumerate(items(f"s{n}", range(50)))
    ]
    distinct = [item for n in range(4) for item in items(f"s{n}", range(n * 50, n * 50 + 50))]
    cached = CachedMemory(one)

    def asking(source: Any, **more: Any) -> Callable[[], Awaitable[object]]:
        return lambda: source.query("a question", k=10, ctx=CTX, **more)

    def merging(some: list[MemoryItem]) -> Callable[[], Awaitable[object]]:
        async def merge() -> None:
            merge_duplicates(some, "id")

        return merge

    cases: list[tuple[str, Callable[[], Awaitable[object]], int, float | None]] = [
        ("bare source", asking(one), 2000, None),
        ("ScopedMemory", asking(ScopedMemory(one)), 2000, None),
        ("ReadOnlyMemory", asking(ReadOnlyMemory(one)), 2000, None),
        ("CachedMemory, hit", asking(cached), 2000, 20.0),
        ("CachedMemory, hit, with where", asking(cached, where={"page": {"$gte": 3}, "tag": "x"}), 2000, 20.0),
        ("SequentialMemory of 2", asking(SequentialMemory([one, four[0]])), 1000, None),
        ("CompositeMemory of 4, no dedupe", asking(CompositeMemory(list(four), dedupe=None)), 500, 200.0),
        ("CompositeMemory of 4", asking(CompositeMemory(list(four))), 500, 200.0),
        ("CompositeMemory of 4, rrf", asking(CompositeMemory(list(four), rrf_rerank())), 500, None),
        ("dedupe 4 x 50 of 1 KB, none alike", merging(distinct), 50, 2000.0),
        ("dedupe 4 x 50 of 1 KB, all alike", merging(pool), 50, 2000.0),
    ]
    rows: list[dict[str, Any]] = []
    for name, call, calls, bound in cases:
        await call()
        rows.append({"layer": name, "us": await microseconds(call, rounds, calls), "bound_us": bound})
    for row in rows:
        row["added_us"] = row["us"] - rows[0]["us"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What each layer of the library costs.")
    parser.add_argument("--rounds", type=int, default=7)
    rows = asyncio.run(measure(parser.parse_args().rounds))
    print(f"{'layer':<36}{'us a call':>12}{'added':>10}{'bound':>10}")
    for row in rows:
        bound = "" if row["bound_us"] is None else f"{row['bound_us']:.0f}"
        print(f"{row['layer']:<36}{row['us']:>12.1f}{row['added_us']:>10.1f}{bound:>10}")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps({"benchmark": "library", "unit": "microseconds a call", "rows": rows}, indent=2) + "\n")
    print(f"written to {OUT}")


if __name__ == "__main__":
    main()
