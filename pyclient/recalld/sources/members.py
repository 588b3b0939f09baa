"""What composites share: asking one member, and telling members apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recalld.errors import AllSourcesFailed, InvalidField, SourceUnavailable
from recalld.item import MemoryItem
from recalld.scope import CtxLike, observe
from recalld.source import MemorySource


def check_distinct(names: Iterable[str]) -> None:
    """Raises InvalidField (a ValueError) when two members have one name: a write split could not tell them apart."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidField(f"two sources are named {name!r}; give one of them another name")
        seen.add(name)


async def ask(
    source: MemorySource, query: str, *, k: int, ctx: CtxLike, where: dict[str, Any] | None
) -> list[MemoryItem] | Exception:
    """What the member answers, or the error that it ended in; the caller must `report` that.

    Cancellation of the call goes through. A member that was cancelled by somebody else has failed.
    """
    try:
        return await source.query(query, k=k, ctx=ctx, where=where)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failure = SourceUnavailable(f"source {source.name!r} was cancelled", details={"source": source.name})
        failure.__cause__ = cancelled
        return failure
    except Exception as error:  # noqa: BLE001 - whatever a member raises is its failure
        return error


def report(source: MemorySource, error: Exception, ctx: CtxLike) -> None:
    """Tell the context's observer of a failure that the composite survives."""
    observe(ctx, "memory.source_failed", source=source.name, error=error)


def all_failed(sources: Sequence[MemorySource], failures: Mapping[int, Exception]) -> AllSourcesFailed:
    """The error that names every member; of members with one name the later ones get their place added."""
    failed: dict[str, Exception] = {}
    for place, error in failures.items():
        name = sources[place].name
        failed[name if name not in failed else f"{name}#{place + 1}"] = error
    return AllSourcesFailed(failed)
