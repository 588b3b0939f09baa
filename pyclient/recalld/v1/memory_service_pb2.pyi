import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from recalld.v1 import error_reason_pb2 as _error_reason_pb2
from recalld.v1 import filter_pb2 as _filter_pb2
from recalld.v1 import item_pb2 as _item_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RetrievalMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRIEVAL_MODE_UNSPECIFIED: _ClassVar[RetrievalMode]
    RETRIEVAL_MODE_HYBRID: _ClassVar[RetrievalMode]
    RETRIEVAL_MODE_LEXICAL: _ClassVar[RetrievalMode]
    RETRIEVAL_MODE_SEMANTIC: _ClassVar[RetrievalMode]
RETRIEVAL_MODE_UNSPECIFIED: RetrievalMode
RETRIEVAL_MODE_HYBRID: RetrievalMode
RETRIEVAL_MODE_LEXICAL: RetrievalMode
RETRIEVAL_MODE_SEMANTIC: RetrievalMode

class QueryRequest(_message.Message):
    __slots__ = ("scope", "query", "k", "where", "sources", "mode", "fusion", "candidates", "explain", "min_commit_token", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    MIN_COMMIT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    query: str
    k: int
    where: _filter_pb2.Filter
    sources: _containers.RepeatedScalarFieldContainer[str]
    mode: RetrievalMode
    fusion: RankFusion
    candidates: int
    explain: bool
    min_commit_token: str
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., query: _Optional[str] = ..., k: _Optional[int] = ..., where: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., sources: _Optional[_Iterable[str]] = ..., mode: _Optional[_Union[RetrievalMode, str]] = ..., fusion: _Optional[_Union[RankFusion, _Mapping]] = ..., candidates: _Optional[int] = ..., explain: _Optional[bool] = ..., min_commit_token: _Optional[str] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class RankFusion(_message.Message):
    __slots__ = ("k", "lexical_weight", "semantic_weight")
    K_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    k: int
    lexical_weight: float
    semantic_weight: float
    def __init__(self, k: _Optional[int] = ..., lexical_weight: _Optional[float] = ..., semantic_weight: _Optional[float] = ...) -> None: ...

class QueryResponse(_message.Message):
    __slots__ = ("hits", "summary")
    HITS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    hits: QueryHits
    summary: QuerySummary
    def __init__(self, hits: _Optional[_Union[QueryHits, _Mapping]] = ..., summary: _Optional[_Union[QuerySummary, _Mapping]] = ...) -> None: ...

class QueryHits(_message.Message):
    __slots__ = ("hits",)
    HITS_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[QueryHit]
    def __init__(self, hits: _Optional[_Iterable[_Union[QueryHit, _Mapping]]] = ...) -> None: ...

class QueryHit(_message.Message):
    __slots__ = ("item", "explanation")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    item: _item_pb2.MemoryItem
    explanation: RankExplanation
    def __init__(self, item: _Optional[_Union[_item_pb2.MemoryItem, _Mapping]] = ..., explanation: _Optional[_Union[RankExplanation, _Mapping]] = ...) -> None: ...

class RankExplanation(_message.Message):
    __slots__ = ("lexical_rank", "lexical_score", "semantic_rank", "semantic_score")
    LEXICAL_RANK_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_SCORE_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_RANK_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_SCORE_FIELD_NUMBER: _ClassVar[int]
    lexical_rank: int
    lexical_score: float
    semantic_rank: int
    semantic_score: float
    def __init__(self, lexical_rank: _Optional[int] = ..., lexical_score: _Optional[float] = ..., semantic_rank: _Optional[int] = ..., semantic_score: _Optional[float] = ...) -> None: ...

class QuerySummary(_message.Message):
    __slots__ = ("hit_count", "degradations", "elapsed", "commit_token", "fusion")
    HIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    hit_count: int
    degradations: _containers.RepeatedCompositeFieldContainer[Degradation]
    elapsed: _duration_pb2.Duration
    commit_token: str
    fusion: RankFusion
    def __init__(self, hit_count: _Optional[int] = ..., degradations: _Optional[_Iterable[_Union[Degradation, _Mapping]]] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., commit_token: _Optional[str] = ..., fusion: _Optional[_Union[RankFusion, _Mapping]] = ...) -> None: ...

class Degradation(_message.Message):
    __slots__ = ("component", "reason", "message")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    component: str
    reason: _error_reason_pb2.ErrorReason
    message: str
    def __init__(self, component: _Optional[str] = ..., reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("scope", "sequence", "items", "idempotency_key", "sources", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    sequence: int
    items: _containers.RepeatedCompositeFieldContainer[_item_pb2.MemoryItem]
    idempotency_key: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., sequence: _Optional[int] = ..., items: _Optional[_Iterable[_Union[_item_pb2.MemoryItem, _Mapping]]] = ..., idempotency_key: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("sequence", "outcome", "error")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    outcome: WriteOutcome
    error: WriteError
    def __init__(self, sequence: _Optional[int] = ..., outcome: _Optional[_Union[WriteOutcome, _Mapping]] = ..., error: _Optional[_Union[WriteError, _Mapping]] = ...) -> None: ...

class BatchWriteRequest(_message.Message):
    __slots__ = ("scope", "items", "idempotency_key", "sources", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    items: _containers.RepeatedCompositeFieldContainer[_item_pb2.MemoryItem]
    idempotency_key: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., items: _Optional[_Iterable[_Union[_item_pb2.MemoryItem, _Mapping]]] = ..., idempotency_key: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class BatchWriteResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: WriteOutcome
    def __init__(self, outcome: _Optional[_Union[WriteOutcome, _Mapping]] = ...) -> None: ...

class WriteOutcome(_message.Message):
    __slots__ = ("accepted", "refused", "failed", "ids", "commit_token", "replayed")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    accepted: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.RepeatedScalarFieldContainer[str]
    failed: _containers.RepeatedCompositeFieldContainer[SourceFailure]
    ids: _containers.RepeatedScalarFieldContainer[str]
    commit_token: str
    replayed: bool
    def __init__(self, accepted: _Optional[_Iterable[str]] = ..., refused: _Optional[_Iterable[str]] = ..., failed: _Optional[_Iterable[_Union[SourceFailure, _Mapping]]] = ..., ids: _Optional[_Iterable[str]] = ..., commit_token: _Optional[str] = ..., replayed: _Optional[bool] = ...) -> None: ...

class SourceFailure(_message.Message):
    __slots__ = ("source", "error")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    source: str
    error: WriteError
    def __init__(self, source: _Optional[str] = ..., error: _Optional[_Union[WriteError, _Mapping]] = ...) -> None: ...

class WriteError(_message.Message):
    __slots__ = ("code", "reason", "message", "retryable", "field_violations")
    class FieldViolationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    FIELD_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: _error_reason_pb2.ErrorReason
    message: str
    retryable: bool
    field_violations: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., field_violations: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BatchGetRequest(_message.Message):
    __slots__ = ("scope", "ids", "source", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    ids: _containers.RepeatedScalarFieldContainer[str]
    source: str
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., ids: _Optional[_Iterable[str]] = ..., source: _Optional[str] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class BatchGetResponse(_message.Message):
    __slots__ = ("items", "missing_ids")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MISSING_IDS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_item_pb2.MemoryItem]
    missing_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, items: _Optional[_Iterable[_Union[_item_pb2.MemoryItem, _Mapping]]] = ..., missing_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("scope", "where", "page_size", "page_token", "source", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    where: _filter_pb2.Filter
    page_size: int
    page_token: str
    source: str
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., where: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., source: _Optional[str] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_item_pb2.MemoryItem]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[_item_pb2.MemoryItem, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("scope", "item", "update_mask", "if_revision", "source", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    item: _item_pb2.MemoryItem
    update_mask: _field_mask_pb2.FieldMask
    if_revision: int
    source: str
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., item: _Optional[_Union[_item_pb2.MemoryItem, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., if_revision: _Optional[int] = ..., source: _Optional[str] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ("item", "commit_token")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    item: _item_pb2.MemoryItem
    commit_token: str
    def __init__(self, item: _Optional[_Union[_item_pb2.MemoryItem, _Mapping]] = ..., commit_token: _Optional[str] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("scope", "ids", "where", "dry_run", "source", "on_behalf_of_user_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_USER_ID_FIELD_NUMBER: _ClassVar[int]
    scope: _item_pb2.Scope
    ids: _containers.RepeatedScalarFieldContainer[str]
    where: _filter_pb2.Filter
    dry_run: bool
    source: str
    on_behalf_of_user_id: str
    def __init__(self, scope: _Optional[_Union[_item_pb2.Scope, _Mapping]] = ..., ids: _Optional[_Iterable[str]] = ..., where: _Optional[_Union[_filter_pb2.Filter, _Mapping]] = ..., dry_run: _Optional[bool] = ..., source: _Optional[str] = ..., on_behalf_of_user_id: _Optional[str] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("deleted_count", "commit_token")
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    deleted_count: int
    commit_token: str
    def __init__(self, deleted_count: _Optional[int] = ..., commit_token: _Optional[str] = ...) -> None: ...
