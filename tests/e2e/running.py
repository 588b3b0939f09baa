"""A server process under test."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

READY = "recalld ready on "


@dataclass
class Running:
    """One server process."""

    process: subprocess.Popen[str]
    target: str
    log: Path

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop; gives the exit code."""
        self.process.send_signal(sign)
        return self.process.wait(timeout=60)

    def logged(self) -> str:
        return self.log.read_text("utf-8")


Start = Callable[..., Running]


@contextlib.contextmanager
def servers(tmp_path: Path) -> Iterator[Start]:
    """Starts servers below `tmp_path`; ends all of them in the end."""
    running: list[Running] = []

    def begin(*flags: str, data: Path | None = None, config: str = "", listen: str = "127.0.0.1:0") -> Running:
        number = len(running)
        command = [sys.executable, "-m", "recalld_server", "serve", "--listen", listen, *flags]
        command += ["--data", str(data or tmp_path / "data")]
        if config:
            file = tmp_path / f"recalld-{number}.toml"
            file.write_text(config, "utf-8")
            command += ["--config", str(file)]
        log = tmp_path / f"server-{number}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"no ready line: {line!r}; log: {log.read_text('utf-8')}"
        running.append(Running(process, line.removeprefix(READY).strip(), log))
        return running[-1]

    try:
        yield begin
    finally:
        for each in running:
            if each.process.poll() is None:
                each.process.kill()
            each.process.wait()
            assert each.process.stdout is not None
            each.process.stdout.close()
