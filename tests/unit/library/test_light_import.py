from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "grpc",
    "google.protobuf",
    "numpy",
    "lancedb",
    "pyarrow",
    "onnxruntime",
    "tokenizers",
    "recalld_server",
    "pydantic",
)


def loaded_after(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_import_recalld_brings_in_nothing_heavy():
    assert loaded_after("import recalld") == set()


def test_the_testing_package_and_the_reranker_are_light_too():
    assert loaded_after("import recalld.testing, recalld.rerank") == set()


def test_a_remote_memory_brings_in_grpc_and_no_more():
    assert loaded_after("from recalld import RemoteMemory") == {"grpc", "google.protobuf"}


def test_import_recalld_takes_less_than_200_ms():
    program = "import time; before = time.process_time(); import recalld; print((time.process_time() - before) * 1000)"
    # The best of several, in CPU time: what else the machine is doing must not decide.
    taken = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(taken) < 200, taken
