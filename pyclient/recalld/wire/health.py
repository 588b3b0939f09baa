"""The two messages of a grpc.health.v1 check, without grpcio-health-checking.

They live in a descriptor pool of their own: the default pool belongs to the process, and that package brings the same
file there. Field numbers are those of grpc/health/v1/health.proto.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: The path of the call.
HEALTH_CHECK = "/grpc.health.v1.Health/Check"


def encode_health_request(service: str) -> bytes:
    """Asks for one service, or with empty text for the server."""
    return _REQUEST(service=service).SerializeToString()


def decode_health_response(data: bytes) -> int:
    """The number of the serving status."""
    return _RESPONSE.FromString(data).status


def _make_messages() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="recalld/private/health.proto", package="recalld.private.health", syntax="proto3"
    )
    field = descriptor_pb2.FieldDescriptorProto
    for name, member, kind in (
        ("Request", "service", field.TYPE_STRING),
        ("Response", "status", field.TYPE_INT32),  # an enum and an int32 are written alike
    ):
        file.message_type.add(name=name).field.add(name=member, number=1, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"recalld.private.health.{name}") for name in ("Request", "Response"))
    request, response = (message_factory.GetMessageClass(each) for each in found)
    return request, response


_REQUEST, _RESPONSE = _make_messages()
