"""Parts that did not contribute to an answer: made of failures and of what was observed, and told to observers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from recalld.errors import InternalFailure, RecalldError, SourceUnavailable
from recalld.scope import CtxLike, observe
from recalld.store import Degradation, RetrievalMode

Event = tuple[str, Mapping[str, Any]]
"""What an observer is told: a name and fields."""

#: How many of the files that a source left out are named.
_NAMED_FILES = 3


def as_recalld_error(name: str, error: BaseException) -> RecalldError:
    """The failure of a source as an error that may travel. One that is not recalld's own may tell of the inside: it is
    only the cause."""
    if isinstance(error, RecalldError):
        return error
    if isinstance(error, asyncio.CancelledError):
        failure: RecalldError = SourceUnavailable(f"source {name!r} was cancelled", details={"source": name})
    else:
        failure = InternalFailure(f"source {name!r} failed", details={"source": name})
    failure.__cause__ = error
    return failure


def degradation_of(name: str, error: BaseException) -> Degradation:
    """The degradation that the failure of a source is."""
    known = as_recalld_error(name, error)
    return Degradation(name, known.reason, str(known))


def read_degradations(heard: Sequence[Event]) -> list[Degradation]:
    """What observed events say of the answer that was being made meanwhile."""
    found: list[Degradation] = []
    for event, fields in heard:
        if event == "memory.source_degraded":
            found.append(Degradation(fields["component"], fields["reason"], fields["message"]))
        elif event == "memory.source_failed":
            found.append(degradation_of(fields["source"], fields["error"]))
    return found


def tell_missing_mode(name: str, mode: RetrievalMode, ctx: CtxLike) -> Degradation:
    """Tells the observer that a source cannot search in this mode."""
    leg, means = ("semantic", "by meaning") if mode == RetrievalMode.SEMANTIC else ("lexical", "by words")
    message = f"source {name!r} does not search {means}"
    return _tell(name, Degradation(f"{name}/{leg}", SourceUnavailable.reason, message), ctx)


def tell_left_out(name: str, heard: Sequence[Event], ctx: CtxLike) -> Degradation | None:
    """Tells the observer how many files a source left out, in one degradation; None when it left out none."""
    left_out = [fields for event, fields in heard if event == "memory.file_skipped"]
    if not left_out:
        return None
    first: Any = left_out[0]["error"]
    reason = first.reason if isinstance(first, RecalldError) else InternalFailure.reason
    causes = [
        str(fields["error"]) if isinstance(fields["error"], RecalldError) else f"path {fields['path']!r} cannot be read"
        for fields in left_out[:_NAMED_FILES]
    ]
    more = ", ..." if len(left_out) > _NAMED_FILES else ""
    return _tell(name, Degradation(name, reason, f"files left out: {len(left_out)} ({', '.join(causes)}{more})"), ctx)


def _tell(name: str, degradation: Degradation, ctx: CtxLike) -> Degradation:
    observe(
        ctx,
        "memory.source_degraded",
        source=name,
        component=degradation.component,
        reason=degradation.reason,
        message=degradation.message,
    )
    return degradation
