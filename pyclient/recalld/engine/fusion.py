"""How the two legs of one query are fused: weighted reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recalld.engine.ports import Lexical, Scored
from recalld.engine.weighing import weigh
from recalld.store import RankFusion

#: How many candidates each leg contributes unless the caller says so.
DEFAULT_CANDIDATES = 100
#: The rank constant unless the caller says so. The classic 60 flattens the top ranks so much that the weaker leg drowns
#: the better one (bench/README.md).
DEFAULT_RANK_CONSTANT = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One fused candidate; ranks from 1, 0 when it is not in that leg's list."""

    id: str
    score: float
    lexical_rank: int = 0
    lexical_score: float | None = None
    semantic_rank: int = 0
    semantic_score: float | None = None


def fuse(
    lexical: Lexical | None, semantic: Sequence[Scored] | None, wanted: RankFusion
) -> tuple[Sequence[Candidate], RankFusion | None]:
    """The candidates best first, ties by id, with the fusion that scored them.

    A leg that is None did not run: the other's own scores stand and there is no fusion to tell.
    """
    if lexical is None or semantic is None:
        return _single(lexical, semantic), None
    lexical_weight, semantic_weight = weigh(lexical, semantic)
    k = wanted.k or DEFAULT_RANK_CONSTANT
    if wanted.lexical_weight is not None:
        lexical_weight = wanted.lexical_weight
    if wanted.semantic_weight is not None:
        semantic_weight = wanted.semantic_weight
    by_words = {each.id: (rank, each.score) for rank, each in enumerate(lexical.candidates, 1)}
    by_meaning = {each.id: (rank, each.score) for rank, each in enumerate(semantic, 1)}
    candidates: list[Candidate] = []
    for key in by_words.keys() | by_meaning.keys():
        lexical_rank, lexical_score = by_words.get(key, (0, None))
        semantic_rank, semantic_score = by_meaning.get(key, (0, None))
        score = 0.0
        if lexical_rank:
            score += lexical_weight / (k + lexical_rank)
        if semantic_rank:
            score += semantic_weight / (k + semantic_rank)
        candidates.append(Candidate(key, score, lexical_rank, lexical_score, semantic_rank, semantic_score))
    candidates.sort(key=lambda each: (-each.score, each.id))
    return candidates, RankFusion(k, lexical_weight, semantic_weight)


def _single(lexical: Lexical | None, semantic: Sequence[Scored] | None) -> Sequence[Candidate]:
    if lexical is not None:
        return [
            Candidate(e.id, e.score, lexical_rank=r, lexical_score=e.score) for r, e in enumerate(lexical.candidates, 1)
        ]
    return [Candidate(e.id, e.score, semantic_rank=r, semantic_score=e.score) for r, e in enumerate(semantic or (), 1)]
