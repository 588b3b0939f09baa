"""Bulk write of short texts over one Write stream against what the embedder alone does in-process.

The goal is 90 % or more of the embedder's rate. The two run turn by turn, several rounds, since at the same time they
would fight for the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

import grpc
from output import server, write_json
from rich.console import Console
from rich.table import Table
from texts import sentences

from recalld.v1 import item_pb2, memory_service_pb2, memory_service_pb2_grpc
from recalld_server.adapters.onnx.config import EmbedderConfig
from recalld_server.adapters.onnx.embedder import load_embedder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000, help="items a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=200)
    arguments = parser.parse_args()
    with server() as running:
        asyncio.run(run(running.target, arguments))


async def run(target: str, arguments: argparse.Namespace) -> None:
    generator = random.Random(11)
    embedder = load_embedder(EmbedderConfig())
    await embedder.warm()
    alone: list[float] = []
    bulk: list[float] = []
    async with grpc.aio.insecure_channel(target) as channel:
        stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
        for number in range(arguments.rounds):
            texts = sentences(generator, arguments.items)
            began = time.perf_counter()
            chunks = [texts[at : at + arguments.batch] for at in range(0, len(texts), arguments.batch)]
            await asyncio.gather(*(embedder.embed_documents(chunk) for chunk in chunks))
            alone.append(len(texts) / (time.perf_counter() - began))
            began = time.perf_counter()
            await write(stub, f"round-{number}", chunks)
            bulk.append(len(texts) / (time.perf_counter() - began))
    await embedder.close()
    figures = {
        "embedder_alone_per_s": statistics.median(alone),
        "bulk_write_per_s": statistics.median(bulk),
        "ratio": statistics.median(b / a for a, b in zip(alone, bulk, strict=True)),
    }
    table = Table(title=f"bulk write, {arguments.rounds} rounds of {arguments.items} short texts")
    table.add_column("what")
    table.add_column("median", justify="right")
    table.add_row("embedder alone, in-process", f"{figures['embedder_alone_per_s']:.0f} texts/s")
    table.add_row("Write stream, durable", f"{figures['bulk_write_per_s']:.0f} items/s")
    table.add_row("ratio (goal: at least 0.9)", f"{figures['ratio']:.2f}")
    Console().print(table)
    write_json("bulk", figures)


async def write(stub: Any, domain: str, chunks: list[list[str]]) -> None:
    async def requests() -> Any:
        for sequence, chunk in enumerate(chunks, 1):
            yield memory_service_pb2.WriteRequest(
                scope=item_pb2.Scope(org_id="bench", domain_id=domain),
                sequence=sequence,
                items=[item_pb2.MemoryItem(content=text) for text in chunk],
            )

    async for response in stub.Write(requests()):
        if response.WhichOneof("result") != "outcome":
            raise SystemExit(f"batch {response.sequence} failed: {response.error}")


if __name__ == "__main__":
    main()
