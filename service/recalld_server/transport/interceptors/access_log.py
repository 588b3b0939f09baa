"""One log line a call. It tells how the call went and nothing of what was in it."""

from __future__ import annotations

import asyncio
import logging
import time

from recalld_server.transport.call import Call
from recalld_server.transport.pipeline import Proceed

_LOG = logging.getLogger(__name__)

#: The codes that say something about this server rather than about the request.
_OURS = frozenset({"INTERNAL", "DATA_LOSS", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNKNOWN"})


class AccessLog:
    """Logs method, status code, reason, time taken, request id and peer when a call ends, however it ends."""

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        started = time.perf_counter()
        code = "UNKNOWN"
        try:
            answer = await proceed()
            code = "OK"
            return answer
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            if call.failure is not None:
                code = call.failure.code
            _log(call, code, time.perf_counter() - started)


def _log(call: Call, code: str, elapsed: float) -> None:
    fields: dict[str, object] = {
        "method": call.method.path.lstrip("/"),
        "code": code,
        "elapsed_ms": round(elapsed * 1000, 3),
        "peer": call.context.peer(),
    }
    if call.failure is not None:
        fields["reason"] = call.failure.reason
    _LOG.log(logging.WARNING if code in _OURS else logging.INFO, "rpc", extra=fields)
