"""Turns exceptions into statuses."""

from __future__ import annotations

import logging
from typing import NoReturn

import grpc.aio

from recalld.errors import InternalFailure, RecalldError
from recalld.wire import STATUS_DETAILS, status_bytes
from recalld_server.transport.call import Call
from recalld_server.transport.interceptors.request_id import HEADER
from recalld_server.transport.pipeline import Proceed

_LOG = logging.getLogger(__name__)

#: The codes whose cause is worth a traceback, since the client is told nothing of the inside.
_TRACED = frozenset({"INTERNAL", "DATA_LOSS", "UNAVAILABLE"})


class ErrorMapping:
    """Ends a failed call with the status and details of its RecalldError.

    Any other exception is a defect: the client learns no more than the request id, under which the log has the
    traceback. Cancellation passes, and so do gRPC's own exceptions, which say that the call is over already.
    """

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        try:
            return await proceed()
        except grpc.aio.BaseError:
            raise
        except RecalldError as error:
            if error.code in _TRACED and error.__cause__ is not None:
                _LOG.warning("failure", exc_info=error)
            await _end(call, error)
        except Exception:  # noqa: BLE001 - the text of an unknown exception must not reach a client
            _LOG.exception("defect")
            await _end(call, InternalFailure(f"an internal error; the log has it as request {call.request_id}"))


async def _end(call: Call, error: RecalldError) -> NoReturn:
    call.failure = error
    if error.reason == InternalFailure.reason:
        error.details["requestId"] = call.request_id
    code, message, details = status_bytes(error)
    await call.context.abort(code, message, ((HEADER, call.request_id), (STATUS_DETAILS, details)))
