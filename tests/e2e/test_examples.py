"""Every example runs against a real server and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTS = {
    "quickstart.py": ["allergic to peanuts", "cycles to work", "ERR-4271-XK when the tax"],
    "compose.py": [
        "handbook   Trains are booked",
        "scratchpad Maya travels",
        "server     Maya gets",
        "accepted by ['server'], failed in ['down']",
    ],
    "ground_a_prompt.py": ["[memory] Maya is allergic to peanuts."],
    "records.py": [
        "got 'Maya lives in Bergen.'",
        "missing ['boat']",
        "refused: item 'home' has revision",
        "updated to 'Maya lives in Oslo.'",
        "listed ['bike', 'home']",
        "deleted 2",
    ],
    "local_then_remote.py": ["memory: The kiln", "recalld: The kiln"],
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_prints_what_it_promises(name, shared):
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, shared.target], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    for expected in PRINTS[name]:
        assert expected in result.stdout
