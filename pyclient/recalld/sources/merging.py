"""How the answers of several members become one list of hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from recalld.fusion import DedupeMode, find_copies, merge_copies, score_sort_rerank
from recalld.item import MemoryItem
from recalld.source import Reranker
from recalld.store import SearchHit, SearchQuery, SearchResult


async def merge_answers(
    query: SearchQuery, answers: Iterable[SearchResult], *, dedupe: DedupeMode | None, reranker: Reranker | None
) -> Sequence[SearchHit]:
    """The best `query.k` of all hits, copies merged, then reranked; the newest where there is no text to rank by. A hit
    has the explanation of its first copy."""
    hits = [hit for answer in answers for hit in answer.hits]
    items = [hit.item for hit in hits]
    facts = find_copies(items, dedupe)
    merged = [merge_copies([items[place] for place in places]) for places in facts]
    if not merged:
        return []
    if query.text:
        ranked = await (reranker or score_sort_rerank)(query.text, list(merged), k=query.k)
    else:
        ranked = _sort_by_create_time(merged)
    return _explain(ranked[: query.k], merged, [hits[places[0]] for places in facts])


def _sort_by_create_time(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Newest first; those that tell no instant after them, in the order given."""
    timed = [(item, item.attributes.create_time) for item in items if item.attributes]
    dated = [(item, time) for item, time in timed if time is not None and time.utcoffset() is not None]
    newest = [item for item, _ in sorted(dated, key=lambda pair: pair[1], reverse=True)]
    known = {id(item) for item in newest}
    return [*newest, *(item for item in items if id(item) not in known)]


def _explain(
    ranked: Sequence[MemoryItem], merged: Sequence[MemoryItem], hits: Sequence[SearchHit]
) -> Sequence[SearchHit]:
    """The ranked items, each with how its first copy was found. hits: of the first copies, beside the merged items.

    A reranker gives the items that it got, or others with another score; of those that it rewrote nothing is known.
    """
    by_object = {id(item): hit for item, hit in zip(merged, hits, strict=True)}
    alike: dict[tuple[str, str | None, str], list[SearchHit]] = {}
    for item, hit in zip(merged, hits, strict=True):
        alike.setdefault((item.source, item.id, item.content), []).append(hit)
    explained: list[SearchHit] = []
    for item in ranked:
        hit = by_object.get(id(item))
        if hit is None:
            found = alike.get((item.source, item.id, item.content), [])
            hit = found.pop(0) if len(found) > 1 else next(iter(found), SearchHit(item))
        explained.append(replace(hit, item=item))
    return explained
