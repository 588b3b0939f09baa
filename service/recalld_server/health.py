"""`recalld health`: asks a server whether it serves, for container health checks."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recalld.errors import SourceUnavailable


def check_health(target: str, timeout: float) -> None:
    """Returns when the server at `target` serves. Raises SourceUnavailable otherwise, also after `timeout` seconds."""
    with grpc.insecure_channel(target) as channel:
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # the package ships stubs without its methods
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise SourceUnavailable(f"{target} does not answer: {error.code().name}") from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise SourceUnavailable(f"{target} is not serving")
