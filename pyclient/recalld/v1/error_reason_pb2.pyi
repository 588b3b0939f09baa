from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FILTER: _ClassVar[ErrorReason]
    ERROR_REASON_PAGE_TOKEN_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_UNKNOWN_SOURCE: _ClassVar[ErrorReason]
    ERROR_REASON_SCOPE_REQUIRED: _ClassVar[ErrorReason]
    ERROR_REASON_ITEM_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_REVISION_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_IDEMPOTENCY_KEY_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_SOURCE_READ_ONLY: _ClassVar[ErrorReason]
    ERROR_REASON_EMBEDDING_MODEL_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_STREAM_PROTOCOL: _ClassVar[ErrorReason]
    ERROR_REASON_OVERLOADED: _ClassVar[ErrorReason]
    ERROR_REASON_SOURCE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_STORAGE_CORRUPT: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_INVALID_FILTER: ErrorReason
ERROR_REASON_PAGE_TOKEN_MISMATCH: ErrorReason
ERROR_REASON_UNKNOWN_SOURCE: ErrorReason
ERROR_REASON_SCOPE_REQUIRED: ErrorReason
ERROR_REASON_ITEM_NOT_FOUND: ErrorReason
ERROR_REASON_REVISION_MISMATCH: ErrorReason
ERROR_REASON_IDEMPOTENCY_KEY_REUSED: ErrorReason
ERROR_REASON_SOURCE_READ_ONLY: ErrorReason
ERROR_REASON_EMBEDDING_MODEL_MISMATCH: ErrorReason
ERROR_REASON_STREAM_PROTOCOL: ErrorReason
ERROR_REASON_OVERLOADED: ErrorReason
ERROR_REASON_SOURCE_UNAVAILABLE: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_STORAGE_CORRUPT: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
