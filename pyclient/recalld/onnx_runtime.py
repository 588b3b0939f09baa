"""ONNX Runtime, loaded in the one way that keeps it quiet: nothing else imports `onnxruntime`.

As published, the runtime has telemetry on: when it is loaded it writes an id of the device and a store of events into
the user's home, and sends the events to its maker. What it honours, as tried with 1.32 on Linux: the variable
ORT_DISABLE_TELEMETRY at `1`, `true` or `yes`, once, at load; then it writes and sends nothing. Any other value leaves
telemetry on, and `disable_telemetry_events` comes too late for the files; it is what other platforms go by.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

_SWITCH = "ORT_DISABLE_TELEMETRY"


def load_onnxruntime() -> Any:
    """The module `onnxruntime`, with its telemetry off, whatever the environment says. Raises ImportError without it.

    A program that imports `onnxruntime` itself before has loaded it its own way; only later events are stopped then.
    """
    # Not setdefault: a variable that says otherwise is most likely another program's.
    os.environ[_SWITCH] = "1"
    runtime: Any = importlib.import_module("onnxruntime")
    runtime.disable_telemetry_events()
    return runtime
