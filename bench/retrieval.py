"""Retrieval quality and speed over a data set, through the gRPC API of a running server.

    recalld serve --data /tmp/bench-data &
    python bench/retrieval.py path/to/set [--target 127.0.0.1:50051]

The set is a folder with `items.jsonl.gz` ({"scope", "id", "content", ...} a line) and `queries.jsonl` ({"scope",
"question", "relevant": [ids]} a line). Every scope is a tenant of its own. For each mode it prints recall@10 (the share
of the relevant found), hit@10, nDCG@10 (binary gains), queries/s and p50/p95 latency, one query at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from output import write_json
from rich.console import Console
from rich.progress import track
from rich.table import Table

from recalld.v1 import admin_service_pb2, admin_service_pb2_grpc, item_pb2, memory_service_pb2, memory_service_pb2_grpc

K = 10
MODES = {
    "lexical": memory_service_pb2.RETRIEVAL_MODE_LEXICAL,
    "semantic": memory_service_pb2.RETRIEVAL_MODE_SEMANTIC,
    "hybrid": memory_service_pb2.RETRIEVAL_MODE_HYBRID,
}


@dataclass(frozen=True)
class Figures:
    recall: float
    hit: float
    ndcg: float
    queries_per_second: float
    p50_ms: float
    p95_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path)
    parser.add_argument("--target", default="127.0.0.1:50051")
    parser.add_argument("--batch", type=int, default=200, help="items a batch of the load")
    parser.add_argument("--no-load", action="store_true", help="the set is loaded already")
    asyncio.run(run(parser.parse_args()))


async def run(arguments: argparse.Namespace) -> None:
    name = arguments.set.name
    async with grpc.aio.insecure_channel(arguments.target) as channel:
        stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
        if not arguments.no_load:
            info = await admin_service_pb2_grpc.AdminServiceStub(channel).GetServerInfo(
                admin_service_pb2.GetServerInfoRequest()
            )
            items = read_items(arguments.set, info.limits.max_content_bytes)
            await load(stub, name, items, arguments.batch)
        queries = [json.loads(line) for line in (arguments.set / "queries.jsonl").read_text("utf-8").splitlines()]
        figures = {mode: await measure(stub, name, mode, queries) for mode in MODES}
    show(name, figures)
    write_json(f"retrieval-{name}", {mode: vars(each) for mode, each in figures.items()})


def read_items(folder: Path, max_content_bytes: int) -> dict[str, list[dict[str, Any]]]:
    """The items by scope; a content over the server's limit is cut to it."""
    cut = 0
    scopes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(folder / "items.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            content = item["content"].encode()
            if len(content) > max_content_bytes:
                item["content"] = content[:max_content_bytes].decode(errors="ignore")
                cut += 1
            scopes[item["scope"]].append(item)
    if cut:
        print(f"{cut} items were cut to {max_content_bytes} bytes, the server's limit")
    return scopes


async def load(stub: Any, name: str, scopes: dict[str, list[dict[str, Any]]], batch: int) -> None:
    count = sum(map(len, scopes.values()))
    began = time.perf_counter()

    async def requests() -> Any:
        batches = [
            (scope, items[at : at + batch]) for scope, items in scopes.items() for at in range(0, len(items), batch)
        ]
        for sequence, (scope, items) in enumerate(track(batches, description=f"loading {name}"), 1):
            yield memory_service_pb2.WriteRequest(
                scope=item_pb2.Scope(org_id=name, domain_id=scope),
                sequence=sequence,
                items=[
                    item_pb2.MemoryItem(id=item["id"], content=item["content"]) for item in items if item["content"]
                ],
            )

    async for response in stub.Write(requests()):
        if response.WhichOneof("result") != "outcome" or response.outcome.failed:
            raise SystemExit(f"batch {response.sequence} failed: {response}")
    took = time.perf_counter() - began
    print(f"loaded {count} items in {took:.1f} s ({count / took:.0f}/s)")


async def measure(stub: Any, name: str, mode: str, queries: Sequence[dict[str, Any]]) -> Figures:
    scores: list[tuple[float, float, float]] = []
    latencies: list[float] = []
    for query in track(queries, description=f"{name} {mode}"):
        request = memory_service_pb2.QueryRequest(
            scope=item_pb2.Scope(org_id=name, domain_id=query["scope"]), query=query["question"], k=K, mode=MODES[mode]
        )
        began = time.perf_counter()
        found = [hit.item.id async for frame in stub.Query(request) for hit in frame.hits.hits]
        latencies.append(time.perf_counter() - began)
        scores.append(score(found, set(query["relevant"])))
    recall, hit, ndcg = (statistics.fmean(column) for column in zip(*scores, strict=True))
    ordered = sorted(latencies)
    return Figures(
        recall,
        hit,
        ndcg,
        len(latencies) / sum(latencies),
        ordered[len(ordered) // 2] * 1000,
        ordered[int(len(ordered) * 0.95)] * 1000,
    )


def score(found: Sequence[str], relevant: set[str]) -> tuple[float, float, float]:
    """recall, hit and nDCG at K with binary gains (Jarvelin and Kekalainen, 2002)."""
    gains = [1.0 if each in relevant else 0.0 for each in found[:K]]
    ideal = sum(_discounts(min(len(relevant), K)))
    gained = sum(gain * discount for gain, discount in zip(gains, _discounts(len(gains)), strict=True))
    return sum(gains) / len(relevant), float(any(gains)), gained / ideal


def _discounts(count: int) -> Iterator[float]:
    return (1 / math.log2(rank + 1) for rank in range(1, count + 1))


def show(name: str, figures: dict[str, Figures]) -> None:
    table = Table(title=name)
    for column in ("mode", "recall@10", "hit@10", "nDCG@10", "queries/s", "p50 ms", "p95 ms"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    for mode, each in figures.items():
        table.add_row(
            mode,
            f"{each.recall:.3f}",
            f"{each.hit:.3f}",
            f"{each.ndcg:.3f}",
            f"{each.queries_per_second:.0f}",
            f"{each.p50_ms:.1f}",
            f"{each.p95_ms:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
