"""What a server answers, in domain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from recalld.item import MemoryItem
from recalld.limits import LIMITS, Limits
from recalld.store import RankFusion
from recalld.v1 import admin_service_pb2


@dataclass(frozen=True, slots=True)
class FoundItems:
    """The items of the ids that were asked for, in that order, and the ids that are not there."""

    items: Sequence[MemoryItem]
    missing_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class UpdatedItem:
    """An item as it is after an update, and a token of the state that has it."""

    item: MemoryItem
    commit_token: str


@dataclass(frozen=True, slots=True)
class DeletedItems:
    """How many items a delete took, or on a dry run would take, over all sources, and a token of the state without
    them."""

    count: int
    commit_token: str


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A source behind a server. kind: for example `lancedb`, `files`, `remote`."""

    name: str
    kind: str
    accepts_writes: bool


@dataclass(frozen=True, slots=True)
class EmbeddingModelInfo:
    """The model that embeds. sha256: of the model file, lower-case hex. max_tokens: of a text that are read."""

    name: str
    dimensions: int
    sha256: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class QueryDefaults:
    """What a search uses where it says nothing. fusion: with the weights where the query does not sway them.
    candidates: of each leg, at least."""

    fusion: RankFusion
    candidates: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself.

    limits: where a server does not state one, 100 items and one unacknowledged batch stand in, below the defaults in
    the contract so that they fit also a server set up smaller, and the contract's own defaults for the others.
    """

    version: str
    name: str
    sources: Sequence[SourceInfo]
    embedding_model: EmbeddingModelInfo
    limits: Limits
    query_defaults: QueryDefaults

    def accepts_writes(self, selected: Sequence[str] = ()) -> bool:
        """Whether any selected source (none selected: any at all) accepts writes. A server that names no sources is
        taken to accept."""
        considered = [source.accepts_writes for source in self.sources if not selected or source.name in selected]
        return any(considered) if considered else not self.sources


def decode_server_info(message: admin_service_pb2.GetServerInfoResponse) -> ServerInfo:
    model, limits, defaults = message.embedding_model, message.limits, message.query_defaults
    return ServerInfo(
        version=message.version,
        name=message.name,
        sources=[SourceInfo(each.name, each.kind, each.accepts_writes) for each in message.sources],
        embedding_model=EmbeddingModelInfo(model.name, model.dimensions, model.sha256, model.max_tokens),
        limits=replace(
            LIMITS,
            max_batch_items=limits.max_batch_items or 100,
            max_message_bytes=limits.max_message_bytes or LIMITS.max_message_bytes,
            max_unacked_batches=limits.max_unacked_batches or 1,
            max_content_bytes=limits.max_content_bytes or LIMITS.max_content_bytes,
            max_k=limits.max_k or LIMITS.max_k,
        ),
        query_defaults=QueryDefaults(
            RankFusion(defaults.rank_fusion_k, defaults.lexical_weight, defaults.semantic_weight), defaults.candidates
        ),
    )


class HealthStatus(IntEnum):
    """Whether a server answers. Values equal those of grpc.health.v1."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3
