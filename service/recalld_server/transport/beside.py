"""Works on large messages beside the event loop, so that no call makes the others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: From how many bytes on a message is worked on in a thread. Below it the work takes a few milliseconds at most, and a
#: thread would cost more than it spares.
LARGE_BYTES = 16 * 1024


async def beside_the_loop(size: int, work: Callable[[], T]) -> T:
    """What `work` gives or raises; in a thread where the message that it works on is large. size: its bytes."""
    return await asyncio.to_thread(work) if size >= LARGE_BYTES else work()
