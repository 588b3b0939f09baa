"""How much of a query its best match by words accounts for, told from scores and counts, without reading a content.

BM25 weighs a word by its rarity, idf(n) = ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N rows. So the most that
a row could score is known: every word of the query found there and nowhere else. The share that the best match
got tells "ERR-4271-XK", found whole, from a question of which only "like" was found somewhere.

That share alone is too low for long rows, since BM25 tones their scores down. Two lower bounds make up for it: a match
covers at least one word, no commoner than the number of rows found; and an identifier that is found is an answer
however long the row and the rest of the question are.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from recalld.engine.analysis import identifiers, query_text, telling_words

_TOKEN = re.compile(r"[^\W_]+(?:['\u2019.][^\W_]+)*")
#: How far the lower bound of one word may lift what the scores say: a filter that leaves one row of many makes a common
#: word look rare.
_LIFT = 3.0


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query as full text sees it.

    words: what is looked for; empty when there is nothing to look for. terms: the words in it, repeats counted, as the
    score counts them. asked: the telling words as the caller wrote them. anchors: its identifiers in joined form.
    """

    words: str
    terms: int
    asked: int
    anchors: str

    @classmethod
    def of(cls, text: str) -> LexicalQuery:
        words = query_text(text)
        return cls(words, len(_TOKEN.findall(words)), max(1, len(telling_words(text))), " ".join(identifiers(text)))


def coverage(query: LexicalQuery, *, rows: int, top_score: float, found: int, anchored: int) -> float:
    """The share of the query that the best match covers, 0 to 1.

    rows: in the index. top_score: the best BM25 score. found: how many rows matched, as far as they were fetched.
    anchored: how many of them have an identifier of the query, 0 when it has none.
    """
    rarest = _idf(rows, 1)
    if not found or not query.terms or rarest <= 0:
        return 0.0
    scored = min(1.0, top_score / (query.terms * rarest))
    one_word = min(_idf(rows, found) / (rarest * query.asked), _LIFT * scored, 1.0)
    anchor = _idf(rows, anchored) / rarest if anchored else 0.0
    return max(scored, one_word, anchor)


def _idf(rows: int, matching: int) -> float:
    matching = min(matching, rows)
    return math.log1p((rows - matching + 0.5) / (matching + 0.5))
