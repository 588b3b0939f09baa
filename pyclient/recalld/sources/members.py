"""What composites share: telling members apart, asking them, and naming what became of those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from recalld.degradations import as_recalld_error
from recalld.errors import (
    AllSourcesFailed,
    DeadlineExceeded,
    InvalidField,
    InvalidRequest,
    RecalldError,
    ScopeRequired,
)
from recalld.scope import CtxLike, observe, remaining_of
from recalld.store import MemoryStore

Answer = TypeVar("Answer")

#: The share of the caller's time that a member may take, so that what did answer can still be merged and sent.
_MEMBER_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a composite. label: its name, with its place where an earlier member has the same name."""

    label: str
    store: MemoryStore


def label_members(stores: Sequence[MemoryStore]) -> list[Member]:
    """The members with labels that tell them apart."""
    labels: set[str] = set()
    members: list[Member] = []
    for place, store in enumerate(stores, start=1):
        label = store.name if store.name not in labels else f"{store.name}#{place}"
        labels.add(label)
        members.append(Member(label, store))
    return members


def check_distinct(names: Iterable[str]) -> None:
    """Raises InvalidField (a ValueError) when two members have one name: a write split could not tell them apart."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidField(f"two sources are named {name!r}; give one of them another name")
        seen.add(name)


def give_share(ctx: CtxLike) -> CtxLike:
    """The context for a member: its deadline leaves the composite some time. Without a deadline, or where a context of
    the caller's own is no dataclass, it is the same object."""
    left = remaining_of(ctx)
    if left is None or not is_dataclass(ctx) or "deadline" not in {field.name for field in fields(ctx)}:
        return ctx
    deadline: float = getattr(ctx, "deadline")  # noqa: B009 - CtxLike has none
    shared: Any = replace(ctx, deadline=deadline - left * (1 - _MEMBER_SHARE))  # type: ignore[type-var]
    return shared


async def ask_member(
    member: Member, call: Callable[[MemoryStore, CtxLike], Awaitable[Answer]], ctx: CtxLike
) -> Answer | Exception:
    """What the member answers to a read, or the error that it ended in; the caller must `report` that.

    A member that takes more than its share of the time is DeadlineExceeded. Cancellation of the call goes through. A
    member that was cancelled by somebody else has failed.
    """
    left = remaining_of(ctx)
    bound = asyncio.timeout(None if left is None else left * _MEMBER_SHARE)
    try:
        async with bound:
            return await call(member.store, give_share(ctx))
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return as_recalld_error(member.label, cancelled)
    except Exception as error:  # noqa: BLE001 - whatever a member raises is its failure
        if bound.expired() and type(error) is TimeoutError:
            return DeadlineExceeded(f"source {member.label!r} did not answer in time", details={"stage": member.label})
        return error


async def ask_members(
    members: Sequence[Member], call: Callable[[MemoryStore, CtxLike], Awaitable[Answer]], ctx: CtxLike
) -> tuple[dict[str, Answer], dict[str, Exception]]:
    """What each member answers, and the errors of those that failed, by label and in order; all asked at once.

    The context's observer is told of each failure. Raises the error of a member that calls the request wrong. When the
    call is cancelled, so is every member.
    """
    # return_exceptions: gather then waits for every member, also when it is cancelled itself.
    outcomes = await asyncio.gather(*(ask_member(member, call, ctx) for member in members), return_exceptions=True)
    answers: dict[str, Answer] = {}
    failures: dict[str, Exception] = {}
    for member, outcome in zip(members, outcomes, strict=True):
        if isinstance(outcome, Exception):
            failures[member.label] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answers[member.label] = outcome
    wrong = find_wrong_request(failures.values())
    if wrong is not None:
        raise wrong
    for label, error in failures.items():
        report(label, error, ctx)
    return answers, failures


def report(label: str, error: Exception, ctx: CtxLike) -> None:
    """Tells the context's observer of a failure that the composite survives."""
    observe(ctx, "memory.source_failed", source=label, error=error)


def find_wrong_request(errors: Iterable[BaseException]) -> RecalldError | None:
    """The first error that says that the request itself is wrong. To hide it behind the others' answers would help
    nobody."""
    return next((error for error in errors if isinstance(error, (InvalidRequest, ScopeRequired))), None)


def name_failures(failures: Mapping[str, Exception]) -> AllSourcesFailed:
    """The error of a search that every member failed, each with an error that may travel."""
    return AllSourcesFailed({label: as_recalld_error(label, error) for label, error in failures.items()})
