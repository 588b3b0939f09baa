"""`recalld health`: asks a server whether it serves, for container health checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recalld.client.reachability import explain_unreachable, never_connected, proxy_options
from recalld.errors import SourceUnavailable


def check_health(target: str, timeout: float, ca: Path | None = None) -> None:
    """Returns when the server at `target` serves. Raises SourceUnavailable otherwise, also after `timeout` seconds; the
    message says what was tried and why it failed.

    ca: PEM certificates to trust; given, the call is made over TLS. A server on this machine is asked without a proxy.
    """
    with _channel(target, ca) as channel:
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # the package ships stubs without its methods
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            raise SourceUnavailable(_explain(target, timeout, error, tls=ca is not None)) from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise SourceUnavailable(f"{target} answers and is not serving")


def _channel(target: str, ca: Path | None) -> grpc.Channel:
    options = proxy_options(target)
    if ca is None:
        return grpc.insecure_channel(target, options=options)
    try:
        trusted = ca.read_bytes()
    except OSError as error:
        raise SourceUnavailable(f"cannot read {ca}: {error.strerror}") from None
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(trusted), options=options)


def _explain(target: str, timeout: float, error: Any, *, tls: bool) -> str:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return explain_unreachable(target, f"no answer within {timeout:g} seconds", tls=tls)
    if code is grpc.StatusCode.UNAVAILABLE and never_connected(details):
        return explain_unreachable(target, details, tls=tls)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{target} answers and has no health service; it may not be a recalld server"
    return f"{target} answers {code.name}: {details}"
