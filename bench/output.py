"""Where the benchmarks put their figures, and how they start the server that they measure."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"


def write_json(name: str, figures: Any) -> None:
    """Writes `bench/out/NAME.json`."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    target: str
    data: Path
    pid: int


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Starts `recalld serve` on a free loopback port with a fresh data directory; stops it in the end."""
    with tempfile.TemporaryDirectory(prefix="recalld-bench-") as folder:
        data = Path(folder) / "data"
        command = [sys.executable, "-m", "recalld_server", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
        command += ["--log-level", "warning"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "ready on " not in line:
                raise SystemExit("the server did not start")
            yield Server(line.rsplit(" ", 1)[1].strip(), data, process.pid)
        finally:
            process.terminate()
            process.wait()
