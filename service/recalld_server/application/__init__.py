"""The use cases of the server. They take ports and domain words and know neither gRPC nor LanceDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recalld_server.application.change import ChangeMemories
from recalld_server.application.query import QueryMemories
from recalld_server.application.read import ReadMemories
from recalld_server.application.write import Outcome, WriteMemories
from recalld_server.ports import ModelIdentity

__all__ = ["Application", "Outcome", "ServerDescription", "SourceDescription"]


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """One source as clients see it."""

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


@dataclass(frozen=True, slots=True)
class Application:
    """Every use case of one server, wired."""

    name: str
    query: QueryMemories
    write: WriteMemories
    read: ReadMemories
    change: ChangeMemories
    describe: Callable[[], ServerDescription]
