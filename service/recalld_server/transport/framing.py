"""Keeps answers within the size of a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from google.protobuf.message import Message

from recalld.errors import StorageCorrupt
from recalld.item import MemoryItem
from recalld.store import ItemPage, SearchHit
from recalld.v1 import item_pb2
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire import Violations, encode_item
from recalld.wire.answers import encode_hit

#: Frames end here even where a message may be larger, so that a client has the first hits early.
_FRAME_BYTES = 256 * 1024
#: What a message has beside its items: tags, lengths and a page token.
_OVERHEAD = 8 * 1024
#: The most items that a page asks of a source at once, so that a page of large items is not read many times over.
_STRIDE = 200


def encoded(item: MemoryItem) -> item_pb2.MemoryItem:
    """The item on the wire. Raises StorageCorrupt for a stored value that cannot travel."""
    violations: Violations = {}
    message = encode_item(item, "item", violations)
    if violations:
        raise StorageCorrupt(f"the stored item {item.id!r} does not read back") from ValueError(violations)
    return message


def frames(hits: Iterable[SearchHit], *, explain: bool, max_message_bytes: int) -> Iterator[pb.QueryResponse]:
    """The hits in as few frames as their size allows. A hit that alone is larger has a frame of its own."""
    most = min(_FRAME_BYTES, max_message_bytes - _OVERHEAD)
    frame, size = pb.QueryHits(), 0
    for hit in hits:
        message = encode_hit(hit, encoded(hit.item), explain=explain)
        added = _embedded_bytes(message)
        if frame.hits and size + added > most:
            yield pb.QueryResponse(hits=frame)
            frame, size = pb.QueryHits(), 0
        frame.hits.append(message)
        size += added
    if frame.hits:
        yield pb.QueryResponse(hits=frame)


#: Reads a page: the most items, and the token of where it begins.
ReadPage = Callable[[int, str], Awaitable[ItemPage]]


async def page_within(
    read: ReadPage, *, limit: int, token: str, max_message_bytes: int
) -> tuple[Sequence[item_pb2.MemoryItem], str]:
    """At most `limit` items that fit into a message together, and the token of the next page.

    Where an item would be too much, its stretch is read again up to that place, which gives the token there. The
    first item is always taken, so that paging gets on.
    """
    items: list[item_pb2.MemoryItem] = []
    budget = max_message_bytes - _OVERHEAD
    while len(items) < limit:
        stride = min(limit - len(items), _STRIDE)
        page, fitting = await _read_fitting(read, stride, token, budget, at_least=0 if items else 1)
        if not fitting and page.items:
            break
        items += fitting
        budget -= sum(map(_embedded_bytes, fitting))
        token = page.next_page_token
        if not token or len(fitting) < stride:
            break
    return items, token


async def _read_fitting(
    read: ReadPage, stride: int, token: str, budget: int, *, at_least: int
) -> tuple[ItemPage, Sequence[item_pb2.MemoryItem]]:
    """A stretch of a page that fits whole, or one of which nothing fits."""
    while True:
        page = await read(stride, token)
        found = [encoded(item) for item in page.items]
        fitting = max(_count_fitting(found, budget), min(at_least, len(found)))
        if fitting == len(found) or fitting == 0:
            return page, found[:fitting]
        stride = fitting


def _count_fitting(messages: Sequence[Message], budget: int) -> int:
    for count, message in enumerate(messages):
        budget -= _embedded_bytes(message)
        if budget < 0:
            return count
    return len(messages)


def _embedded_bytes(message: Message) -> int:
    """What a message takes inside another: its bytes, a tag, and at most four of length."""
    return message.ByteSize() + 5
