"""What a fork leaves of gRPC.

gRPC runs threads, and a fork takes none of them along. Found by experiment (grpcio 1.85, with and without
GRPC_ENABLE_FORK_SUPPORT): while a channel of `grpc.aio` exists, its thread keeps gRPC's own fork handlers from running,
and every call of the child then hangs or aborts the process, also over a new channel. Where no channel exists at the
time of the fork, the child works. So channels that nobody can use any more, since their event loop has ended, are
dropped before a fork; and a child that was forked beside a living channel says so at once.
"""

from __future__ import annotations

import gc
import os
from typing import Protocol
from weakref import WeakSet

import grpc.aio


class Keeper(Protocol):
    """Something that keeps channels."""

    def drop_ended(self) -> None:
        """Lets go of the channels whose event loop has ended."""
        ...


_KEEPERS: WeakSet[Keeper] = WeakSet()
_CHANNELS: WeakSet[grpc.aio.Channel] = WeakSet()
_severed: list[grpc.aio.Channel] = []


def watch_keeper(keeper: Keeper) -> None:
    """Has the keeper asked to drop what it can before each fork, as long as it lives."""
    _KEEPERS.add(keeper)


def watch_channel(channel: grpc.aio.Channel) -> None:
    """Counts the channel as living until nothing refers to it."""
    _CHANNELS.add(channel)


def is_severed() -> bool:
    """Whether this process was forked beside a living channel, so that no call of it can succeed."""
    return bool(_severed)


def _drop_ended() -> None:
    if _CHANNELS:
        for keeper in list(_KEEPERS):
            keeper.drop_ended()
    if _CHANNELS:
        gc.collect()  # calls that ended with their loop may still refer to a channel, in circles


def _look_around() -> None:
    # Kept for good: taking down a channel waits for a thread that is not here.
    _severed.extend(_CHANNELS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_drop_ended, after_in_child=_look_around)
