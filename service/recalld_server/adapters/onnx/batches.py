"""Which texts share a run of the model: padding is computed like any token, so texts of one length belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Every index once, in batches of rising length, each at most `max_tokens` with its padding or a single text."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def around_first(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """The first index, whose turn it is, and those nearest to it in length that fit in `max_tokens` with padding."""
    batch, longest = [0], lengths[0]
    for index in sorted(range(1, len(lengths)), key=lambda i: abs(lengths[i] - lengths[0])):
        longest_then = max(longest, lengths[index])
        if (len(batch) + 1) * longest_then <= max_tokens:
            batch.append(index)
            longest = longest_then
    return batch
