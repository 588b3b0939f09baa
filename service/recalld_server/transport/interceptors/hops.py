"""Cuts calls that go in circles between servers that name each other as sources."""

from __future__ import annotations

from recalld.errors import InvalidField
from recalld.limits import LIMITS
from recalld_server.transport.call import Call
from recalld_server.transport.pipeline import Proceed

#: The metadata key: the ids of the servers that the call came through, in order, with commas between.
HEADER = "x-recalld-via"


class Hops:
    """Refuses a call that came through this server before, or through too many; the others carry its id on."""

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id

    async def __call__(self, call: Call, proceed: Proceed) -> bytes | None:
        via = _came_through(call)
        if self._server_id in via:
            raise InvalidField(
                violations={HEADER: "holds this server: it came back here, so servers name each other as sources"}
            )
        if len(via) > LIMITS.max_hops:
            raise InvalidField(violations={HEADER: f"has {len(via)} servers; a call goes through {LIMITS.max_hops}"})
        call.via = (*via, self._server_id)
        return await proceed()


def _came_through(call: Call) -> tuple[str, ...]:
    for key, value in call.context.invocation_metadata() or ():
        if key == HEADER and isinstance(value, str):
            return tuple(part for part in value.split(",") if part)
    return ()
