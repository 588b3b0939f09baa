"""What searches, writes and lists ask and answer, to and from the wire.

What one side encodes the other decodes. Functions that take `violations` collect there what is wrong, by field path,
and go on; what they return for a violating part must not be used. Nothing is held to the limits of the contract here:
`recalld.checks` does that.
"""

from __future__ import annotations

from collections.abc import Sequence

from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.store import (
    Degradation,
    ItemPage,
    RankFusion,
    SearchHit,
    SearchQuery,
    SearchResult,
    WriteOutcome,
)
from recalld.v1 import item_pb2
from recalld.v1 import memory_service_pb2 as pb
from recalld.values import Violations
from recalld.wire.errors import (
    decode_write_error,
    encode_write_error,
    reason_name,
    reason_number,
    replace_unencodable,
)
from recalld.wire.filters import encode_filter
from recalld.wire.items import decode_item


def encode_query(query: SearchQuery, where: Filter | None) -> pb.QueryRequest:
    """A search that was checked as a request that still lacks scope, sources, user and whether it is explained.

    where: what `query.where` means. Raises InvalidFilter for a condition that the wire cannot carry.
    """
    request = pb.QueryRequest(
        query=query.text,
        k=query.k,
        mode=int(query.mode),  # type: ignore[arg-type] - the numbers are the wire's
        candidates=query.candidates or 0,
        min_commit_token=query.min_commit_token,
    )
    if query.fusion != RankFusion():
        request.fusion.CopyFrom(encode_fusion(query.fusion))
    if where is not None:
        request.where.CopyFrom(encode_filter(where))
    return request


def encode_fusion(fusion: RankFusion) -> pb.RankFusion:
    """The parts that are given; a rank constant of 0 stays unset."""
    return pb.RankFusion(k=fusion.k or 0, lexical_weight=fusion.lexical_weight, semantic_weight=fusion.semantic_weight)


def decode_fusion(message: pb.RankFusion) -> RankFusion:
    """The parts that are set; the others None."""
    return RankFusion(
        message.k or None,
        message.lexical_weight if message.HasField("lexical_weight") else None,
        message.semantic_weight if message.HasField("semantic_weight") else None,
    )


def encode_hit(hit: SearchHit, item: item_pb2.MemoryItem, *, explain: bool) -> pb.QueryHit:
    """The hit, with how it was ranked where that was asked for. item: the hit's, encoded."""
    message = pb.QueryHit(item=item)
    if explain:
        why = message.explanation
        why.lexical_rank = hit.lexical_rank
        why.semantic_rank = hit.semantic_rank
        if hit.lexical_score is not None:
            why.lexical_score = hit.lexical_score
        if hit.semantic_score is not None:
            why.semantic_score = hit.semantic_score
    return message


def decode_hit(message: pb.QueryHit, path: str, violations: Violations) -> SearchHit | None:
    """The hit; without an explanation it is in no leg's list. None when its item has a violation."""
    item = decode_item(message.item, f"{path}.item", violations)
    why = message.explanation
    return item and SearchHit(
        item,
        lexical_rank=why.lexical_rank,
        lexical_score=why.lexical_score if why.HasField("lexical_score") else None,
        semantic_rank=why.semantic_rank,
        semantic_score=why.semantic_score if why.HasField("semantic_score") else None,
    )


def encode_degradation(degradation: Degradation) -> pb.Degradation:
    return pb.Degradation(
        component=replace_unencodable(degradation.component),
        reason=reason_number(degradation.reason),
        message=replace_unencodable(degradation.message),
    )


def decode_degradation(message: pb.Degradation) -> Degradation:
    """A reason that this version does not know is `UNSPECIFIED`."""
    return Degradation(message.component, reason_name(message.reason), message.message)


def encode_summary(result: SearchResult, *, elapsed_ns: int) -> pb.QuerySummary:
    """The last frame of the answer. elapsed_ns: how long the server worked, in nanoseconds."""
    summary = pb.QuerySummary(
        hit_count=len(result.hits),
        degradations=map(encode_degradation, result.degradations),
        commit_token=result.commit_token,
    )
    summary.elapsed.FromNanoseconds(elapsed_ns)
    if result.fusion is not None:
        summary.fusion.CopyFrom(encode_fusion(result.fusion))
    return summary


def decode_result(hits: Sequence[SearchHit], summary: pb.QuerySummary) -> SearchResult:
    """The answer that hits and summary are together."""
    return SearchResult(
        hits,
        list(map(decode_degradation, summary.degradations)),
        summary.commit_token,
        decode_fusion(summary.fusion) if summary.HasField("fusion") else None,
    )


def encode_outcome(outcome: WriteOutcome) -> pb.WriteOutcome:
    """The split of a write. What of an error is the inside stays there."""
    return pb.WriteOutcome(
        accepted=outcome.accepted,
        refused=outcome.refused,
        failed=[
            pb.SourceFailure(source=name, error=encode_write_error(error)) for name, error in outcome.failed.items()
        ],
        ids=outcome.ids,
        commit_token=outcome.commit_token,
        replayed=outcome.replayed,
    )


def decode_outcome(message: pb.WriteOutcome) -> WriteOutcome:
    """The split of a write, each failure as the exception that it is."""
    return WriteOutcome(
        list(message.accepted),
        list(message.refused),
        {each.source: decode_write_error(each.error, each.source) for each in message.failed},
        list(message.ids),
        message.commit_token,
        message.replayed,
    )


def decode_page(message: pb.ListResponse, violations: Violations) -> ItemPage:
    return ItemPage(decode_items(message.items, violations), message.next_page_token)


def decode_items(messages: Sequence[item_pb2.MemoryItem], violations: Violations) -> list[MemoryItem]:
    """The items that read; each that does not is a violation at `items[index]`."""
    decoded = (decode_item(message, f"items[{index}]", violations) for index, message in enumerate(messages))
    return [item for item in decoded if item is not None]
