"""`recalld demo`: the main job at a glance, on a real server in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from recalld import Ctx, RemoteMemory
from recalld.errors import RecalldError
from recalld.store import SearchHit, SearchQuery, WriteBatch
from recalld_server.samples import SAMPLE_QUESTIONS, SAMPLE_SCOPE, sample_items

_READY = "recalld ready on "
_HITS = 3


class DemoFailed(RecalldError):
    """The demo's server did not come up."""


def run_demo() -> None:
    """Starts a server on a free loopback port, writes the samples, asks the questions, prints, stops the server."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="recalld-demo-") as folder:
        command = [
            sys.executable,
            "-m",
            "recalld_server",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            folder + "/data",
        ]
        with (Path(folder) / "server.log").open("w+") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                assert server.stdout is not None  # noqa: S101 - PIPE was asked for
                line = server.stdout.readline()
                if not line.startswith(_READY):
                    log.seek(0)
                    raise DemoFailed(f"the server did not start: {log.read().strip() or line.strip()}")
                asyncio.run(_converse(console, line.removeprefix(_READY).strip()))
            finally:
                server.terminate()
                server.wait()
    _say_next(console)


async def _converse(console: Console, address: str) -> None:
    ctx = Ctx(SAMPLE_SCOPE)
    async with RemoteMemory(address) as memory:
        items = sample_items()
        began = time.perf_counter()
        (await memory.commit(WriteBatch(items), ctx=ctx)).raise_for_failures()
        took = time.perf_counter() - began
        console.print(f"[bold]recalld[/] on {address}: {len(items)} memories written durably in {took * 1000:.0f} ms\n")
        for question in SAMPLE_QUESTIONS:
            began = time.perf_counter()
            result = await memory.search(SearchQuery(question, _HITS), ctx=ctx)
            took = time.perf_counter() - began
            console.print(_answer(question, result.hits, took))


def _answer(question: str, hits: Sequence[SearchHit], took: float) -> Table:
    table = Table(title=f"[bold]{question}[/]  [dim]{took * 1000:.0f} ms[/]", title_justify="left", expand=True)
    table.add_column("memory", ratio=1)
    table.add_column("score", justify="right")
    table.add_column("words", justify="right", header_style="cyan")
    table.add_column("meaning", justify="right", header_style="magenta")
    for hit in hits:
        table.add_row(hit.item.content, f"{hit.item.score or 0:.4f}", _rank(hit.lexical_rank), _rank(hit.semantic_rank))
    return table


def _rank(rank: int) -> str:
    return f"#{rank}" if rank else "-"


def _say_next(console: Console) -> None:
    console.print("\n[dim]words: rank by BM25; meaning: rank by cosine similarity; -: not found that way.[/]")
    console.print("[dim]score: both ranks, fused; it orders the hits of one query and is no probability.[/]")
    console.print("Try next, with your own data:\n  [bold].venv/bin/recalld serve[/]")
