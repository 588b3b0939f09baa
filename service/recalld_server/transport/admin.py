"""AdminService: what the server tells of itself."""

from __future__ import annotations

from collections.abc import Sequence

from recalld.limits import Limits
from recalld.v1 import admin_service_pb2 as pb
from recalld_server.transport.call import Call, Method, Work
from recalld_server.transport.pipeline import methods_of
from recalld_server.transport.served import Served

SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"]


class AdminService:
    """The RPCs over what is served."""

    def __init__(self, served: Served, limits: Limits) -> None:
        self._served = served
        self._limits = limits

    def methods(self) -> Sequence[Method]:
        return methods_of(SERVICE, {"GetServerInfo": (Work.LIGHT, self.get_server_info)})

    async def get_server_info(self, _request: pb.GetServerInfoRequest, _call: Call) -> pb.GetServerInfoResponse:
        told = self._served.describe()
        limits = self._limits
        return pb.GetServerInfoResponse(
            version=told.version,
            name=told.name,
            sources=[
                pb.SourceInfo(name=each.name, kind=each.kind, accepts_writes=each.accepts_writes)
                for each in told.sources
            ],
            embedding_model=pb.EmbeddingModelInfo(
                name=told.model.name,
                dimensions=told.model.dimensions,
                sha256=told.model.sha256,
                max_tokens=told.model.max_tokens,
            ),
            limits=pb.ServerLimits(
                max_batch_items=limits.max_batch_items,
                max_message_bytes=limits.max_message_bytes,
                max_unacked_batches=limits.max_unacked_batches,
                max_content_bytes=limits.max_content_bytes,
                max_k=limits.max_k,
            ),
            query_defaults=pb.QueryDefaults(
                rank_fusion_k=told.rank_fusion_k,
                lexical_weight=told.lexical_weight,
                semantic_weight=told.semantic_weight,
                candidates=told.candidates,
            ),
        )
