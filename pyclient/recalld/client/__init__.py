"""A client of a recalld server. `RemoteMemory`, a memory like any other, stands on it.

Importing it loads gRPC.
"""

from recalld.client.memory_client import MemoryClient
from recalld.client.results import (
    DeletedItems,
    EmbeddingModelInfo,
    FoundItems,
    HealthStatus,
    QueryDefaults,
    ServerInfo,
    SourceInfo,
    UpdatedItem,
)
from recalld.client.tls import TLSConfig

__all__ = [
    "DeletedItems",
    "EmbeddingModelInfo",
    "FoundItems",
    "HealthStatus",
    "MemoryClient",
    "QueryDefaults",
    "ServerInfo",
    "SourceInfo",
    "TLSConfig",
    "UpdatedItem",
]
