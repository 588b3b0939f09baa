"""Runs each call through the interceptors, on top of grpc.aio.

gRPC hands over bytes and takes bytes: decoding happens inside the interceptors, so that bytes which are no message end
in the same kind of error as any other bad request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from recalld_server.transport.beside import beside_the_loop
from recalld_server.transport.call import Call, Context, Method, Requests, Work, decode

#: The rest of a call: the interceptors further in, then the method. Gives the bytes of the answer, if there is one.
Proceed = Callable[[], Awaitable[bytes | None]]

#: What a method does.
Run = Callable[[Any, Call], Awaitable[Message | None]]

#: gRPC's record of a method; the messages are bytes.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Interceptor(Protocol):
    """One layer around every call. Awaits `proceed` at most once, and returns what it gave."""

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None: ...


def methods_of(service: ServiceDescriptor, runs: Mapping[str, tuple[Work, Run]]) -> Sequence[Method]:
    """The RPCs of a service, each with the code that runs it. Raises KeyError for one that has none."""
    return [_method(service, descriptor, *runs[descriptor.name]) for descriptor in service.methods]


def _method(service: ServiceDescriptor, descriptor: MethodDescriptor, work: Work, run: Run) -> Method:
    return Method(
        path=f"/{service.full_name}/{descriptor.name}",
        work=work,
        request=message_factory.GetMessageClass(descriptor.input_type),
        streams_in=descriptor.client_streaming,
        streams_out=descriptor.server_streaming,
        run=run,
    )


class Pipeline(grpc.GenericRpcHandler):
    """Answers the calls of some methods, each inside the interceptors, the first one outermost."""

    def __init__(
        self,
        methods: Sequence[Method],
        interceptors: Sequence[Interceptor],
        *,
        max_message_bytes: int,
        stall_seconds: float,
    ) -> None:
        self._interceptors = tuple(reversed(interceptors))
        self._max_message_bytes = max_message_bytes
        self._stall_seconds = stall_seconds
        self._by_path = {method.path: self._handler(method) for method in methods}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        return self._by_path.get(handler_call_details.method)

    def _handler(self, method: Method) -> Handler:
        # Streams are answered through `Call.send` and not by an async generator: gRPC leaves a generator of a
        # cancelled call suspended, and whatever it holds is given back only when it is collected.
        async def answer(received: Any, context: Context) -> bytes | None:
            call = Call(method, context)
            call.stall_seconds = self._stall_seconds
            if isinstance(received, bytes):
                call.request_bytes = len(received)
            proceed: Proceed = partial(self._run, call, received)
            for interceptor in self._interceptors:
                proceed = partial(interceptor, call, proceed)
            return await proceed()

        make = _MAKERS[method.streams_in, method.streams_out]
        return make(answer)

    async def _run(self, call: Call, received: Any) -> bytes | None:
        method, most = call.method, self._max_message_bytes
        request = (
            Requests(method.request, call.context, most)
            if method.streams_in
            else await beside_the_loop(len(received), lambda: decode(method.request, received, most))
        )
        response = await method.run(request, call)
        if response is None:
            return None
        return await beside_the_loop(response.ByteSize(), response.SerializeToString)


_MAKERS: Mapping[tuple[bool, bool], Callable[..., Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
