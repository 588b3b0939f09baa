"""The items of a write as messages, and whether a server takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from recalld.checks import check_batch
from recalld.client.caller import Caller, raise_violations
from recalld.errors import InvalidField
from recalld.identity import assign_ids
from recalld.item import MemoryItem, assign_owner
from recalld.limits import LIMITS, Limits
from recalld.scope import Ctx, scope_of
from recalld.v1 import item_pb2
from recalld.v1 import memory_service_pb2 as pb
from recalld.values import Violations
from recalld.wire import encode_writes

#: What a request holds beside its items' own bytes: the envelope of the message, and of each item in it.
_ENVELOPE_BYTES = 64
ITEM_ENVELOPE_BYTES = 6

#: From how many items or characters on a write is encoded off the event loop.
_MANY_ITEMS = 32
_MANY_CHARACTERS = 32_768


async def encode_items(
    items: Iterable[MemoryItem], ctx: Ctx, *, idempotency_key: str = ""
) -> Sequence[item_pb2.MemoryItem]:
    """The items of a write by this context, as messages. With a key, those without an id get one that a repeat meets
    again, however the write is cut into batches.

    Raises InvalidField with every violation of the contract in any of them, and WrongType for what is no list of items.
    """
    owned: list[Any] = list(assign_owner(items, ctx))

    def encode() -> Sequence[item_pb2.MemoryItem]:
        # However many there are: how they are cut into batches is another matter.
        check_batch(owned, ctx, replace(LIMITS, max_batch_items=max(1, len(owned))), idempotency_key=idempotency_key)
        if idempotency_key:
            return encode_writes(assign_ids(owned, scope=scope_of(ctx), idempotency_key=idempotency_key))
        return encode_writes(owned)

    if not owned:
        return []
    texts: Iterable[Any] = (getattr(item, "content", "") for item in owned)
    many = len(owned) > _MANY_ITEMS or sum(len(text) for text in texts if isinstance(text, str)) > _MANY_CHARACTERS
    return await asyncio.to_thread(encode) if many else encode()


def check_fit(items: Sequence[item_pb2.MemoryItem], limits: Limits, *, overhead: int) -> None:
    """Raises InvalidField for items that this server's own limits leave no room for, so that no part of a write is
    stored before the refusal.

    overhead: the bytes of a request beside its items.
    """
    violations: Violations = {}
    room = room_for_items(limits, overhead)
    for index, item in enumerate(items):
        size = len(item.content.encode())
        if size > limits.max_content_bytes:
            violations[f"items[{index}].content"] = f"has {size} bytes, more than {limits.max_content_bytes}"
        elif item.ByteSize() > room:
            violations[f"items[{index}]"] = f"has {item.ByteSize()} bytes, more than a message to this server may hold"
    raise_violations(violations)


def check_request(request: pb.BatchWriteRequest, limits: Limits) -> None:
    """Raises InvalidField for more items or bytes than the server takes in one batch, and for none."""
    count, size = len(request.items), request.ByteSize()
    if not 1 <= count <= limits.max_batch_items:
        raise InvalidField(violations={"items": f"must hold 1 to {limits.max_batch_items} items, not {count}"})
    if size > limits.max_message_bytes:
        fault = f"make a message of {size} bytes, more than {limits.max_message_bytes}: write fewer at once"
        raise InvalidField(violations={"items": fault})


def measure_overhead(caller: Caller, sources: Sequence[str]) -> int:
    """The bytes of a request beside its items."""
    return pb.WriteRequest(
        scope=caller.scope,
        sequence=2**32,
        idempotency_key="k" * LIMITS.max_idempotency_key_bytes,
        sources=sources,
        on_behalf_of_user_id=caller.user,
    ).ByteSize()


def room_for_items(limits: Limits, overhead: int) -> int:
    """The bytes that items may take in one message, each with its envelope."""
    return limits.max_message_bytes - overhead - _ENVELOPE_BYTES - ITEM_ENVELOPE_BYTES
