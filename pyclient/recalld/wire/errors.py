"""Exceptions, to and from a call's status and a write's errors: one table, `recalld.errors.BY_REASON`, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import grpc
import grpc.aio

from recalld.errors import (
    BY_REASON,
    CompositeWriteError,
    DeadlineExceeded,
    InternalFailure,
    InvalidField,
    InvalidRequest,
    ItemNotFound,
    MemoryWriteRefused,
    Overloaded,
    PermissionDenied,
    RecalldError,
    Retryable,
    RevisionMismatch,
    ScopeRequired,
    SourceUnavailable,
    StorageCorrupt,
    StreamProtocol,
    Unauthenticated,
)
from recalld.v1 import error_reason_pb2, memory_service_pb2
from recalld.values import Violations
from recalld.wire.google_rpc import RichStatus, decode_status, encode_status

#: The trailer that carries a google.rpc.Status.
STATUS_DETAILS = "grpc-status-details-bin"

#: The `ErrorInfo.domain` of every recalld error.
DOMAIN = "recalld"

_PREFIX = "ERROR_REASON_"

# Trailers travel as HTTP/2 headers, and many clients take no more than 8 KiB of them. The message goes there twice
# (percent-encoded, and inside the details as base64), so both parts have a budget.
_MESSAGE_BUDGET = 1024
_VIOLATIONS_BUDGET = 2400
_DETAIL_BUDGET = 256

#: What a status without recalld's details means: something between the server and us spoke.
_BARE: dict[grpc.StatusCode, type[RecalldError]] = {
    grpc.StatusCode.UNAVAILABLE: SourceUnavailable,
    grpc.StatusCode.CANCELLED: SourceUnavailable,
    grpc.StatusCode.UNIMPLEMENTED: SourceUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidField,
    grpc.StatusCode.OUT_OF_RANGE: InvalidField,
    grpc.StatusCode.NOT_FOUND: ItemNotFound,
    grpc.StatusCode.ABORTED: RevisionMismatch,
    grpc.StatusCode.FAILED_PRECONDITION: StreamProtocol,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.DATA_LOSS: StorageCorrupt,
}


def reason_number(reason: str) -> error_reason_pb2.ErrorReason:
    """The `ErrorReason` of a name without prefix, such as `INVALID_FIELD`."""
    return cast("error_reason_pb2.ErrorReason", error_reason_pb2.ErrorReason.Value(_PREFIX + reason))


def reason_name(number: int) -> str:
    """The name without prefix; `UNSPECIFIED` for a number that this version does not know."""
    try:
        return error_reason_pb2.ErrorReason.Name(number).removeprefix(_PREFIX)  # type: ignore[arg-type]
    except ValueError:
        return "UNSPECIFIED"


def status_bytes(error: RecalldError) -> tuple[grpc.StatusCode, str, bytes]:
    """What a failed call ends with: the code, the message, and the value of the `grpc-status-details-bin` trailer.

    The message stands in both places alike. It and the violations are cut to what trailers can carry; a last violation
    then says how many were left out.
    """
    spoken_for = _representative(error)
    code = grpc.StatusCode[spoken_for.code]
    message = _clipped(error.message, _MESSAGE_BUDGET)
    status = RichStatus(
        code=code.value[0],
        message=message,
        reason=_PREFIX + spoken_for.reason,
        domain=DOMAIN,
        metadata={key: _clipped(value, _DETAIL_BUDGET) for key, value in error.details.items()},
        violations=_within_budget(_violations_of(spoken_for)),
        retry_delay=error.retry_after
        if isinstance(error, Retryable)
        else (1.0 if spoken_for.retryable and not isinstance(spoken_for, DeadlineExceeded) else None),
    )
    return code, message, encode_status(status)


def error_from_rpc(error: grpc.aio.AioRpcError, source: str, *, largest: str = "request") -> RecalldError:
    """The exception that a failed call means. `source` names the remote party where the status does not; `largest` the
    field that makes the request large, for a request that gRPC itself found too large.

    Without recalld's details the code decides, and `retry_after` of a retryable error is 0: the peer asked for none.
    """
    code, text = error.code(), error.details() or ""
    rich = _rich_status(error)
    if rich is not None and (cls := BY_REASON.get(rich.reason.removeprefix(_PREFIX))) is not None:
        return _build(
            cls, rich.message, source, details=rich.metadata, violations=rich.violations, retry_after=rich.retry_delay
        )
    message = f"{source}: {text or code.name}"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        fault = f"does not fit into a message: {text}"
        return InvalidField(f"{source}: {largest} {fault}", violations={largest: fault})
    return _build(_BARE.get(code, InternalFailure), message, source, retry_after=0.0)


def encode_write_error(error: BaseException) -> memory_service_pb2.WriteError:
    """Why a source or a batch failed. What is not a RecalldError is INTERNAL, and its text stays inside."""
    if not isinstance(error, RecalldError):
        error = InternalFailure("an internal error")
    spoken_for = _representative(error)
    return memory_service_pb2.WriteError(
        code=grpc.StatusCode[spoken_for.code].value[0],
        reason=reason_number(spoken_for.reason),
        message=replace_unencodable(error.message),
        retryable=spoken_for.retryable,
        field_violations={
            replace_unencodable(path): replace_unencodable(why) for path, why in _violations_of(spoken_for).items()
        },
    )


def decode_write_error(error: memory_service_pb2.WriteError, source: str) -> RecalldError:
    """The exception of a `WriteError`, with `source` as the one that failed."""
    cls = BY_REASON.get(reason_name(error.reason))
    if cls is None:
        code = next((code for code in grpc.StatusCode if code.value[0] == error.code), grpc.StatusCode.UNKNOWN)
        cls = _BARE.get(code, InternalFailure)
    return _build(cls, error.message, source, violations=dict(error.field_violations))


def _rich_status(error: grpc.aio.AioRpcError) -> RichStatus | None:
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_DETAILS and isinstance(value, bytes):
            status = decode_status(value)
            return status if status is not None and status.domain == DOMAIN else None
    return None


def _build(
    cls: type[RecalldError],
    message: str,
    source: str,
    *,
    details: Mapping[str, str] | None = None,
    violations: Mapping[str, str] | None = None,
    retry_after: float | None = None,
) -> RecalldError:
    details = dict(details or {})
    if issubclass(cls, MemoryWriteRefused):
        refused = MemoryWriteRefused(source=details.get("source", source), n=0)
        refused.message = message or refused.message
        return refused
    if issubclass(cls, (InvalidRequest, ScopeRequired)):
        return cls(message, violations=violations, details=details)
    if issubclass(cls, Retryable):
        if cls is SourceUnavailable:
            details.setdefault("source", source)
        # Without a RetryInfo the class knows how long to wait.
        return (
            cls(message, details=details)
            if retry_after is None
            else cls(message, details=details, retry_after=retry_after)
        )
    return cls(message, details=details)


def _representative(error: RecalldError) -> RecalldError:
    """The error whose reason and code stand for `error` on the wire: a split has none of its own, so the first member
    that failed speaks for it."""
    if isinstance(error, CompositeWriteError):
        for member in error.failed.values():
            if isinstance(member, RecalldError):
                return _representative(member)
    return error


def _violations_of(error: RecalldError) -> Violations:
    return error.violations if isinstance(error, (InvalidRequest, ScopeRequired)) else {}


def replace_unencodable(text: str) -> str:
    """The text with what UTF-8 cannot carry (lone surrogates, as in paths) written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _clipped(text: str, budget: int) -> str:
    """`text` cut so that its percent-encoded form keeps the budget of bytes."""
    text = replace_unencodable(text)
    used = 0
    for index, character in enumerate(text):
        used += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if used > budget:
            return text[:index] + "..."
    return text


def _within_budget(violations: Violations) -> Violations:
    kept: Violations = {}
    used = 0
    for path, why in violations.items():
        path, why = _clipped(path, _DETAIL_BUDGET), _clipped(why, _DETAIL_BUDGET)
        used += len(path.encode()) + len(why.encode()) + 8
        if used > _VIOLATIONS_BUDGET:
            kept["..."] = f"and {len(violations) - len(kept)} more violations"
            break
        kept[path] = why
    return kept
