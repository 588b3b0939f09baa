"""Every exception that recalld raises on purpose.

RecalldError
├── InvalidRequest (ValueError)          the call itself is wrong; sending it again will not help
│   ├── InvalidField                     a field is missing or out of range
│   │   ├── WrongType (TypeError)         an argument of a type that cannot serve
│   │   └── PathRefused (PermissionError) a path that leads out of its root, or to no plain file of a fitting size
│   ├── InvalidFilter                    a `where` names an unknown field or operator, or an unfit value
│   ├── PageTokenMismatch
│   └── UnknownSource
├── ScopeViolation (PermissionError)     the tenant boundary
│   ├── ScopeRequired (ValueError)       the scope is missing or incomplete
│   └── PermissionDenied
├── Unauthenticated (PermissionError)
├── ItemNotFound (LookupError)
├── PathNotFound (FileNotFoundError)
├── FrozenValue (TypeError)              an item's metadata does not change
├── MissingExtra (ImportError)           an optional part is not installed
├── RevisionMismatch
├── IdempotencyKeyReused
├── MemoryWriteRefused                   a source is read-only by policy
├── EmbeddingModelMismatch
├── StreamProtocol
├── Retryable                            passes with time; says after how many seconds to try again
│   ├── Overloaded
│   └── SourceUnavailable (ConnectionError)
├── DeadlineExceeded (TimeoutError)
├── StorageFull                          the disk of the store has no room
├── StorageCorrupt
├── InternalFailure
├── CompositeWriteError (RuntimeError)   some sources of a composite failed; carries the split
└── AllSourcesFailed                     every source of a composite query failed; carries an ExceptionGroup

A class with a `reason` travels: `reason` is the name in `ErrorReason` without its prefix, and `code` the gRPC status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class RecalldError(Exception):
    """The base of all.

    details: what the wire carries as `ErrorInfo.metadata`, for example `{"source": "notes"}`.
    """

    reason: ClassVar[str] = "INTERNAL"
    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, str] = dict(details or {})

    def __str__(self) -> str:
        return self.message


class InvalidRequest(RecalldError, ValueError):
    """The call is wrong as it stands.

    violations: field path to description, for example `{"items[3].content": "is empty"}`; every violation of the call.
    """

    reason: ClassVar[str] = "INVALID_FIELD"
    code: ClassVar[str] = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        violations: Mapping[str, str] | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        self.violations: dict[str, str] = dict(violations or {})
        if not message:
            message = "; ".join(f"{path}: {why}" for path, why in self.violations.items())
        super().__init__(message, details=details)


class InvalidField(InvalidRequest):
    """A field is missing or out of range."""


class WrongType(InvalidField, TypeError):
    """An argument has a type that cannot serve."""


class PathRefused(InvalidField, PermissionError):
    """A path leads out of its root (`..`, a link), cannot be a name (a NUL), is a folder where a file is meant,
    or is of a file that is too large or no text."""


class InvalidFilter(InvalidRequest):
    """A filter names an unknown field or operator, or compares to an unfit value."""

    reason: ClassVar[str] = "INVALID_FILTER"


class PageTokenMismatch(InvalidRequest):
    """The page token was made by another request."""

    reason: ClassVar[str] = "PAGE_TOKEN_MISMATCH"


class UnknownSource(InvalidRequest):
    """No source has that name. Details: `source`."""

    reason: ClassVar[str] = "UNKNOWN_SOURCE"


class ScopeViolation(RecalldError, PermissionError):
    """The call crosses or leaves out the tenant boundary."""

    reason: ClassVar[str] = "PERMISSION_DENIED"
    code: ClassVar[str] = "PERMISSION_DENIED"


class ScopeRequired(ScopeViolation, ValueError):
    """The scope is missing or incomplete."""

    reason: ClassVar[str] = "SCOPE_REQUIRED"
    code: ClassVar[str] = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str = "",
        *,
        violations: Mapping[str, str] | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        self.violations: dict[str, str] = dict(violations or {})
        super().__init__(message, details=details)


class PermissionDenied(ScopeViolation):
    """The credential does not reach this scope or verb."""


class Unauthenticated(RecalldError, PermissionError):
    """No valid credential."""

    reason: ClassVar[str] = "UNAUTHENTICATED"
    code: ClassVar[str] = "UNAUTHENTICATED"


class ItemNotFound(RecalldError, LookupError):
    """No such item in this scope. Details: `id`."""

    reason: ClassVar[str] = "ITEM_NOT_FOUND"
    code: ClassVar[str] = "NOT_FOUND"


class PathNotFound(RecalldError, FileNotFoundError):
    """A tree of files has nothing at that path."""


class FrozenValue(RecalldError, TypeError):
    """Something that is fixed for good, such as the metadata of an item, was told to change."""


class MissingExtra(RecalldError, ImportError):
    """A part of recalld needs an extra that is not installed; the message names it."""


class RevisionMismatch(RecalldError):
    """The record changed since. Details: `id`, `expectedRevision`, `actualRevision`."""

    reason: ClassVar[str] = "REVISION_MISMATCH"
    code: ClassVar[str] = "ABORTED"


class IdempotencyKeyReused(RecalldError):
    """The idempotency key was used for other content."""

    reason: ClassVar[str] = "IDEMPOTENCY_KEY_REUSED"
    code: ClassVar[str] = "FAILED_PRECONDITION"


class MemoryWriteRefused(RecalldError):
    """A source that is read-only by policy turned a write away.

    source: the name of the wrapped source. n: how many items the refused call carried; 0 is a real value.
    """

    reason: ClassVar[str] = "SOURCE_READ_ONLY"
    code: ClassVar[str] = "FAILED_PRECONDITION"

    def __init__(self, *, source: str, n: int) -> None:
        super().__init__(f"source {source!r} is read-only: refused a write of {n} item(s)", details={"source": source})
        self.source = source
        self.n = n

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_refused, (self.source, self.n)


def _rebuild_refused(source: str, n: int) -> MemoryWriteRefused:
    return MemoryWriteRefused(source=source, n=n)


class EmbeddingModelMismatch(RecalldError):
    """The stored embeddings are of another model. Details: `storedModel`, `servedModel`."""

    reason: ClassVar[str] = "EMBEDDING_MODEL_MISMATCH"
    code: ClassVar[str] = "FAILED_PRECONDITION"


class StreamProtocol(RecalldError):
    """A write stream broke its protocol, for example a gap in `sequence`."""

    reason: ClassVar[str] = "STREAM_PROTOCOL"
    code: ClassVar[str] = "FAILED_PRECONDITION"


class Retryable(RecalldError):
    """The same call may succeed later, and it is known when to try: after `retry_after` seconds.

    The class variable `retryable` is wider: it is also True where only the caller can say whether there is time left.
    """

    reason: ClassVar[str] = "SOURCE_UNAVAILABLE"
    code: ClassVar[str] = "UNAVAILABLE"
    retryable: ClassVar[bool] = True

    def __init__(
        self, message: str = "", *, details: Mapping[str, str] | None = None, retry_after: float = 1.0
    ) -> None:
        super().__init__(message, details=details)
        self.retry_after = retry_after


class Overloaded(Retryable):
    """The server is at its limit."""

    reason: ClassVar[str] = "OVERLOADED"
    code: ClassVar[str] = "RESOURCE_EXHAUSTED"


class SourceUnavailable(Retryable, ConnectionError):
    """A source or the embedder cannot be reached or is not ready. Details: `source`."""


class DeadlineExceeded(RecalldError, TimeoutError):
    """The time ran out. Details: `stage`."""

    reason: ClassVar[str] = "DEADLINE_EXCEEDED"
    code: ClassVar[str] = "DEADLINE_EXCEEDED"
    retryable: ClassVar[bool] = True


class StorageFull(RecalldError):
    """The disk of the store has no room; nothing of the call is stored. Details: `resource`, which is `disk`."""

    reason: ClassVar[str] = "STORAGE_FULL"
    code: ClassVar[str] = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str = "", *, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message, details={"resource": "disk", **(details or {})})


class StorageCorrupt(RecalldError):
    """Stored data does not read back."""

    reason: ClassVar[str] = "STORAGE_CORRUPT"
    code: ClassVar[str] = "DATA_LOSS"


class InternalFailure(RecalldError):
    """A defect of the server; its log has the cause under the request id."""


class CompositeWriteError(RecalldError, RuntimeError):
    """At least one source of a fan-out write failed.

    accepted: the sources that committed. refused: those that are read-only by policy and dropped the write.
    failed: source name to its exception. Every source is in exactly one; retry only the failed ones.
    The `__cause__` is the one exception, or a group of them all, so that a traceback shows where each came from.
    """

    def __init__(
        self,
        *,
        accepted: Sequence[str],
        failed: Mapping[str, BaseException],
        refused: Sequence[str] | None = None,
    ) -> None:
        self.accepted = list(accepted)
        self.failed = dict(failed)
        self.refused = list(refused or ())
        causes = ", ".join(f"{name} ({type(error).__name__}: {error})" for name, error in self.failed.items())
        super().__init__(f"write failed in {causes}; accepted by {self.accepted}, refused by {self.refused}")
        errors = list(self.failed.values())
        if errors:
            self.__cause__ = errors[0] if len(errors) == 1 else BaseExceptionGroup("write failed", errors)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_composite, (self.accepted, self.failed, self.refused)


def _rebuild_composite(
    accepted: list[str], failed: dict[str, BaseException], refused: list[str]
) -> CompositeWriteError:
    return CompositeWriteError(accepted=accepted, failed=failed, refused=refused)


class AllSourcesFailed(RecalldError):
    """Every source of a composite query failed.

    failed: source name to its exception. group: the same exceptions as an ExceptionGroup, also the `__cause__`.
    """

    reason: ClassVar[str] = "SOURCE_UNAVAILABLE"
    code: ClassVar[str] = "UNAVAILABLE"
    retryable: ClassVar[bool] = True

    def __init__(self, failed: Mapping[str, Exception]) -> None:
        self.failed = dict(failed)
        causes = ", ".join(f"{name} ({type(error).__name__}: {error})" for name, error in self.failed.items())
        super().__init__(f"every source failed: {causes}")
        self.group = ExceptionGroup("every source failed", list(self.failed.values()))
        self.__cause__ = self.group

    def __reduce__(self) -> tuple[object, ...]:
        return AllSourcesFailed, (self.failed,)


#: The class that stands for each `ErrorReason` (its name without prefix) on the wire; both directions use it.
BY_REASON: Mapping[str, type[RecalldError]] = {
    cls.reason: cls
    for cls in (
        InvalidField,
        InvalidFilter,
        PageTokenMismatch,
        UnknownSource,
        ScopeRequired,
        ItemNotFound,
        RevisionMismatch,
        IdempotencyKeyReused,
        MemoryWriteRefused,
        EmbeddingModelMismatch,
        StreamProtocol,
        Overloaded,
        SourceUnavailable,
        DeadlineExceeded,
        StorageCorrupt,
        StorageFull,
        Unauthenticated,
        PermissionDenied,
        InternalFailure,
    )
}
