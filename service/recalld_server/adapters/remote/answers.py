"""A query of the ports as a request to another server, and its answer back."""

from __future__ import annotations

from collections.abc import Sequence

from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld.v1 import memory_service_pb2
from recalld.wire import encode_filter, encode_scope, reason_name
from recalld_server.ports import Degradation, Fusion, Hit, QuerySpec, Ranked


def query_request(
    scope: Scope, spec: QuerySpec, sources: Sequence[str], *, most: int
) -> memory_service_pb2.QueryRequest:
    """The request of a query, explained, for at most `most` hits."""
    request = memory_service_pb2.QueryRequest(
        scope=encode_scope(scope),
        query=spec.text,
        k=min(spec.k, most),
        sources=sources,
        mode=int(spec.mode),  # type: ignore[arg-type]
        candidates=spec.candidates or 0,
        explain=True,
        min_commit_token=spec.min_commit_token,
        on_behalf_of_user_id=spec.on_behalf_of,
    )
    if spec.where is not None:
        request.where.CopyFrom(encode_filter(spec.where))
    fusion = spec.fusion
    if fusion.k is not None:
        request.fusion.k = fusion.k
    if fusion.lexical_weight is not None:
        request.fusion.lexical_weight = fusion.lexical_weight
    if fusion.semantic_weight is not None:
        request.fusion.semantic_weight = fusion.semantic_weight
    return request


def hit_of(hit: memory_service_pb2.QueryHit, item: MemoryItem) -> Hit:
    """The hit with its explanation."""
    why = hit.explanation
    return Hit(
        item,
        lexical_rank=why.lexical_rank,
        lexical_score=why.lexical_score if why.HasField("lexical_score") else None,
        semantic_rank=why.semantic_rank,
        semantic_score=why.semantic_score if why.HasField("semantic_score") else None,
    )


def ranked(hits: Sequence[Hit], summary: memory_service_pb2.QuerySummary, name: str) -> Ranked:
    """The answer; `name` goes before the component of each degradation."""
    fusion = summary.fusion
    return Ranked(
        hits,
        [
            Degradation(f"{name}/{each.component}", reason_name(each.reason), each.message)
            for each in summary.degradations
        ],
        summary.commit_token,
        Fusion(fusion.k, fusion.lexical_weight, fusion.semantic_weight) if summary.HasField("fusion") else None,
    )
