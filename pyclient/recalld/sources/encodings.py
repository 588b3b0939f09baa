"""From the bytes of a file to its text, whatever program wrote it."""

from __future__ import annotations

import codecs
from collections.abc import Mapping

# UTF-32 comes first: its mark in little endian begins with that of UTF-16.
_MARKS: Mapping[bytes, tuple[str, int]] = {
    codecs.BOM_UTF32_LE: ("utf-32-le", 4),
    codecs.BOM_UTF32_BE: ("utf-32-be", 4),
    codecs.BOM_UTF16_LE: ("utf-16-le", 2),
    codecs.BOM_UTF16_BE: ("utf-16-be", 2),
    codecs.BOM_UTF8: ("utf-8", 1),
}
LONGEST_MARK = max(map(len, _MARKS))

#: Of C0, those that stand in texts: tabs, line ends, page breaks.
_IN_TEXTS = "\t\n\v\f\r"
_CONTROL = frozenset(map(chr, (*range(32), *range(127, 160)))) - frozenset(_IN_TEXTS)

#: In the languages that Windows-1252 is for, few letters are outside ASCII; in Cyrillic, Greek or Chinese text of one
#: of the other old encodings nearly all are.
_MOST_OUTSIDE_ASCII = 1 / 3


def most_bytes(start: bytes, size: int) -> int:
    """The most bytes that a file which begins with `start` can have when its text in UTF-8 has at most `size`. `start`
    is `LONGEST_MARK` bytes or all that there are."""
    mark, _, width = _marked(start)
    return len(mark) + size * width


def decode_text(content: bytes) -> str:
    """The text of a whole file, without its byte order mark.

    A byte order mark says which of UTF-8, UTF-16 and UTF-32 it is. Without one it is UTF-8 where it can be. Else it is
    Windows-1252, and so nearly all of Latin-1, where that gives text: no control characters, at most a third of the
    characters outside ASCII, and none that would be UTF-8. Raises ValueError, which says why, for anything else, and
    for text with a NUL: no part of a text is ever replaced.
    """
    mark, encoding, _ = _marked(content)
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        if mark:
            raise ValueError(f"begins as {encoding} text and does not go on so") from None
        text = _decode_single_bytes(content)
    if "\0" in text:
        raise ValueError("is not a text: it has a NUL")
    return text


def _marked(content: bytes) -> tuple[bytes, str, int]:
    """The byte order mark, the encoding and the least bytes of a character in it."""
    for mark, (encoding, width) in _MARKS.items():
        if content.startswith(mark):
            return mark, encoding, width
    return b"", "utf-8", 1


def _decode_single_bytes(content: bytes) -> str:
    damaged = not content.decode("utf-8", "ignore").isascii()  # else a cut UTF-8 file would come out as `cafÃ©`
    text = "" if damaged else content.decode("cp1252", "ignore")
    outside = sum(not character.isascii() for character in text)
    # cp1252 decodes all but five bytes, each to one character.
    if len(text) < len(content) or not _CONTROL.isdisjoint(text) or outside > len(text) * _MOST_OUTSIDE_ASCII:
        raise ValueError("is neither UTF-8 nor Windows-1252 text, and has no byte order mark")
    return text
