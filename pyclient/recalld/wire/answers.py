"""What searches, writes and lists ask and answer, to and from the wire.

Each pair is for both sides: a client encodes what a server decodes, and the other way round. Functions that take
`violations` collect there what is wrong, by field path, and go on; what they return for a violating part must not be
used. Only what the wire can carry is checked here; the limits of the contract have their checks elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.limits import LIMITS
from recalld.store import (
    Degradation,
    ItemPage,
    RankFusion,
    RetrievalMode,
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
from recalld.wire.items import decode_item, encode_item
from recalld.wire.values import checked_text

_INT32 = 2**31


def encode_query(query: SearchQuery, where: Filter | None, violations: Violations) -> pb.QueryRequest:
    """The search as a request that still lacks scope, sources, user and whether it is explained.

    where: what `query.where` means. Raises InvalidFilter for a condition that the wire cannot carry.
    """
    request = pb.QueryRequest(
        query=checked_text(query.text, "query", violations),
        k=encode_int32(query.k, "k", violations),
        candidates=encode_int32(query.candidates or 0, "candidates", violations),
        min_commit_token=checked_text(query.min_commit_token, "min_commit_token", violations),
    )
    mode: Any = query.mode
    if isinstance(mode, int) and mode in RetrievalMode.__members__.values():
        request.mode = int(mode)  # type: ignore[assignment] - the numbers are the wire's
    else:
        violations["mode"] = f"is {mode!r}, which is not a known mode"
    encode_fusion(query.fusion, request.fusion, violations)
    if where is not None:
        request.where.CopyFrom(encode_filter(where))
    return request


def decode_query(request: pb.QueryRequest, where: Filter | None, violations: Violations) -> SearchQuery:
    """The search of a request; zeros are what they stand for. where: the request's condition, decoded."""
    mode = RetrievalMode.HYBRID
    if request.mode:
        try:
            mode = RetrievalMode(request.mode)
        except ValueError:
            violations["mode"] = f"is {int(request.mode)}, which is not a known mode"
    return SearchQuery(
        text=request.query,
        k=request.k or LIMITS.default_k,
        where=where,
        mode=mode,
        fusion=decode_fusion(request.fusion),
        candidates=request.candidates or None,
        min_commit_token=request.min_commit_token,
    )


def encode_int32(value: Any, path: str, violations: Violations) -> int:
    """`value`, if it is an integer that a field of 32 bits holds."""
    if isinstance(value, bool) or not isinstance(value, int):
        violations[path] = f"must be an integer, not {type(value).__name__}"
    elif not -_INT32 <= value < _INT32:
        violations[path] = f"is {value}, an integer over 32 bits"
    else:
        return int(value)
    return 0


def encode_fusion(fusion: RankFusion, message: pb.RankFusion, violations: Violations) -> None:
    """Sets the parts that are given; the message stays unset where none is."""
    if fusion.k is not None:
        message.k = encode_int32(fusion.k, "fusion.k", violations)
    for name in ("lexical_weight", "semantic_weight"):
        weight: Any = getattr(fusion, name)
        if weight is None:
            continue
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            violations[f"fusion.{name}"] = f"must be a number, not {type(weight).__name__}"
        elif not abs(weight) <= LIMITS.max_weight:
            violations[f"fusion.{name}"] = f"is not in 0 to {LIMITS.max_weight:g}"
        else:
            setattr(message, name, weight)


def decode_fusion(message: pb.RankFusion) -> RankFusion:
    """The parts that are set; the others None."""
    return RankFusion(
        message.k or None,
        message.lexical_weight if message.HasField("lexical_weight") else None,
        message.semantic_weight if message.HasField("semantic_weight") else None,
    )


def encode_hit(hit: SearchHit, path: str, violations: Violations, *, explain: bool) -> pb.QueryHit:
    """The hit, with how it was ranked where that was asked for."""
    message = pb.QueryHit(item=encode_item(hit.item, f"{path}.item", violations))
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
        summary.fusion.SetInParent()
        encode_fusion(result.fusion, summary.fusion, {})
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


def encode_page(page: ItemPage, violations: Violations) -> pb.ListResponse:
    """The page; the caller sees to it that it fits a message."""
    return pb.ListResponse(
        items=[encode_item(item, f"items[{index}]", violations) for index, item in enumerate(page.items)],
        next_page_token=page.next_page_token,
    )


def decode_page(message: pb.ListResponse, violations: Violations) -> ItemPage:
    return ItemPage(decode_items(message.items, violations), message.next_page_token)


def decode_items(messages: Sequence[item_pb2.MemoryItem], violations: Violations) -> list[MemoryItem]:
    """The items that read; each that does not is a violation at `items[index]`."""
    decoded = (decode_item(message, f"items[{index}]", violations) for index, message in enumerate(messages))
    return [item for item in decoded if item is not None]
