"""MemoryService: reads a request, calls the memory, writes the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from recalld.errors import AllSourcesFailed, InvalidField
from recalld.item import MemoryItem, writable_attributes
from recalld.limits import Limits
from recalld.sources.composite import CompositeMemory
from recalld.store import UNSET, ItemPage
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire.answers import encode_outcome, encode_summary
from recalld_server.transport import page_tokens
from recalld_server.transport.beside import beside_the_loop
from recalld_server.transport.call import Call, Method, Requests, Work
from recalld_server.transport.commits import commit_write, only_failure
from recalld_server.transport.framing import encoded, frames, page_within
from recalld_server.transport.interceptors.admission import Admission
from recalld_server.transport.pipeline import methods_of
from recalld_server.transport.requests import (
    Mask,
    read_delete,
    read_get,
    read_list,
    read_query,
    read_update,
    read_write,
)
from recalld_server.transport.write_stream import WriteStream

SERVICE = pb.DESCRIPTOR.services_by_name["MemoryService"]

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class MemoryService:
    """The RPCs over one memory."""

    def __init__(self, memory: CompositeMemory, limits: Limits, admission: Admission, stopping: asyncio.Event) -> None:
        self._memory = memory
        self._limits = limits
        self._admission = admission
        self._stopping = stopping

    def methods(self) -> Sequence[Method]:
        return methods_of(
            SERVICE,
            {
                "Query": (Work.QUERY, self.query),
                "Write": (Work.STREAM, self.write),
                "BatchWrite": (Work.WRITE, self.batch_write),
                "BatchGet": (Work.READ, self.batch_get),
                "List": (Work.READ, self.list),
                "Update": (Work.WRITE, self.update),
                "Delete": (Work.WRITE, self.delete),
            },
        )

    async def query(self, request: pb.QueryRequest, call: Call) -> None:
        started = time.perf_counter_ns()
        query = await self._read(read_query, request)
        try:
            result = await self._memory.select(query.sources).search(query.asked, ctx=call.ctx(query.scope, query.user))
        except AllSourcesFailed as error:
            failure = only_failure(error)
            raise failure from failure.__cause__
        summary = encode_summary(result, elapsed_ns=time.perf_counter_ns() - started)
        async with self._admission.sending(call):
            most = self._limits.max_message_bytes
            for frame in frames(result.hits, explain=request.explain, max_message_bytes=most):
                await call.send(frame)
            await call.send(pb.QueryResponse(summary=summary))

    async def write(self, requests: Requests[pb.WriteRequest], call: Call) -> None:
        gate = self._admission.gate(Work.WRITE)
        await WriteStream(self._memory, self._limits, gate, self._stopping, call).run(requests)

    async def batch_write(self, request: pb.BatchWriteRequest, call: Call) -> pb.BatchWriteResponse:
        outcome = await commit_write(self._memory, await self._read(read_write, request), call)
        return pb.BatchWriteResponse(outcome=encode_outcome(outcome))

    async def batch_get(self, request: pb.BatchGetRequest, call: Call) -> pb.BatchGetResponse:
        get = await self._read(read_get, request)
        found = await self._source(request.source).get(get.ids, ctx=call.ctx(get.scope, get.user))
        known = {item.id for item in found}
        missing = [id for id in dict.fromkeys(get.ids) if id not in known]
        response = pb.BatchGetResponse(items=map(encoded, found), missing_ids=missing)
        size, most = response.ByteSize(), self._limits.max_message_bytes
        if size > most:
            raise InvalidField(
                violations={"ids": f"names items of {size} bytes, more than the {most} of a message: ask for fewer"}
            )
        return response

    async def list(self, request: pb.ListRequest, call: Call) -> pb.ListResponse:
        wanted = await self._read(read_list, request)
        token = page_tokens.decode(request, self._limits)
        source, ctx = self._source(request.source), call.ctx(wanted.scope, wanted.user)

        async def read(page_size: int, page_token: str) -> ItemPage:
            return await source.list_page(ctx=ctx, where=wanted.where, page_size=page_size, page_token=page_token)

        items, following = await page_within(
            read, limit=wanted.page_size, token=token, max_message_bytes=self._limits.max_message_bytes
        )
        return pb.ListResponse(items=items, next_page_token=page_tokens.encode(request, following) if following else "")

    async def update(self, request: pb.UpdateRequest, call: Call) -> pb.UpdateResponse:
        update = await self._read(read_update, request)
        source, ctx = self._source(request.source), call.ctx(update.scope, update.user)
        item = await source.update(
            update.item.id or "", ctx=ctx, if_revision=update.if_revision, **_changes(update.item, update.mask)
        )
        return pb.UpdateResponse(item=encoded(item), commit_token=await source.commit_token(ctx=ctx))

    async def delete(self, request: pb.DeleteRequest, call: Call) -> pb.DeleteResponse:
        delete = await self._read(read_delete, request)
        source, ctx = self._source(request.source), call.ctx(delete.scope, delete.user)
        selected = delete.selected
        if isinstance(selected, Sequence):
            count = await source.delete(selected, ctx=ctx, dry_run=request.dry_run)
        else:
            count = await source.delete(ctx=ctx, where=selected, dry_run=request.dry_run)
        return pb.DeleteResponse(deleted_count=count, commit_token=await source.commit_token(ctx=ctx))

    async def _read(self, read: Callable[[M, Limits], T], request: M) -> T:
        """The checked request. Checking a large one takes many times what decoding it takes."""
        return await beside_the_loop(request.ByteSize(), lambda: read(request, self._limits))

    def _source(self, name: str) -> CompositeMemory:
        return self._memory.select([name] if name else [])


def _changes(item: MemoryItem, mask: Sequence[Mask]) -> dict[str, Any]:
    """The arguments of an update that changes what the mask names to what the item has, and clears what it lacks."""
    changes: dict[str, Any] = {}
    by_key: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    given = writable_attributes(item.attributes)
    for path in mask:
        match path:
            case ("content",):
                changes["content"] = item.content
            case ("metadata",):
                changes["metadata"] = item.metadata
            case ("metadata", key):
                by_key[key] = item.metadata.get(key, UNSET)
            case (_, name):
                attributes[name] = getattr(given, name)
            case _:
                raise ValueError(f"{path} is no path of a mask that was read")
    if by_key:
        changes["metadata_changes"] = by_key
    if attributes:
        changes["attributes"] = attributes
    return changes
