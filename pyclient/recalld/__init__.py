"""recalld: memories of agents, local and remote, as one.

Everything that is exported here is public. `recalld.errors` has the whole tree of exceptions, `recalld.filters` what a
`where` means, `recalld.fusion` merging and rank fusion, `recalld.rerank` the cross-encoder, and `recalld.testing` the
contract suite for sources of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from recalld._version import __version__
from recalld.decorators.cached import CachedMemory
from recalld.decorators.compacted import CompactedMemory, Message
from recalld.decorators.read_only import OnWritePolicy, ReadOnlyMemory
from recalld.decorators.scoped import ScopedMemory
from recalld.decorators.wrapper import WrapperMemory
from recalld.errors import AllSourcesFailed, CompositeWriteError, MemoryWriteRefused, RecalldError, ScopeViolation
from recalld.fusion import DedupeMode, rrf_rerank, score_sort_rerank
from recalld.grounding import as_grounder, as_grounding_source, render_grounding
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.lift import as_store
from recalld.scope import Ctx, CtxLike, Scope
from recalld.source import MemorySource, Reranker
from recalld.sources.composite import CompositeMemory
from recalld.sources.directory import DirectoryFiles
from recalld.sources.file import FileMemory, InMemoryFiles
from recalld.sources.journal import JournalMemory, MutationJournal
from recalld.sources.scratchpad import ScratchpadMemory
from recalld.sources.sequential import SequentialMemory
from recalld.sources.tool import FunctionTool, Tool, ToolMemory, default_parse
from recalld.sources.vector import Chunk, VectorMemory, VectorPort
from recalld.store import (
    UNSET,
    Degradation,
    ItemPage,
    MemoryStore,
    RankFusion,
    RetrievalMode,
    SearchHit,
    SearchQuery,
    SearchResult,
    WriteBatch,
    WriteOutcome,
)

if TYPE_CHECKING:
    from recalld.client import MemoryClient, TLSConfig
    from recalld.engine import LocalMemory
    from recalld.sources.remote import RemoteMemory

__all__ = [
    "UNSET",
    "AllSourcesFailed",
    "CachedMemory",
    "Chunk",
    "CompactedMemory",
    "CompositeMemory",
    "CompositeWriteError",
    "Ctx",
    "CtxLike",
    "DedupeMode",
    "Degradation",
    "DirectoryFiles",
    "FileMemory",
    "FunctionTool",
    "InMemoryFiles",
    "ItemPage",
    "JournalMemory",
    "LocalMemory",
    "MemoryAttributes",
    "MemoryClient",
    "MemoryItem",
    "MemorySource",
    "MemoryStatus",
    "MemoryStore",
    "MemoryWriteRefused",
    "Message",
    "MutationJournal",
    "OnWritePolicy",
    "RankFusion",
    "ReadOnlyMemory",
    "RecalldError",
    "RemoteMemory",
    "Reranker",
    "RetrievalMode",
    "Scope",
    "ScopeViolation",
    "ScopedMemory",
    "ScratchpadMemory",
    "SearchHit",
    "SearchQuery",
    "SearchResult",
    "SequentialMemory",
    "TLSConfig",
    "Tool",
    "ToolMemory",
    "VectorMemory",
    "VectorPort",
    "Visibility",
    "WrapperMemory",
    "WriteBatch",
    "WriteOutcome",
    "__version__",
    "as_grounder",
    "as_grounding_source",
    "as_store",
    "default_parse",
    "render_grounding",
    "rrf_rerank",
    "score_sort_rerank",
]


#: What is loaded when it is first touched: gRPC alone takes as long to import as all else together is allowed to.
_ON_DEMAND = {
    "LocalMemory": "recalld.engine",
    "MemoryClient": "recalld.client",
    "RemoteMemory": "recalld.sources.remote",
    "TLSConfig": "recalld.client",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_ON_DEMAND[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
