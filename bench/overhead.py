"""What a query over gRPC costs against its parts in-process, on the same table in the same run.

Prints the p50 of: embedding the query; both legs and the read of the winners, straight on the store; the whole query
over gRPC on loopback. The last should be at most 1.3 times the sum of the first two. The parts and the whole are
measured turn by turn, so that a noisy machine hurts them alike. Also prints the server's resident memory after the load
and its start time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from output import Server, server, write_json
from rich.console import Console
from rich.progress import track
from rich.table import Table
from texts import sentences

from recalld.engine.fusion import DEFAULT_CANDIDATES
from recalld.engine.visibility import active_unless_named, every, unexpired
from recalld.scope import Scope
from recalld.v1 import item_pb2, memory_service_pb2, memory_service_pb2_grpc
from recalld_server.adapters.lancedb import LanceConfig, open_records
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.embedder import load_embedder

SCOPE = Scope("bench", "overhead")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=200)
    arguments = parser.parse_args()
    began = time.perf_counter()
    with server() as running:
        started = time.perf_counter() - began
        asyncio.run(run(running, started, arguments.items, arguments.queries))


async def run(running: Server, started: float, items: int, queries: int) -> None:
    generator = random.Random(7)
    texts = sentences(generator, items)
    questions = sentences(generator, queries + 20, clauses=1)
    async with grpc.aio.insecure_channel(running.target) as channel:
        stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
        await load(stub, texts)
        resident = resident_mib(running.pid)
        figures = await measure(stub, running.data, questions)
    figures |= {"items": items, "start_s": started, "resident_after_load_mib": resident}
    show(figures)
    write_json("overhead", figures)


async def load(stub: Any, texts: list[str]) -> None:
    scope = item_pb2.Scope(org_id=SCOPE.org_id, domain_id=SCOPE.domain_id)
    for at in track(range(0, len(texts), 200), description="loading"):
        batch = [item_pb2.MemoryItem(content=text) for text in texts[at : at + 200]]
        await stub.BatchWrite(memory_service_pb2.BatchWriteRequest(scope=scope, items=batch))


async def measure(stub: Any, data: Path, questions: list[str]) -> dict[str, float]:
    embedder = load_embedder(EmbedderConfig())
    store = await open_records(LanceConfig(name="memory", root=data, model=embedder.identity))
    timings: dict[str, list[float]] = {"embed": [], "legs_and_read": [], "grpc": []}
    request = memory_service_pb2.QueryRequest(
        scope=item_pb2.Scope(org_id=SCOPE.org_id, domain_id=SCOPE.domain_id), k=10
    )
    for question in track(questions, description="querying"):
        began = time.perf_counter()
        embedding = await embedder.embed_query(question)
        timings["embed"].append(time.perf_counter() - began)

        began = time.perf_counter()
        visible = every(unexpired(datetime.now(UTC)), active_unless_named(None))
        lexical, semantic = await asyncio.gather(
            store.lexical(SCOPE, question, visible, limit=DEFAULT_CANDIDATES),
            store.semantic(SCOPE, embedding.vector, visible, limit=DEFAULT_CANDIDATES),
        )
        ids = list({each.id for each in [*lexical.candidates[:5], *semantic[:5]]})
        await store.read(SCOPE, ids, visible)
        timings["legs_and_read"].append(time.perf_counter() - began)

        request.query = question
        began = time.perf_counter()
        async for _ in stub.Query(request):
            pass
        timings["grpc"].append(time.perf_counter() - began)
    await store.close()
    await embedder.close()
    # The first twenty warm every cache on both sides.
    return {f"{name}_p50_ms": statistics.median(each[20:]) * 1000 for name, each in timings.items()}


def resident_mib(pid: int) -> float:
    """The resident memory of a process (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def show(figures: dict[str, float]) -> None:
    parts = figures["embed_p50_ms"] + figures["legs_and_read_p50_ms"]
    figures["ratio"] = figures["grpc_p50_ms"] / parts
    table = Table(title=f"one query, {figures['items']:.0f} items in the scope")
    table.add_column("what")
    table.add_column("p50", justify="right")
    table.add_row("embed the query, in-process", f"{figures['embed_p50_ms']:.1f} ms")
    table.add_row("both legs and the read, in-process", f"{figures['legs_and_read_p50_ms']:.1f} ms")
    table.add_row("the whole query over gRPC", f"{figures['grpc_p50_ms']:.1f} ms")
    table.add_row("ratio (goal: at most 1.3)", f"{figures['ratio']:.2f}")
    table.add_row("server start to ready", f"{figures['start_s']:.1f} s")
    table.add_row("server resident after the load", f"{figures['resident_after_load_mib']:.0f} MiB")
    Console().print(table)


if __name__ == "__main__":
    main()
