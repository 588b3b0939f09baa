"""Which stored memories a call may see: as filters, which a record store applies before ranking, and of one record.

A private memory without a user is visible to the whole scope; a call without a user sees every private memory.
"""

from __future__ import annotations

from datetime import datetime

from recalld.filters import All, AnyOf, Compare, Exists, Field, Filter, Not, Op, fields_of, matches
from recalld.item import MemoryAttributes, MemoryItem

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


def visible_to(user: str | None) -> Filter | None:
    """Leaves out other users' private memories; None, which leaves out nothing, for a call without a user."""
    if not user:
        return None
    return AnyOf(
        (
            Compare(_VISIBILITY, Op.EQ, "org"),
            Not(Exists(_USER)),
            Compare(_USER, Op.EQ, user),
        )
    )


def is_visible(attributes: MemoryAttributes, user: str | None) -> bool:
    """Whether a call of this user may see a memory with these attributes."""
    condition = visible_to(user)
    return condition is None or matches(condition, MemoryItem("", "", attributes=attributes))


def is_expired(attributes: MemoryAttributes, now: datetime) -> bool:
    """Whether the time of a memory with these attributes has run out."""
    return not matches(unexpired(now), MemoryItem("", "", attributes=attributes))


def every(*conditions: Filter | None) -> Filter:
    """All of the conditions that are there. At least one must be."""
    present = tuple(condition for condition in conditions if condition is not None)
    return present[0] if len(present) == 1 else All(present)
