"""What a server serves, as the doors see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from recalld.engine.ports import ModelIdentity
from recalld.sources.composite import CompositeMemory


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """One source as clients see it. kind: `lancedb`, `files` or `remote`."""

    name: str
    kind: str
    accepts_writes: bool


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """What a server tells of itself. The weights are those of a query whose legs are equally sure."""

    version: str
    name: str
    sources: Sequence[SourceDescription]
    model: ModelIdentity
    rank_fusion_k: int
    lexical_weight: float
    semantic_weight: float
    candidates: int


async def _always_there() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Served:
    """The memory behind a server, and what the server tells of itself.

    check: raises when what the memory is kept in is gone, or does not answer.
    """

    memory: CompositeMemory
    describe: Callable[[], ServerDescription]
    check: Callable[[], Awaitable[None]] = _always_there
