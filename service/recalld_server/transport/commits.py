"""One batch to the sources that a request names."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from recalld.errors import AllSourcesFailed, RecalldError
from recalld.sources.composite import CompositeMemory
from recalld.store import WriteBatch, WriteOutcome
from recalld_server.transport.call import Call
from recalld_server.transport.requests import Write

_LOG = logging.getLogger(__name__)


async def commit_write(memory: CompositeMemory, write: Write, call: Call, *, lane: Hashable = None) -> WriteOutcome:
    """The split of the write. Where a single source was asked and failed, its error is raised: there is no split to
    tell."""
    asked = memory.select(write.sources)
    batch = WriteBatch(write.items, write.idempotency_key, lane)
    outcome = await asked.commit(batch, ctx=call.ctx(write.scope, write.user))
    if len(asked.sources) == 1 and outcome.failed:
        raise next(iter(outcome.failed.values()))
    for source, error in outcome.failed.items():
        # The client is told what may travel; the cause is ours.
        _LOG.warning("write_failed", extra={"source": source}, exc_info=error)
    return outcome


def only_failure(error: AllSourcesFailed) -> RecalldError:
    """The error of a search whose sources all failed: of a single source its own."""
    failures = list(error.failed.values())
    return failures[0] if len(failures) == 1 and isinstance(failures[0], RecalldError) else error
