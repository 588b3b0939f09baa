"""How the answers of several sources become one list: which items are one fact, and in what order they stand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

from recalld.errors import InvalidField
from recalld.item import MemoryItem
from recalld.source import Reranker

DedupeMode = Literal["id", "content"]
"""How items are known to be one fact: `"id"` by a shared id or identical content, `"content"` by content alone."""

#: The rank constant of the paper that describes the method. A server weighs its legs with one of its own.
RRF_K = 60


def check_dedupe(mode: DedupeMode | None) -> None:
    """Raises InvalidField (a ValueError) for a word that is no mode."""
    if mode is not None and mode not in get_args(DedupeMode):
        raise InvalidField(f"dedupe is 'id', 'content' or None, not {mode!r}")


def merge_duplicates(items: Iterable[MemoryItem], mode: DedupeMode | None = "id") -> list[MemoryItem]:
    """Keep one item of each fact, in the order in which the facts first appear.

    With `"id"`, items are one fact when they share an id or have identical content, and so is whatever hangs together
    by a chain of such pairs. With `"content"` an id says nothing, for sources that number their records each on its
    own. None keeps every copy.

    The survivor is the first copy, with the highest score of all copies and two stamps in its metadata:
    `dedupe_sources`, the distinct names of the sources that gave a copy, in order, and `dedupe_count`, how many copies
    there were. Copies that carry stamps already (of a composite within a composite) count for what they stand for.
    An item that met no copy comes back as the very same object.
    """
    check_dedupe(mode)
    if mode is None:
        return list(items)
    groups = _Groups()
    for item in items:
        keys: list[tuple[str, str]] = [("content", item.content)]
        if mode == "id" and item.id:
            keys.append(("id", item.id))
        groups.add(item, keys)
    return [copies[0] if len(copies) == 1 else _survivor(copies) for copies in groups.facts()]


class _Groups:
    """Items joined by the keys that they share: a union-find over their places in the list."""

    def __init__(self) -> None:
        self._items: list[MemoryItem] = []
        self._parent: list[int] = []
        self._place: dict[tuple[str, str], int] = {}

    def add(self, item: MemoryItem, keys: Iterable[tuple[str, str]]) -> None:
        place = len(self._items)
        self._items.append(item)
        self._parent.append(place)
        for key in keys:
            known = self._place.setdefault(key, place)
            if known != place:
                self._join(known, place)

    def facts(self) -> Iterable[list[MemoryItem]]:
        groups: dict[int, list[MemoryItem]] = {}
        for place, item in enumerate(self._items):
            groups.setdefault(self._root(place), []).append(item)
        return groups.values()

    def _join(self, one: int, other: int) -> None:
        self._parent[self._root(other)] = self._root(one)

    def _root(self, place: int) -> int:
        parent = self._parent
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place


def _survivor(copies: Sequence[MemoryItem]) -> MemoryItem:
    scores = [copy.score for copy in copies if copy.score is not None and not math.isnan(copy.score)]
    sources: dict[str, None] = {}
    for copy in copies:
        sources.update(dict.fromkeys((copy.source, *_stamped_sources(copy.metadata))))
    stamps = {"dedupe_sources": list(sources), "dedupe_count": sum(_stamped_count(copy.metadata) for copy in copies)}
    return replace(copies[0], score=max(scores, default=None), metadata={**copies[0].metadata, **stamps})


def _stamped_sources(metadata: Mapping[str, Any]) -> list[str]:
    stamp: Any = metadata.get("dedupe_sources")
    if not isinstance(stamp, list):
        return []
    return [name for name in cast("list[Any]", stamp) if isinstance(name, str)]


def _stamped_count(metadata: Mapping[str, Any]) -> int:
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
