"""One writer of a table at a time, also between processes on one machine."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path


class TableLocks:
    """Advisory file locks, each taken without blocking the event loop.

    The kernel drops a lock with its process, so a killed server leaves nothing to clear away.
    """

    def __init__(self) -> None:
        # Waiting for another process parks a thread; a pool of its own keeps that from starving other work.
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="recalld-lock")

    @asynccontextmanager
    async def hold(self, path: Path | None) -> AsyncGenerator[None]:
        """Holds the lock at `path`; None, where there is no local file system, holds nothing."""
        if path is None:
            yield
            return
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.get_running_loop().run_in_executor(self._threads, fcntl.flock, handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
