"""A client of the end-to-end tests: one scope of one server, in few words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from recalld.v1 import admin_service_pb2, admin_service_pb2_grpc, item_pb2, memory_service_pb2, memory_service_pb2_grpc

SCOPE = item_pb2.Scope(org_id="acme", domain_id="support")


def item(content: str, id: str = "", **fields: Any) -> item_pb2.MemoryItem:
    return item_pb2.MemoryItem(id=id, content=content, **fields)


class Client:
    """Calls of one scope; `scope=` in a call takes another."""

    def __init__(self, channel: grpc.Channel, scope: item_pb2.Scope = SCOPE) -> None:
        self.channel = channel
        self.scope = scope
        self.memory = memory_service_pb2_grpc.MemoryServiceStub(channel)

    def write(self, *items: item_pb2.MemoryItem, **fields: Any) -> memory_service_pb2.WriteOutcome:
        request = memory_service_pb2.BatchWriteRequest(items=items, **{"scope": self.scope, **fields})
        return self.memory.BatchWrite(request, timeout=30).outcome

    def query(
        self, text: str, **fields: Any
    ) -> tuple[Sequence[memory_service_pb2.QueryHit], memory_service_pb2.QuerySummary]:
        request = memory_service_pb2.QueryRequest(query=text, **{"scope": self.scope, **fields})
        hits: list[memory_service_pb2.QueryHit] = []
        summary = None
        for frame in self.memory.Query(request, timeout=30):
            assert summary is None, "the summary is the last frame"
            hits.extend(frame.hits.hits)
            summary = frame.summary if frame.HasField("summary") else None
        assert summary is not None
        assert summary.hit_count == len(hits)
        return hits, summary

    def listed(self, page_size: int = 1000, **fields: Any) -> Iterator[item_pb2.MemoryItem]:
        """Every item, over all pages."""
        token = ""
        while True:
            request = memory_service_pb2.ListRequest(
                page_size=page_size, page_token=token, **{"scope": self.scope, **fields}
            )
            page = self.memory.List(request, timeout=30)
            yield from page.items
            token = page.next_page_token
            if not token:
                return

    def info(self) -> admin_service_pb2.GetServerInfoResponse:
        stub = admin_service_pb2_grpc.AdminServiceStub(self.channel)
        return stub.GetServerInfo(admin_service_pb2.GetServerInfoRequest(), timeout=30)
