"""A write cut into batches that a server takes, and what became of them, put together again."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from recalld import commit_tokens
from recalld.client.encoding import ITEM_ENVELOPE_BYTES, room_for_items
from recalld.errors import InvalidRequest, MemoryWriteRefused, RecalldError
from recalld.identity import derive_part_key
from recalld.limits import Limits
from recalld.store import WriteOutcome
from recalld.v1 import item_pb2

#: Batches of a long write stay smaller than most servers allow: each acknowledgement is progress, and the server joins
#: the commits of what waits anyway.
PREFERRED_BATCH_ITEMS = 128


@dataclass(frozen=True)
class WritePart:
    """A run of a write's items. start: the place of its first item in the write. key: the idempotency key."""

    start: int
    items: Sequence[item_pb2.MemoryItem]
    key: str


def split(
    items: Sequence[item_pb2.MemoryItem], limits: Limits, *, overhead: int, idempotency_key: str
) -> Sequence[WritePart]:
    """The parts that fit the server's limits, each with a key of its own that is derived from the write's."""
    runs = _cut(items, limits, overhead)
    key = idempotency_key or uuid.uuid4().hex
    return [WritePart(start, run, derive_part_key(key, number)) for number, (start, run) in enumerate(runs)]


def _cut(
    items: Sequence[item_pb2.MemoryItem], limits: Limits, overhead: int
) -> Iterator[tuple[int, Sequence[item_pb2.MemoryItem]]]:
    most = min(limits.max_batch_items, PREFERRED_BATCH_ITEMS)
    room = room_for_items(limits, overhead)
    start, used = 0, 0
    for index, item in enumerate(items):
        size = item.ByteSize() + ITEM_ENVELOPE_BYTES
        if index > start and (index - start >= most or used + size > room):
            yield start, items[start:index]
            start, used = index, 0
        used += size
    if items:
        yield start, items[start:]


def place(error: RecalldError, batch: WritePart) -> RecalldError:
    """The error with its field paths counted from the start of the write, not of the batch."""
    if batch.start == 0 or not isinstance(error, InvalidRequest) or not error.violations:
        return error
    violations = {_shifted(path, batch.start): _shifted(why, batch.start) for path, why in error.violations.items()}
    return type(error)(violations=violations, details=error.details)


def _shifted(text: str, start: int) -> str:
    return re.sub(r"\bitems\[(\d+)\]", lambda found: f"items[{int(found[1]) + start}]", text)


def progress(batches: Sequence[WritePart], outcomes: Mapping[int, WriteOutcome]) -> str:
    """What of a write is stored when it ends early, in words."""
    total = sum(len(batch.items) for batch in batches)
    undecided = [batch for index, batch in enumerate(batches) if index not in outcomes]
    places = ", ".join(f"items[{batch.start}:{batch.start + len(batch.items)}]" for batch in undecided[:8])
    more = ", ..." if len(undecided) > 8 else ""
    stored = total - sum(len(batch.items) for batch in undecided)
    return f"{stored} of {total} items were acknowledged before; not acknowledged: {places}{more}"


def merge(batches: Sequence[WritePart], outcomes: Mapping[int, WriteOutcome]) -> WriteOutcome:
    """The outcome of the whole write, from that of each batch by its place, in the order of the acknowledgements.

    A source that failed in any batch has failed; ids are those of the batches that a source accepted. The token covers
    every commit: no single one need, since a batch that was turned away at first is committed after later ones.
    """
    accepted: dict[str, None] = {}
    refused: dict[str, None] = {}
    failed: dict[str, RecalldError] = {}
    ids: list[str] = []
    for index, batch in enumerate(batches):
        outcome = outcomes[index]
        accepted.update(dict.fromkeys(outcome.accepted))
        refused.update(dict.fromkeys(outcome.refused))
        ids.extend(outcome.ids)
        for source, error in outcome.failed.items():
            failed.setdefault(source, place(error, batch))
    whole = WriteOutcome(
        accepted=[name for name in accepted if name not in refused and name not in failed],
        refused=[name for name in refused if name not in failed],
        failed=failed,
        ids=ids,
        commit_token=commit_tokens.merge(outcome.commit_token for outcome in outcomes.values()),
        replayed=bool(batches) and all(outcome.replayed for outcome in outcomes.values()),
    )
    return count_refused(whole, sum(len(batch.items) for batch in batches))


@contextmanager
def counting_refused(count: int) -> Generator[None]:
    """Has the error of a write that was turned away say how many items were refused."""
    try:
        yield
    except MemoryWriteRefused as refusal:
        raise MemoryWriteRefused(source=refusal.source, n=count) from refusal


def count_refused(outcome: WriteOutcome, count: int) -> WriteOutcome:
    """The outcome with errors of refusals that say how many items were refused; the wire does not."""
    failed = {
        name: MemoryWriteRefused(source=error.source, n=count) if isinstance(error, MemoryWriteRefused) else error
        for name, error in outcome.failed.items()
    }
    return replace(outcome, failed=failed)
