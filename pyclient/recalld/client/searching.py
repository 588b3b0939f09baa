"""One Query stream, read to its end."""

from __future__ import annotations

import grpc.aio

from recalld.errors import InternalFailure, SourceUnavailable
from recalld.store import SearchHit, SearchResult
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire import Violations
from recalld.wire.answers import decode_hit, decode_result

Stream = grpc.aio.UnaryStreamCall[pb.QueryRequest, pb.QueryResponse]


async def read_answer(stream: Stream, label: str) -> SearchResult:
    """The whole answer. Raises SourceUnavailable for a stream that ends early, and InternalFailure for an item that
    does not read; `label` names the server."""
    hits: list[SearchHit] = []
    summary: pb.QuerySummary | None = None
    violations: Violations = {}
    try:
        async for frame in stream:
            if frame.WhichOneof("frame") == "summary":
                summary = frame.summary
                continue
            for each in frame.hits.hits:
                hit = decode_hit(each, f"hits[{len(hits)}]", violations)
                if hit is None:
                    raise InternalFailure(f"{label}: sent an item that does not read: {violations}")
                hits.append(hit)
    finally:
        stream.cancel()
    if summary is None:
        message = f"{label}: the answer is incomplete; the stream ended without a summary"
        raise SourceUnavailable(message, details={"source": label})
    return decode_result(hits, summary)
