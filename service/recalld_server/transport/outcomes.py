"""What became of a write, on the wire."""

from __future__ import annotations

from recalld.store import WriteOutcome
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire import encode_write_error


def encode_outcome(outcome: WriteOutcome) -> pb.WriteOutcome:
    """The split of a composite write."""
    return pb.WriteOutcome(
        accepted=outcome.accepted,
        refused=outcome.refused,
        failed=[
            pb.SourceFailure(source=name, error=encode_write_error(error)) for name, error in outcome.failed.items()
        ],
        ids=outcome.ids,
        commit_token=outcome.commit_token,
        replayed=outcome.replayed,
    )
