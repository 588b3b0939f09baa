from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "name", "sources", "embedding_model", "limits", "query_defaults")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    QUERY_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    name: str
    sources: _containers.RepeatedCompositeFieldContainer[SourceInfo]
    embedding_model: EmbeddingModelInfo
    limits: ServerLimits
    query_defaults: QueryDefaults
    def __init__(self, version: _Optional[str] = ..., name: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourceInfo, _Mapping]]] = ..., embedding_model: _Optional[_Union[EmbeddingModelInfo, _Mapping]] = ..., limits: _Optional[_Union[ServerLimits, _Mapping]] = ..., query_defaults: _Optional[_Union[QueryDefaults, _Mapping]] = ...) -> None: ...

class SourceInfo(_message.Message):
    __slots__ = ("name", "kind", "accepts_writes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_WRITES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    accepts_writes: bool
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., accepts_writes: _Optional[bool] = ...) -> None: ...

class EmbeddingModelInfo(_message.Message):
    __slots__ = ("name", "dimensions", "sha256", "max_tokens")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dimensions: int
    sha256: str
    max_tokens: int
    def __init__(self, name: _Optional[str] = ..., dimensions: _Optional[int] = ..., sha256: _Optional[str] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class ServerLimits(_message.Message):
    __slots__ = ("max_batch_items", "max_message_bytes", "max_unacked_batches", "max_content_bytes", "max_k")
    MAX_BATCH_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_K_FIELD_NUMBER: _ClassVar[int]
    max_batch_items: int
    max_message_bytes: int
    max_unacked_batches: int
    max_content_bytes: int
    max_k: int
    def __init__(self, max_batch_items: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_unacked_batches: _Optional[int] = ..., max_content_bytes: _Optional[int] = ..., max_k: _Optional[int] = ...) -> None: ...

class QueryDefaults(_message.Message):
    __slots__ = ("rank_fusion_k", "lexical_weight", "semantic_weight", "candidates")
    RANK_FUSION_K_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    rank_fusion_k: int
    lexical_weight: float
    semantic_weight: float
    candidates: int
    def __init__(self, rank_fusion_k: _Optional[int] = ..., lexical_weight: _Optional[float] = ..., semantic_weight: _Optional[float] = ..., candidates: _Optional[int] = ...) -> None: ...
