"""What full text sees of a text: every script, identifiers and symbols as words that can be found.

A record store segments the text into words (LanceDB with ICU, stemming English). Around that stands what segmenting
leaves out. Both sides, content and query, go through the same steps:

- Unicode NFKC, case folding (`Straße` is `strasse`), accents off Latin letters also where they are separate characters.
- Chinese, Japanese and Korean: each pair of neighbouring characters is a word as well. A dictionary splits a word
  differently inside a sentence than alone, and does not split Korean words from their particles at all; pairs make any
  part of two characters or more findable.
- Arabic: vowel signs and the article off.
- Emoji: words of their own, since ICU takes them for punctuation.
- Identifiers (`ERR-4271-XK`, `user_id`, `v1.2`): also as one word without the joints, so that a whole one outranks
  its parts; `getUserName` also as its parts; `C++` and `C#` as words.

Stop words stay in the index and are left out of a query unless it has nothing else, so that `The Who` is findable.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

#: Words that say nothing of what a memory is about.
STOP_WORDS = frozenset(
    """
    a about am an and any are as at be been but by can could did do does doing for from had has have having he her hers
    him his how i if in into is it its me my not of on or our ours she should so some than that the their theirs them
    then there these they this those to too us was we were what when where which who whom whose why will with would you
    your yours
    """.split()  # noqa: SIM905 - a list of words reads better than a list of literals
)

_PAIRED = re.compile(r"[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\U00020000-\U0003134f]{2,}")
_ACCENTS = re.compile(r"(?<=[a-z])[\u0300-\u036f]+")
_ARABIC_SIGNS = re.compile(r"[\u0610-\u061a\u0640\u064b-\u065f\u0670]")
_ARABIC_ARTICLE = re.compile(r"\b\u0627\u0644(?=\w{3,})")
# Both take time in proportion to the text, whatever a tenant writes: they begin at the start of a run only, and give
# nothing back of a run that they took. A content may be 64 KiB of one letter.
_IDENTIFIER = re.compile(r"(?<![a-zA-Z0-9])[a-zA-Z0-9]++(?:[-_.][a-zA-Z0-9]++)++")
_CAMEL = re.compile(r"\b(?=[A-Za-z]*[a-z0-9][A-Z])[A-Za-z0-9]++\b")
_IDENTIFYING = re.compile(r"[\d_]")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIXED = re.compile(r"\b([a-z])(\+\+|#)")
_WORD = re.compile(r"\S+")
_MOST_MARKS = 30
_EDGES = "\"'`.,;:!?()[]{}<>«»“”‘’…"  # noqa: RUF001 - the typographic marks are meant


def index_text(content: str) -> str:
    """The text that the full-text index holds for a content."""
    return _analysed(content)


def query_text(query: str) -> str:
    """The text to look for; empty when the query has no word."""
    return _analysed(" ".join(telling_words(query) or _WORD.findall(query)))


def telling_words(query: str) -> list[str]:
    """The words of a query that say what it is about, as they were written."""
    words = _WORD.findall(query)
    return [word for word in words if word.strip(_EDGES).replace("’", "'").casefold() not in STOP_WORDS]  # noqa: RUF001


def identifiers(query: str) -> list[str]:
    """The words of a query that name one thing (`ERR-4271-XK`, `884213`): joined, with a digit, of 4 characters or
    more."""
    joined = (re.sub(r"[-_.]", "", word.strip(_EDGES).casefold()) for word in telling_words(query))
    return [word for word in joined if len(word) >= 4 and word.isalnum() and any(sign.isdigit() for sign in word)]


def _analysed(text: str) -> str:
    humps = [_HUMP.sub(" ", found) for found in _CAMEL.findall(text)]
    folded = unicodedata.normalize("NFKC", text if text.isascii() else _stream_safe(text)).casefold()
    if not folded.isascii():
        folded = _fold_scripts(folded)
    extra = [
        *humps,
        *_identifiers(folded),
        *(f"{letter}{_SYMBOLS[sign]}" for letter, sign in _SUFFIXED.findall(folded)),
    ]
    if not folded.isascii():
        extra.extend(_pairs(folded))
        extra.extend(_emoji(folded))
    return " ".join([folded, *extra]).casefold()


_SYMBOLS = {"++": "plusplus", "#": "sharp"}


def _stream_safe(text: str) -> str:
    """The text with no more than 30 combining marks in a row (Unicode Standard Annex 15, stream-safe format): to put
    a long run in order takes quadratic time."""
    kept: list[str] = []
    marks = 0
    for sign in text:
        marks = marks + 1 if unicodedata.combining(sign) else 0
        if marks <= _MOST_MARKS:
            kept.append(sign)
    return "".join(kept)


def _fold_scripts(text: str) -> str:
    # Decomposed only to take accents off Latin letters, then composed: elsewhere (й, が, 각) they make the letter.
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))
    return _ARABIC_ARTICLE.sub("", _ARABIC_SIGNS.sub("", text))


def _identifiers(text: str) -> Iterable[str]:
    for found in _IDENTIFIER.findall(text):
        if _IDENTIFYING.search(found):
            yield re.sub(r"[-_.]", "", found)


def _pairs(text: str) -> Iterable[str]:
    for run in _PAIRED.findall(text):
        yield from (run[at : at + 2] for at in range(len(run) - 1))


def _emoji(text: str) -> Iterable[str]:
    # The final letter keeps the stemmer from taking hexadecimal digits for an ending.
    return (f"emoji{ord(sign):x}q" for sign in text if sign > "\u2000" and unicodedata.category(sign) == "So")
