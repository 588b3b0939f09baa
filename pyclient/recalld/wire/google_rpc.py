"""The four google.rpc messages that a failed call carries, without googleapis-common-protos.

They live in a descriptor pool of their own: the default pool belongs to the process, and another package may bring
the same files there. Field numbers are those of google/rpc/{status,error_details}.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.message import DecodeError

_TYPE_URL = "type.googleapis.com/"
_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_FILE = "recalld/private/google_rpc.proto"


@dataclass(frozen=True, slots=True)
class RichStatus:
    """A google.rpc.Status with the details that recalld uses. retry_delay: seconds, None without a RetryInfo."""

    code: int
    message: str
    reason: str = ""
    domain: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    violations: Mapping[str, str] = field(default_factory=dict[str, str])
    retry_delay: float | None = None


def encode_status(status: RichStatus) -> bytes:
    """The bytes of the `grpc-status-details-bin` trailer."""
    message: Any = _STATUS(code=status.code, message=status.message)
    _pack(message, _ERROR_INFO(reason=status.reason, domain=status.domain, metadata=dict(status.metadata)))
    if status.violations:
        bad_request: Any = _BAD_REQUEST()
        for path, description in status.violations.items():
            bad_request.field_violations.add(field=path, description=description)
        _pack(message, bad_request)
    if status.retry_delay is not None:
        retry: Any = _RETRY_INFO()
        nanos = round(status.retry_delay * 1e9)
        retry.retry_delay.seconds, retry.retry_delay.nanos = divmod(nanos, 1_000_000_000)
        _pack(message, retry)
    return message.SerializeToString()


def decode_status(data: bytes) -> RichStatus | None:
    """The status in a trailer; None when the bytes are none. Unknown details are left out."""
    try:
        message: Any = _STATUS.FromString(data)
        details = {each.type_url.rpartition("/")[2]: each.value for each in message.details}
        info: Any = _ERROR_INFO.FromString(details.get("google.rpc.ErrorInfo", b""))
        bad_request: Any = _BAD_REQUEST.FromString(details.get("google.rpc.BadRequest", b""))
        retry: Any = _RETRY_INFO.FromString(details.get("google.rpc.RetryInfo", b""))
    except DecodeError:
        return None
    return RichStatus(
        code=message.code,
        message=message.message,
        reason=info.reason,
        domain=info.domain,
        metadata=dict(info.metadata),
        violations={each.field: each.description for each in bad_request.field_violations},
        retry_delay=retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        if retry.HasField("retry_delay")
        else None,
    )


def _pack(status: Any, detail: Any) -> None:
    status.details.add(type_url=_TYPE_URL + detail.DESCRIPTOR.full_name, value=detail.SerializeToString())


def _message(file: descriptor_pb2.FileDescriptorProto, name: str) -> descriptor_pb2.DescriptorProto:
    return file.message_type.add(name=name)


def _add(
    message: descriptor_pb2.DescriptorProto, number: int, name: str, type_name: str = "", *, repeated: bool = False
) -> None:
    """Adds a string field, or one of the message type `type_name`."""
    kind = descriptor_pb2.FieldDescriptorProto
    message.field.add(
        name=name,
        number=number,
        type=_MESSAGE if type_name else _STRING,
        type_name=type_name or None,
        label=kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL,
    )


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=_FILE,
        package="google.rpc",
        syntax="proto3",
        dependency=[any_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name],
    )
    status = _message(file, "Status")
    status.field.add(
        name="code",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    _add(status, 2, "message")
    _add(status, 3, "details", ".google.protobuf.Any", repeated=True)

    info = _message(file, "ErrorInfo")
    _add(info, 1, "reason")
    _add(info, 2, "domain")
    _add(info, 3, "metadata", ".google.rpc.ErrorInfo.MetadataEntry", repeated=True)
    entry = info.nested_type.add(name="MetadataEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    _add(entry, 1, "key")
    _add(entry, 2, "value")

    violation = _message(file, "BadRequest").nested_type.add(name="FieldViolation")
    _add(violation, 1, "field")
    _add(violation, 2, "description")
    _add(file.message_type[-1], 1, "field_violations", ".google.rpc.BadRequest.FieldViolation", repeated=True)

    _add(_message(file, "RetryInfo"), 1, "retry_delay", ".google.protobuf.Duration")
    return file


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR):
        pool.AddSerializedFile(known.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


_POOL = _pool()


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"google.rpc.{name}"))


_STATUS = _class("Status")
_ERROR_INFO = _class("ErrorInfo")
_BAD_REQUEST = _class("BadRequest")
_RETRY_INFO = _class("RetryInfo")
