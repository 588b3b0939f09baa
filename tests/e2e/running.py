"""A server process under test."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


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

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=60)

    def logged(self) -> str:
        return self.log.read_text("utf-8")
