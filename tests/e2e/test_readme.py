"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from recalld_server.settings import load_settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
GRPCURL = ROOT / ".bin" / "grpcurl"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_lines_run(shared):
    (code,) = blocks("python")
    assert "127.0.0.1:50051" in code
    result = subprocess.run(
        [sys.executable, "-c", code.replace("127.0.0.1:50051", shared.target)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Maya is allergic to peanuts." in result.stdout


@pytest.mark.skipif(not GRPCURL.exists(), reason="grpcurl is not built: there was no Go when the tests were set up")
def test_the_grpcurl_lines_run(shared):
    lines = [line for line in README.splitlines() if line.startswith("grpcurl ")]
    assert len(lines) == 2
    for line in lines:
        command = [str(GRPCURL), *shlex.split(line.replace("127.0.0.1:50051", shared.target))[1:]]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
    assert "Maya is allergic to peanuts." in result.stdout


def test_the_settings_are_settings(tmp_path):
    (table,) = blocks("toml")
    table = table.replace("/srv/handbook", str(tmp_path))
    assert tomllib.loads(table)
    (tmp_path / "recalld.toml").write_text(table)
    settings = load_settings({}, tmp_path / "recalld.toml")
    assert [source.name for source in settings.sources] == ["handbook", "head-office"]


def test_every_make_target_and_link_is_there():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
