"""What is said where only the client is installed: one line that names the extra to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: A process in which the packages of the extras cannot be imported.
WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
SERVER = {
    "grpc_health", "grpc_reflection", "lancedb", "numpy", "onnxruntime", "pyarrow", "pydantic",
    "pydantic_settings", "rich", "tokenizers", "huggingface_hub",
}  # fmt: skip


def run(program: str, *arguments: str, packages: set[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT.format(packages=packages) + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


RECALLD = "from recalld_server.cli import main; sys.exit(main())"


@pytest.mark.parametrize("command", [["--help"], ["serve"], ["serve", "--help"], ["health"], ["demo"], []])
def test_a_command_names_the_extra(command: list[str]) -> None:
    done = run(RECALLD, *command, packages=SERVER)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        'recalld: error: the command line needs pydantic, which is not installed: pip install "recalld[server]"\n'
    )


@pytest.mark.parametrize("package", ["lancedb", "onnxruntime", "grpc_reflection"])
def test_so_does_an_install_that_lacks_a_part(package: str, tmp_path: Path) -> None:
    done = run(RECALLD, "serve", "--data", str(tmp_path), packages={package})
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f'recalld: error: the command line needs {package}, which is not installed: pip install "recalld[server]"'
    ]


def test_so_does_embedded() -> None:
    program = """
import recalld
from recalld_server import embedded
try:
    embedded("data")
except recalld.RecalldError as error:
    assert isinstance(error, ImportError)
    print(error)
"""
    done = run(program, packages=SERVER)
    assert done.stderr == ""
    assert 'which is not installed: pip install "recalld[server]"' in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_fetching_a_model_names_its_own() -> None:
    done = run(RECALLD, "models", "pull", "acme/tiny", packages={"huggingface_hub"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "recalld: error: fetching a model needs huggingface_hub, which is not installed: "
        'pip install "recalld[models]"\n'
    )
