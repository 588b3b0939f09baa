"""Names each call, so that a client's report and the log can be brought together."""

from __future__ import annotations

import re
import uuid

from recalld_server.logs import REQUEST_ID
from recalld_server.transport.call import Call
from recalld_server.transport.pipeline import Proceed

#: The metadata key, both ways.
HEADER = "x-request-id"

# What goes into a log and back into a header must be short and plain.
_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestId:
    """Takes the caller's `x-request-id` if it is sane, else makes one, and returns it in the trailing metadata."""

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        call.request_id = _given(call) or uuid.uuid4().hex
        REQUEST_ID.set(call.request_id)
        call.context.set_trailing_metadata(((HEADER, call.request_id),))
        return await proceed()


def _given(call: Call) -> str | None:
    for key, value in call.context.invocation_metadata() or ():
        if key == HEADER and isinstance(value, str) and _SANE.fullmatch(value):
            return value
    return None
