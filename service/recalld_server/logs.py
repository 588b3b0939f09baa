"""The log: one JSON object a line on stderr, through the standard library's logging."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

#: The id of the request that this task works for; every line logged meanwhile carries it.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

#: What every record has by itself; whatever else is on one came in through `extra` and is a field of the line.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as `{"ts", "level", "logger", "event", ...extra}`; a traceback goes into `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        line.update((key, value) for key, value in vars(record).items() if key not in _OWN)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to_stderr(level: str) -> None:
    """Sends every record of this level or above to stderr. level: `debug`, `info`, `warning` or `error`."""
    target = logging.StreamHandler(sys.stderr)
    target.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[target], force=True)
