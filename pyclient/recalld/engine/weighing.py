"""How much each leg of a query is trusted, from the two candidate lists alone.

Spread: a leg whose top scores are spread tells its candidates apart; a leg whose top scores are flat does not know. It
is the coefficient of variation of the top scores, the idea of normalised query commitment (Shtok, Kurland, Carmel,
Raiber and Markovits, 2012), and has no unit, so it compares across legs once their scales are calibrated to each other.

Coverage: words that match by chance can be spread too, but cover little of the query; a match that covers nearly all
of it is what was asked for, even if it is the only one and has no spread to show.

bench/README.md has the measurements behind the constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from recalld.engine.ports import Lexical, Scored

#: How many of the top scores are looked at.
_HEAD = 20
#: Calibrates the spread of cosines to that of BM25: the ratio of their medians over queries of several sets. It belongs
#: to the embedding model; models of this family lie near.
_COSINE_SPREAD = 3.0
#: Sharpens the preference for the leg with more spread.
_POWER = 2
#: The shares between which the lexical leg stays, so that the top hits of the less sure leg are in reach.
_LEAST, _MOST = 0.1, 0.8
#: How close to whole a coverage must be to count.
_COVERAGE_POWER = 4
#: Keeps a list of cosines near zero from looking spread.
_MEAN_FLOOR = 0.1


def weigh(lexical: Lexical, semantic: Sequence[Scored]) -> tuple[float, float]:
    """The weights of the lexical and the semantic ranking for this query; they add up to 1.

    Both lists are best first, with BM25 scores and cosines. A leg that found nothing has no say.
    """
    if not lexical.candidates or not semantic:
        found = bool(lexical.candidates), bool(semantic)
        return (0.5, 0.5) if not any(found) else (float(found[0]), float(found[1]))
    by_words = _spread([each.score for each in lexical.candidates[:_HEAD]], 0.0) ** _POWER
    meanings = [max(each.score, 0.0) for each in semantic[:_HEAD]]
    by_meaning = (_COSINE_SPREAD * _spread(meanings, _MEAN_FLOOR)) ** _POWER
    total = by_words + by_meaning
    share = 0.5 if total < 1e-12 else by_words / total
    share = min(_MOST, max(_LEAST, share))
    share += (_MOST - share) * lexical.coverage**_COVERAGE_POWER
    return share, 1 - share


def _spread(scores: Sequence[float], mean_floor: float) -> float:
    """The coefficient of variation (population)."""
    mean = math.fsum(scores) / len(scores)
    unit = max(mean, mean_floor)
    if unit <= 0:
        return 0.0
    variance = math.fsum((score - mean) ** 2 for score in scores) / len(scores)
    return math.sqrt(variance) / unit
