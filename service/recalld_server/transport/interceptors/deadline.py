"""Stops work that nobody waits for any more."""

from __future__ import annotations

import asyncio
from typing import cast

from recalld.errors import DeadlineExceeded
from recalld_server.transport.call import Call
from recalld_server.transport.pipeline import Proceed

# The answer that time is up must itself arrive in time: a tenth of what is left, at most this much, is kept for it.
_MARGIN_SHARE = 0.1
_MARGIN = 0.05


class Deadline:
    """Bounds a call by what its client allows, and ends it with DEADLINE_EXCEEDED, which names the stage."""

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        remaining = cast("float | None", call.context.time_remaining())  # None without a deadline
        if remaining is None:
            return await proceed()
        call.deadline = asyncio.get_running_loop().time() + remaining - min(remaining * _MARGIN_SHARE, _MARGIN)
        limit = asyncio.timeout_at(call.deadline)
        try:
            async with limit:
                return await proceed()
        except DeadlineExceeded:
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(f"the deadline passed during {call.stage}", details={"stage": call.stage}) from None
