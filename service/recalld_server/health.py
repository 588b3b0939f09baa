"""`recalld health`: asks a server whether it serves, for container health checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recalld.errors import SourceUnavailable


def check_health(target: str, timeout: float, ca: Path | None = None) -> None:
    """Returns when the server at `target` serves. Raises SourceUnavailable otherwise, also after `timeout` seconds.

    ca: PEM certificates to trust; given, the call is made over TLS.
    """
    with _channel(target, ca) as channel:
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # the package ships stubs without its methods
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise SourceUnavailable(f"{target} does not answer: {error.code().name}") from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise SourceUnavailable(f"{target} is not serving")


def _channel(target: str, ca: Path | None) -> grpc.Channel:
    if ca is None:
        return grpc.insecure_channel(target)
    try:
        trusted = ca.read_bytes()
    except OSError as error:
        raise SourceUnavailable(f"cannot read {ca}: {error.strerror}") from None
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(trusted))
