"""MemoryService: reads a request, calls the use case, writes the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration

from recalld.errors import InvalidField
from recalld.limits import Limits
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire import reason_number
from recalld_server.application import Application
from recalld_server.ports import Page, Ranked
from recalld_server.transport import page_tokens
from recalld_server.transport.call import Call, Method, Requests, Work
from recalld_server.transport.framing import encoded, frames, page_within
from recalld_server.transport.interceptors.admission import Admission
from recalld_server.transport.outcomes import encode_outcome
from recalld_server.transport.pipeline import methods_of
from recalld_server.transport.requests import read_delete, read_get, read_list, read_query, read_update, read_write
from recalld_server.transport.write_stream import WriteStream

SERVICE = pb.DESCRIPTOR.services_by_name["MemoryService"]


class MemoryService:
    """The RPCs over one application."""

    def __init__(self, application: Application, limits: Limits, admission: Admission, stopping: asyncio.Event) -> None:
        self._application = application
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
        query = read_query(request, self._limits, call.remaining())
        ranked = await self._application.query(query.scope, query.spec, query.sources)
        most = self._limits.max_message_bytes
        for frame in frames(ranked.hits, explain=request.explain, max_message_bytes=most):
            await call.send(frame)
        await call.send(pb.QueryResponse(summary=_summary(ranked, time.perf_counter_ns() - started)))

    async def write(self, requests: Requests[pb.WriteRequest], call: Call) -> None:
        gate = self._admission.gate(Work.WRITE)
        await WriteStream(self._application, self._limits, gate, self._stopping).run(requests, call)

    async def batch_write(self, request: pb.BatchWriteRequest, _: Call) -> pb.BatchWriteResponse:
        write = read_write(request, self._limits)
        outcome = await self._application.write(
            write.scope, write.items, idempotency_key=write.idempotency_key, sources=write.sources
        )
        return pb.BatchWriteResponse(outcome=encode_outcome(outcome))

    async def batch_get(self, request: pb.BatchGetRequest, _: Call) -> pb.BatchGetResponse:
        get = read_get(request, self._limits)
        found, missing = await self._application.read.get(get.scope, get.ids, request.source)
        response = pb.BatchGetResponse(items=map(encoded, found), missing_ids=missing)
        size, most = response.ByteSize(), self._limits.max_message_bytes
        if size > most:
            raise InvalidField(
                violations={"ids": f"names items of {size} bytes, more than the {most} of a message: ask for fewer"}
            )
        return response

    async def list(self, request: pb.ListRequest, _: Call) -> pb.ListResponse:
        wanted = read_list(request, self._limits)
        cursor = page_tokens.decode(request, self._limits)

        async def read(limit: int, cursor: str | None) -> Page:
            return await self._application.read.list(
                wanted.scope, wanted.where, limit=limit, cursor=cursor, source=request.source
            )

        items, following = await page_within(
            read, limit=wanted.page_size, cursor=cursor, max_message_bytes=self._limits.max_message_bytes
        )
        token = "" if following is None else page_tokens.encode(request, following)
        return pb.ListResponse(items=items, next_page_token=token)

    async def update(self, request: pb.UpdateRequest, _: Call) -> pb.UpdateResponse:
        update = read_update(request, self._limits)
        item, token = await self._application.change.update(
            update.scope, update.item, update.mask, if_revision=update.if_revision, source=request.source
        )
        return pb.UpdateResponse(item=encoded(item), commit_token=token)

    async def delete(self, request: pb.DeleteRequest, _: Call) -> pb.DeleteResponse:
        delete = read_delete(request, self._limits)
        deleted = await self._application.change.delete(
            delete.scope, delete.selected, dry_run=request.dry_run, source=request.source
        )
        return pb.DeleteResponse(deleted_count=deleted.count, commit_token=deleted.commit_token)


def _summary(ranked: Ranked, elapsed_ns: int) -> pb.QuerySummary:
    summary = pb.QuerySummary(
        hit_count=len(ranked.hits),
        degradations=[
            pb.Degradation(component=each.component, reason=reason_number(each.reason), message=each.message)
            for each in ranked.degradations
        ],
        elapsed=Duration(seconds=elapsed_ns // 1_000_000_000, nanos=elapsed_ns % 1_000_000_000),
        commit_token=ranked.commit_token,
    )
    if ranked.fusion is not None:
        summary.fusion.k = ranked.fusion.k
        summary.fusion.lexical_weight = ranked.fusion.lexical_weight
        summary.fusion.semantic_weight = ranked.fusion.semantic_weight
    return summary
