"""Text to token ids, without the padding and truncation that a published tokenizer file happens to carry."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from recalld_server.adapters.onnx.layout import BrokenModel

# The texts of one call are few; a thread pool of the tokenizer's own would only contend with the model's.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The ids the model reads of one text, special tokens included, never none; and whether the text had more."""

    ids: list[int]
    truncated: bool


class TextTokenizer:
    """A `tokenizer.json`, made to read at most `max_tokens`. Safe to share between threads. Raises BrokenModel."""

    def __init__(self, path: Path, *, max_tokens: int, pad_id: int | None) -> None:
        try:
            self._tokenizer = cast("Any", Tokenizer.from_file(str(path)))
        except Exception as error:
            raise BrokenModel(f"{path}: is not a tokenizer ({_first_line(error)})") from error
        padding = self._tokenizer.padding
        self.pad_id = int(padding["pad_id"]) if padding is not None else pad_id or 0
        # all-MiniLM-L6-v2 is published with a truncation to 128 tokens and a padding up to them.
        self._tokenizer.no_padding()
        specials = self._tokenizer.num_special_tokens_to_add(False)
        if max_tokens <= specials:
            raise BrokenModel(f"{path}: needs more than {specials} tokens a text, max_tokens is {max_tokens}")
        self._tokenizer.enable_truncation(max_tokens)

    def read(self, texts: Sequence[str]) -> list[Tokens]:
        """One a text, in order. A lone surrogate reads as U+FFFD; a text without any token as one of padding."""
        encoded = self._tokenizer.encode_batch_fast([_valid(text) for text in texts])
        return [Tokens(encoding.ids or [self.pad_id], bool(encoding.overflowing)) for encoding in encoded]


def _valid(text: str) -> str:
    """`text` as Unicode that can be encoded: the tokenizer takes nothing else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
