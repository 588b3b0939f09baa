"""How the answers of several sources become one list: which items are one fact, and in what order they stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from recalld.errors import InvalidField
from recalld.item import MemoryItem
from recalld.source import Reranker

DedupeMode = Literal["id", "content", "origin"]
"""How items are known to be one fact.

`"id"`: by a shared id or identical content. `"content"`: by content alone. `"origin"`: an id counts only within one
origin (the source and, where a server found it, that server's source), content only between different ones: a single
source knows its own copies.
"""

#: The rank constant of the paper that describes the method. A server weighs its legs with one of its own.
RRF_K = 60


def check_dedupe(mode: DedupeMode | None) -> None:
    """Raises InvalidField (a ValueError) for a word that is no mode."""
    if mode is not None and mode not in get_args(DedupeMode):
        raise InvalidField(f"dedupe is 'id', 'content', 'origin' or None, not {mode!r}")


def merge_duplicates(items: Iterable[MemoryItem], mode: DedupeMode | None = "id") -> list[MemoryItem]:
    """Keep one item of each fact, in the order in which the facts first appear.

    With `"id"`, items are one fact when they share an id or have identical content, and so is whatever hangs together
    by a chain of such pairs. Two sources that each number their records on their own want another mode, since `7` of
    one is not `7` of the other. With `"content"` an id says nothing. With `"origin"` two memories of one source are
    never one fact, whatever they say: the first of each origin with a content are one fact, then the second of each.
    None keeps every copy.

    The survivor is as `merge_copies` makes it. An item that met no copy comes back as the very same object.
    """
    pool = list(items)
    return [merge_copies([pool[place] for place in places]) for places in find_copies(pool, mode)]


def find_copies(items: Sequence[MemoryItem], mode: DedupeMode | None = "id") -> list[list[int]]:
    """The places of the copies of each fact, in the order in which the facts first appear; see `merge_duplicates`."""
    check_dedupe(mode)
    if mode is None:
        return [[place] for place in range(len(items))]
    groups = _Groups()
    identify = _identify_by_origin() if mode == "origin" else _IDENTIFY[mode]
    for item in items:
        groups.add(identify(item))
    return groups.list_facts()


def merge_copies(copies: Sequence[MemoryItem]) -> MemoryItem:
    """One item for all copies of a fact; a single one is given back as it is.

    It is the first copy, with the highest score of all and two stamps in its metadata: `dedupe_sources`, the distinct
    names of the sources that gave a copy, in order, and `dedupe_count`, how many copies there were. Copies that carry
    stamps already (of a composite within a composite) count for what they stand for.
    """
    if len(copies) == 1:
        return copies[0]
    scores = [copy.score for copy in copies if copy.score is not None and not math.isnan(copy.score)]
    sources: dict[str, None] = {}
    for copy in copies:
        sources.update(dict.fromkeys((copy.source, *_read_sources(copy.metadata))))
    stamps = {"dedupe_sources": list(sources), "dedupe_count": sum(_read_count(copy.metadata) for copy in copies)}
    return replace(copies[0], score=max(scores, default=None), metadata={**copies[0].metadata, **stamps})


_Keys = list[tuple[Hashable, ...]]


def _identify_by_id(item: MemoryItem) -> _Keys:
    keys: _Keys = [("content", item.content)]
    if item.id:
        keys.append(("id", item.id))
    return keys


_IDENTIFY: Mapping[str, Callable[[MemoryItem], _Keys]] = {
    "id": _identify_by_id,
    "content": lambda item: [("content", item.content)],
}


def _identify_by_origin() -> Callable[[MemoryItem], _Keys]:
    """Keys for one list of items: content counts together with how many memories of the same origin said it before."""
    seen: dict[Hashable, dict[Hashable, int]] = {}

    def identify(item: MemoryItem) -> _Keys:
        origin = (item.source, item.attributes.origin if item.attributes else "")
        memories = seen.setdefault((origin, item.content), {})
        memory = item.id or len(memories)  # each item without an id is a memory of its own
        keys: _Keys = [("content", item.content, memories.setdefault(memory, len(memories)))]
        if item.id:
            keys.append(("id", origin, item.id))
        return keys

    return identify


class _Groups:
    """Places joined by the keys that they share: a union-find."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._place: dict[Hashable, int] = {}

    def add(self, keys: Iterable[Hashable]) -> None:
        place = len(self._parent)
        self._parent.append(place)
        for key in keys:
            known = self._place.setdefault(key, place)
            if known != place:
                self._join(known, place)

    def list_facts(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for place in range(len(self._parent)):
            groups.setdefault(self._find_root(place), []).append(place)
        return list(groups.values())

    def _join(self, one: int, other: int) -> None:
        self._parent[self._find_root(other)] = self._find_root(one)

    def _find_root(self, place: int) -> int:
        parent = self._parent
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place


def _read_sources(metadata: Mapping[str, Any]) -> list[str]:
    stamp: Any = metadata.get("dedupe_sources")
    if not isinstance(stamp, list):
        return []
    return [name for name in cast("list[Any]", stamp) if isinstance(name, str)]


def _read_count(metadata: Mapping[str, Any]) -> int:
    stamp: Any = metadata.get("dedupe_count")
    return stamp if isinstance(stamp, int) and stamp > 1 else 1


async def score_sort_rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
    """The `k` best by score, equal scores in the order given. Items without a score come last and are not dropped."""
    return sorted(items, key=_by_score)[: max(k, 0)]


def _by_score(item: MemoryItem) -> tuple[bool, float]:
    if item.score is None or math.isnan(item.score):
        return True, 0.0
    return False, -item.score


def rrf_rerank(k: int = RRF_K, weights: Mapping[str, float] | None = None) -> Reranker:
    """A reranker that compares ranks, so that scores of different scales never meet.

    Each item is ranked among the items of its own source, in the order given, from 1; its new score is
    `weight / (k + rank)`. weights: by source name, 1.0 where it names none; finite and not negative.
    Equal scores keep the order given. Raises InvalidField for a `k` or a weight that is out of range.
    """
    _check_rrf(k, (weights or {}).values())
    weight_of = dict(weights or {})
    constant = k

    async def rerank(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
        ranks: dict[str, int] = {}
        scored: list[MemoryItem] = []
        for item in items:
            rank = ranks[item.source] = ranks.get(item.source, 0) + 1
            scored.append(replace(item, score=weight_of.get(item.source, 1.0) / (constant + rank)))
        return sorted(scored, key=_by_score)[: max(k, 0)]

    return rerank


async def rank_across_sources(query: str, items: list[MemoryItem], *, k: int) -> list[MemoryItem]:
    """The `k` best of several sources by reciprocal rank, as `rrf_rerank` ranks them. Items of a single source keep its
    ranking and its scores, which then compare."""
    if len({item.source for item in items}) <= 1:
        return items[: max(k, 0)]
    return await rrf_rerank()(query, items, k=k)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: int = RRF_K, weights: Sequence[float] | None = None
) -> list[tuple[str, float]]:
    """Fuse rankings of ids into one: (id, score), best first.

    score = sum over rankings of weight / (k + rank), ranks from 1; a repeat of an id within one ranking counts once.
    Ties are broken by id, so equal input gives equal output, whatever the order of the rankings. weights: one a
    ranking, 1.0 each by default. Raises InvalidField for a `k` or a weight that is out of range.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods",
    SIGIR 2009.
    """
    if weights is None:
        weights = [1.0] * len(rankings)
    if len(weights) != len(rankings):
        raise InvalidField(f"{len(rankings)} rankings take as many weights, not {len(weights)}")
    _check_rrf(k, weights)
    parts: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            parts.setdefault(key, []).append(weight / (k + rank))
    # fsum: the sum does not depend on the order of the rankings.
    fused = [(key, math.fsum(shares)) for key, shares in parts.items()]
    return sorted(fused, key=lambda pair: (-pair[1], pair[0]))


def _check_rrf(k: int, weights: Iterable[float]) -> None:
    if k < 0:
        raise InvalidField(f"the rank constant is 0 or more, not {k}")
    for weight in weights:
        if not (math.isfinite(weight) and weight >= 0):
            raise InvalidField(f"a weight is finite and 0 or more, not {weight}")
