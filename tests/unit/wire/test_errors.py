"""Exceptions to the wire and back; the bytes are those of google.rpc."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from recalld import errors
from recalld.errors import BY_REASON, RecalldError
from recalld.v1 import error_reason_pb2, memory_service_pb2
from recalld.wire import (
    STATUS_DETAILS,
    decode_write_error,
    encode_write_error,
    error_from_rpc,
    reason_name,
    reason_number,
    status_bytes,
)


def _example(cls: type[RecalldError]) -> RecalldError:
    if cls is errors.MemoryWriteRefused:
        return errors.MemoryWriteRefused(source="notes", n=3)
    if issubclass(cls, (errors.InvalidRequest, errors.ScopeRequired)):
        return cls("wrong ünïcode", violations={"items[3].content": "is empty", "k": "is 0"}, details={"source": "x"})
    if issubclass(cls, errors.Retryable):
        return cls("later", details={"source": "notes"}, retry_after=2.25)
    return cls("went wrong", details={"id": "a/b\n"})


def _failed_call(code: grpc.StatusCode, message: str, details: bytes | None = None) -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata(("x-request-id", "1"))
    if details is not None:
        trailers.add(STATUS_DETAILS, details)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details=message)


def _over_the_wire(error: RecalldError) -> RecalldError:
    return error_from_rpc(_failed_call(*status_bytes(error)), "far")


def test_every_reason_of_the_contract_has_a_class() -> None:
    names = error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name
    sent = {name.removeprefix("ERROR_REASON_") for name in names} - {"UNSPECIFIED"}
    assert set(BY_REASON) == sent
    assert all(reason_name(reason_number(reason)) == reason for reason in sent)


def test_a_reason_of_a_newer_server_is_unspecified() -> None:
    assert reason_name(4711) == "UNSPECIFIED"


@pytest.mark.parametrize("cls", BY_REASON.values(), ids=lambda cls: cls.__name__)
def test_an_exception_comes_back_as_it_was(cls: type[RecalldError]) -> None:
    error = _example(cls)
    received = _over_the_wire(error)
    assert type(received) is cls
    assert received.message == error.message
    assert received.details == error.details
    for extra in ("violations", "retry_after", "source"):
        assert getattr(received, extra, None) == getattr(error, extra, None)


@pytest.mark.parametrize("cls", BY_REASON.values(), ids=lambda cls: cls.__name__)
def test_the_details_are_google_rpc_and_say_what_the_status_says(cls: type[RecalldError]) -> None:
    error = _example(cls)
    code, message, details = status_bytes(error)
    status = status_pb2.Status.FromString(details)
    assert code.name == cls.code
    assert (status.code, status.message) == (code.value[0], message)
    infos = [detail for detail in status.details if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(infos) == 1
    info = error_details_pb2.ErrorInfo.FromString(infos[0].value)
    assert (info.reason, info.domain) == (f"ERROR_REASON_{cls.reason}", "recalld")
    assert dict(info.metadata) == error.details
    retries = [detail for detail in status.details if detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR)]
    if isinstance(error, (errors.Overloaded, errors.SourceUnavailable)):
        delay = error_details_pb2.RetryInfo.FromString(retries[0].value).retry_delay
        assert (delay.seconds, delay.nanos) == (2, 250_000_000)
    else:
        assert retries == []


def test_details_made_by_googleapis_are_read() -> None:
    status = status_pb2.Status(code=3, message="no")
    status.details.add().Pack(error_details_pb2.Help())
    violations = [error_details_pb2.BadRequest.FieldViolation(field="k", description="is 0")]
    status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="ERROR_REASON_INVALID_FIELD", domain="recalld"))
    received = error_from_rpc(_failed_call(grpc.StatusCode.INVALID_ARGUMENT, "no", status.SerializeToString()), "far")
    assert isinstance(received, errors.InvalidField)
    assert received.violations == {"k": "is 0"}


@given(st.text(max_size=400), st.dictionaries(st.text(max_size=300), st.text(max_size=300), max_size=60))
def test_trailers_stay_small_enough_for_every_client(message: str, violations: dict[str, str]) -> None:
    _, short, details = status_bytes(errors.InvalidField(message * 20, violations=violations))
    # Details travel as base64, the message percent-encoded; common clients take 8 KiB of headers in all.
    encoded = sum(1 if " " <= c <= "~" and c != "%" else 3 * len(c.encode()) for c in short)
    assert len(details) * 4 / 3 + encoded < 7400


def test_what_was_cut_is_counted() -> None:
    violations = {f"items[{index}].content": "is empty" for index in range(1000)}
    received = _over_the_wire(errors.InvalidField(violations=violations))
    assert isinstance(received, errors.InvalidField)
    *kept, last = received.violations
    assert kept == list(violations)[: len(kept)]
    assert len(kept) > 40
    assert f"{1000 - len(kept)} more" in received.violations[last]


@pytest.mark.parametrize(
    ("code", "text", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, "connection refused", errors.SourceUnavailable),
        (grpc.StatusCode.CANCELLED, "CANCELLED", errors.SourceUnavailable),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", errors.SourceUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too busy", errors.Overloaded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (9 vs. 4)", errors.InvalidField),
        (grpc.StatusCode.UNAUTHENTICATED, "", errors.Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, "", errors.PermissionDenied),
        (grpc.StatusCode.DATA_LOSS, "", errors.StorageCorrupt),
        (grpc.StatusCode.INTERNAL, "boom", errors.InternalFailure),
        (grpc.StatusCode.UNKNOWN, "boom", errors.InternalFailure),
    ],
)
@pytest.mark.parametrize("details", [None, b"\xff no status", b""])
def test_a_bare_status_is_understood_and_names_the_source(
    code: grpc.StatusCode, text: str, cls: type[RecalldError], details: bytes | None
) -> None:
    received = error_from_rpc(_failed_call(code, text, details), "far")
    assert type(received) is cls
    assert received.message.startswith("far: ")
    assert text in received.message


def test_details_of_another_domain_and_unknown_reasons_fall_back_to_the_code() -> None:
    for domain, reason in (("googleapis.com", "ERROR_REASON_INTERNAL"), ("recalld", "ERROR_REASON_FROM_THE_FUTURE")):
        status = status_pb2.Status(code=16, message="who?")
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain))
        call = _failed_call(grpc.StatusCode.UNAUTHENTICATED, "who?", status.SerializeToString())
        assert type(error_from_rpc(call, "far")) is errors.Unauthenticated


@pytest.mark.parametrize("cls", BY_REASON.values(), ids=lambda cls: cls.__name__)
def test_a_write_error_comes_back_with_class_message_and_violations(cls: type[RecalldError]) -> None:
    error = _example(cls)
    message = encode_write_error(error)
    received = decode_write_error(memory_service_pb2.WriteError.FromString(message.SerializeToString()), "notes")
    assert type(received) is cls
    assert received.message == error.message
    assert getattr(received, "violations", None) == getattr(error, "violations", None)
    assert message.retryable == cls.retryable
    assert message.code == grpc.StatusCode[cls.code].value[0]


def test_a_write_error_with_an_unknown_reason_falls_back_to_the_code() -> None:
    message = memory_service_pb2.WriteError(code=14, reason=4711, message="soon")  # type: ignore[arg-type]
    assert type(decode_write_error(message, "notes")) is errors.SourceUnavailable


def test_the_text_of_a_foreign_exception_stays_inside() -> None:
    message = encode_write_error(OSError("/secret/path"))
    assert reason_name(message.reason) == "INTERNAL"
    assert "/secret" not in message.message


def test_a_split_travels_under_the_reason_of_its_first_failure() -> None:
    split = errors.CompositeWriteError(accepted=["a"], failed={"b": errors.SourceUnavailable("b is away")})
    assert reason_name(encode_write_error(split).reason) == "SOURCE_UNAVAILABLE"
    received = _over_the_wire(split)
    assert isinstance(received, errors.SourceUnavailable)
    assert received.message == split.message


def test_a_message_that_utf_8_cannot_carry_still_travels() -> None:
    received = _over_the_wire(errors.InvalidField("bad \ud800", violations={"x\ud800": "y"}))
    assert received.message == "bad \\ud800"
