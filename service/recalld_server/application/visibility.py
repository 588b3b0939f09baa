"""Which stored items a read may see, written as filters so that every source applies them before ranking."""

from __future__ import annotations

from datetime import datetime

from recalld.filters import All, AnyOf, Compare, Exists, Field, Filter, Not, Op, fields_of

#: Every stored item, whatever its status or expiry.
ANYTHING: Filter = Exists(Field("id"))

_STATUS = Field("status")
_EXPIRY = Field("expire_time")
_USER = Field("user_id")
_VISIBILITY = Field("visibility")


def unexpired(now: datetime) -> Filter:
    """Items whose time has not run out at `now`; an item expires at its `expire_time`, not after it."""
    return Not(Compare(_EXPIRY, Op.LE, now))


def active_unless_named(where: Filter | None) -> Filter | None:
    """Only active items, unless the caller's filter says which status it wants."""
    if where is not None and any(field == _STATUS for field in fields_of(where)):
        return None
    return Compare(_STATUS, Op.EQ, "active")


def readable_by(user_id: str) -> Filter | None:
    """Leaves out private memories of other users; a private memory without a user is everyone's in its scope."""
    if not user_id:
        return None
    return AnyOf(
        (
            Compare(_VISIBILITY, Op.EQ, "org"),
            Not(Exists(_USER)),
            Compare(_USER, Op.EQ, user_id),
        )
    )


def every(*conditions: Filter | None) -> Filter:
    """All of the conditions that are there. At least one must be."""
    present = tuple(condition for condition in conditions if condition is not None)
    return present[0] if len(present) == 1 else All(present)
