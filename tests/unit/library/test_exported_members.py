from __future__ import annotations

import recalld

# The names that INTERFACES promises; none of them may go.
PROMISED = [
    "MemoryItem",
    "MemoryAttributes",
    "MemoryStatus",
    "Visibility",
    "Scope",
    "Ctx",
    "MemorySource",
    "Reranker",
    "CompositeMemory",
    "SequentialMemory",
    "VectorMemory",
    "FileMemory",
    "InMemoryFiles",
    "JournalMemory",
    "ScratchpadMemory",
    "ToolMemory",
    "RemoteMemory",
    "ScopedMemory",
    "CachedMemory",
    "CompactedMemory",
    "ReadOnlyMemory",
    "CompositeWriteError",
    "MemoryWriteRefused",
    "RecalldError",
    "DedupeMode",
    "OnWritePolicy",
    "score_sort_rerank",
    "rrf_rerank",
    "as_grounder",
    "as_grounding_source",
    "default_parse",
    "render_grounding",
    "Chunk",
    "VectorPort",
    "MutationJournal",
    "Message",
    "Tool",
    "FunctionTool",
    "MemoryStore",
    "SearchQuery",
    "SearchResult",
    "SearchHit",
    "Degradation",
    "WriteBatch",
    "WriteOutcome",
    "RetrievalMode",
    "RankFusion",
    "ItemPage",
    "UNSET",
    "as_store",
]

INTERNAL = {"annotations", "TYPE_CHECKING", "Any"}


def test_all_holds_what_is_promised():
    assert set(PROMISED) <= set(recalld.__all__)


def test_everything_in_all_is_there_once():
    assert len(recalld.__all__) == len(set(recalld.__all__))
    for name in recalld.__all__:
        assert getattr(recalld, name) is not None
        assert name in dir(recalld)


def test_nothing_public_is_left_out_of_all():
    import types

    public = {
        name
        for name, value in vars(recalld).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public - INTERNAL <= set(recalld.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(recalld, "NoSuchMemory")
