"""An inverted index in memory, scored by BM25."""

from __future__ import annotations

import math
import re
from collections import Counter

from recalld.engine.analysis import index_text

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_K1 = 1.2
_B = 0.75


class WordIndex:
    """Which text holds which word, and how often.

    BM25 as Lucene has it (k1 1.2, b .75): Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
    Beyond", 2009.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._holders: dict[str, set[str]] = {}
        self._length = 0

    def __len__(self) -> int:
        """How many texts it holds."""
        return len(self._counts)

    def put(self, id: str, content: str) -> None:
        """Holds this text under the id, in place of another; an empty one leaves the index."""
        before = self._counts.pop(id, None)
        if before is not None:
            self._length -= before.total()
            for word in before:
                self._holders[word].discard(id)
                if not self._holders[word]:
                    del self._holders[word]
        counts = Counter(stem(word) for word in _WORD.findall(index_text(content)))
        if counts:
            self._counts[id] = counts
            self._length += counts.total()
            for word in counts:
                self._holders.setdefault(word, set()).add(id)

    def score(self, words: str) -> dict[str, float]:
        """The BM25 score of every text that holds one of the words; a word that is repeated counts as often."""
        scores: dict[str, float] = {}
        total = len(self._counts)
        mean = self._length / total if total else 1.0
        for word, repeats in Counter(stem(word) for word in _WORD.findall(words)).items():
            holders = self._holders.get(word, ())
            rarity = math.log1p((total - len(holders) + 0.5) / (len(holders) + 0.5))
            for id in holders:
                counts = self._counts[id]
                often = counts[word]
                norm = _K1 * (1 - _B + _B * counts.total() / mean)
                scores[id] = scores.get(id, 0.0) + repeats * rarity * often * (_K1 + 1) / (often + norm)
        return scores


def stem(word: str) -> str:
    """The word without an English plural ending (the S stemmer of Harman, "How effective is suffixing?", 1991)."""
    if len(word) > 3 and word.endswith("s"):
        if word.endswith("ies") and word[-4] not in "ae":
            return word[:-3] + "y"
        if word.endswith("es") and word[-3] not in "aeo":
            return word[:-1]
        if word[-2] not in "us":
            return word[:-1]
    return word
