"""A server in this process, with its whole door, over memories that a test made."""

from __future__ import annotations

from recalld import CompositeMemory, MemorySource
from recalld.engine.ports import ModelIdentity
from recalld.fusion import rank_across_sources
from recalld.limits import LIMITS, Limits
from recalld.source import accepts_writes
from recalld_server.transport.served import Served, ServerDescription, SourceDescription
from recalld_server.transport.server import RunningServer, TransportConfig, serve


async def served(
    *sources: MemorySource, name: str = "recalld", listen: str = "127.0.0.1:0", limits: Limits = LIMITS
) -> RunningServer:
    """Serves the composition of the sources, as the wiring composes them, on a free port."""
    memory = CompositeMemory(list(sources), rank_across_sources, name, "origin")

    def describe() -> ServerDescription:
        told = [SourceDescription(source.name, "memory", accepts_writes(source)) for source in sources]
        return ServerDescription("0", name, told, ModelIdentity("none", 0, "", 0), 2, 0.5, 0.5, 100)

    return await serve(Served(memory, describe), TransportConfig(listen=listen, grace=5, linger=0, limits=limits))
