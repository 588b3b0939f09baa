"""A write cut into batches that a server takes, and what became of them, put together again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recalld.client.connection import ServerFacts
from recalld.errors import CompositeWriteError, InvalidField, InvalidRequest, MemoryWriteRefused, RecalldError
from recalld.v1 import item_pb2, memory_service_pb2
from recalld.wire import MAX_ID_BYTES, decode_write_error

#: Batches stay smaller than most servers allow: each acknowledgement is progress, and the server joins the commits of
#: what waits anyway.
PREFERRED_BATCH_ITEMS = 128

#: What a request holds beside its items' own bytes: the envelope of the message, and of each item in it.
_ENVELOPE_BYTES = 64
_ITEM_ENVELOPE_BYTES = 6


@dataclass(frozen=True)
class WriteBatch:
    """A run of a write's items. start: the place of its first item in the write. key: the idempotency key."""

    start: int
    items: Sequence[item_pb2.MemoryItem]
    key: str


@dataclass(frozen=True)
class Written:
    """What became of a whole write; every source is in exactly one of accepted, refused and failed.

    A source that failed in any batch has failed. ids: of the items, in order, of the batches that a source accepted.
    commit_tokens: of every batch that a source accepted, in the order of the acknowledgements, none twice. They are
    opaque here, and no single one need cover the others: batches that were turned away at first are committed after
    later ones, and the token of a batch lacks a source that failed in it.
    """

    accepted: Sequence[str]
    refused: Sequence[str]
    failed: dict[str, RecalldError]
    ids: Sequence[str]
    commit_tokens: Sequence[str]
    replayed: bool

    def raise_for_failures(self) -> None:
        """Raises CompositeWriteError when a source failed."""
        if self.failed:
            raise CompositeWriteError(accepted=self.accepted, failed=self.failed, refused=self.refused)


def check_sizes(items: Sequence[item_pb2.MemoryItem], facts: ServerFacts, *, overhead: int) -> None:
    """Raises InvalidField for what this server would refuse, so that no part of a write is stored before the refusal.

    overhead: the bytes of a request beside its items.
    """
    violations: dict[str, str] = {}
    places: dict[str, int] = {}
    room = _room(facts, overhead)
    for index, item in enumerate(items):
        path = f"items[{index}]"
        size = len(item.content.encode())
        if not size:
            violations[f"{path}.content"] = "is empty"
        elif size > facts.max_content_bytes:
            violations[f"{path}.content"] = f"is {size} bytes; at most {facts.max_content_bytes} are allowed"
        elif item.ByteSize() > room:
            violations[path] = f"is {item.ByteSize()} bytes, more than a message to this server may hold"
        if item.id:
            if len(item.id.encode()) > MAX_ID_BYTES:
                violations[f"{path}.id"] = f"is longer than {MAX_ID_BYTES} bytes"
            first = places.setdefault(item.id, index)
            if first != index:
                violations[f"{path}.id"] = f"repeats items[{first}].id"
    if violations:
        raise InvalidField(violations=violations)


def split(
    items: Sequence[item_pb2.MemoryItem], facts: ServerFacts, *, overhead: int
) -> Iterator[tuple[int, Sequence[item_pb2.MemoryItem]]]:
    """The runs that fit the server's limits, each with the place of its first item."""
    most = min(facts.max_batch_items, PREFERRED_BATCH_ITEMS)
    room = _room(facts, overhead)
    start, used = 0, 0
    for index, item in enumerate(items):
        size = item.ByteSize() + _ITEM_ENVELOPE_BYTES
        if index > start and (index - start >= most or used + size > room):
            yield start, items[start:index]
            start, used = index, 0
        used += size
    if items:
        yield start, items[start:]


def _room(facts: ServerFacts, overhead: int) -> int:
    return facts.max_message_bytes - overhead - _ENVELOPE_BYTES - _ITEM_ENVELOPE_BYTES


def placed(error: RecalldError, batch: WriteBatch) -> RecalldError:
    """The error with its field paths counted from the start of the write, not of the batch."""
    if batch.start == 0 or not isinstance(error, InvalidRequest) or not error.violations:
        return error
    violations = {_shifted(path, batch.start): _shifted(why, batch.start) for path, why in error.violations.items()}
    return type(error)(violations=violations, details=error.details)


def _shifted(text: str, start: int) -> str:
    return re.sub(r"\bitems\[(\d+)\]", lambda found: f"items[{int(found[1]) + start}]", text)


def progress(batches: Sequence[WriteBatch], outcomes: Mapping[int, memory_service_pb2.WriteOutcome]) -> str:
    """What of a write is stored when it ends early, in words."""
    total = sum(len(batch.items) for batch in batches)
    undecided = [batch for index, batch in enumerate(batches) if index not in outcomes]
    places = ", ".join(f"items[{batch.start}:{batch.start + len(batch.items)}]" for batch in undecided[:8])
    more = ", ..." if len(undecided) > 8 else ""
    stored = total - sum(len(batch.items) for batch in undecided)
    return f"{stored} of {total} items were acknowledged before; not acknowledged: {places}{more}"


def merge(batches: Sequence[WriteBatch], outcomes: Mapping[int, memory_service_pb2.WriteOutcome]) -> Written:
    """The outcome of the whole write, from that of each batch by its place, in the order of the acknowledgements."""
    accepted: dict[str, None] = {}
    refused: dict[str, None] = {}
    failed: dict[str, RecalldError] = {}
    ids: list[str] = []
    total = sum(len(batch.items) for batch in batches)
    for index, batch in enumerate(batches):
        outcome = outcomes[index]
        accepted.update(dict.fromkeys(outcome.accepted))
        refused.update(dict.fromkeys(outcome.refused))
        ids.extend(outcome.ids)
        for each in outcome.failed:
            error = placed(decode_write_error(each.error, each.source), batch)
            if isinstance(error, MemoryWriteRefused):
                error = MemoryWriteRefused(source=error.source, n=total)
            failed.setdefault(each.source, error)
    return Written(
        accepted=[name for name in accepted if name not in refused and name not in failed],
        refused=[name for name in refused if name not in failed],
        failed=failed,
        ids=ids,
        commit_tokens=list(dict.fromkeys(each.commit_token for each in outcomes.values() if each.commit_token)),
        replayed=bool(batches) and all(outcome.replayed for outcome in outcomes.values()),
    )
