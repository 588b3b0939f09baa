"""What an operator can set about embedding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """Which model embeds, and within what bounds.

    model: a directory in the Hugging Face layout; None is the bundled all-MiniLM-L6-v2. query_prefix, document_prefix,
    pooling, max_tokens: None takes what the model's own files say. threads: of one run of the model; None is as many as
    there are cores, at most 4. max_batch_tokens: padded tokens of one run, unless a single text is longer.
    max_queued_texts: texts that wait, of queries and of documents each. query_cache_size: query vectors that are kept.
    """

    model: Path | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    pooling: Pooling | None = None
    max_tokens: int | None = None
    threads: int | None = None
    # Measured with all-MiniLM-L6-v2: 256 gives the most texts a second, 2,048 a quarter less, and a short batch lets
    # the next caller in sooner.
    max_batch_tokens: int = 256
    max_queued_texts: int = 8192
    query_cache_size: int = 1024

    def __post_init__(self) -> None:
        for name, least in (("max_batch_tokens", 1), ("max_queued_texts", 1), ("query_cache_size", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")
        for name in ("threads", "max_tokens"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1")
