"""The uniform shape of a memory, in every source and on either side of the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from typing import Any

from recalld.errors import InvalidField, WrongType
from recalld.frozen import freeze


class Visibility(IntEnum):
    """Who may read a memory inside its scope. Values equal the wire's."""

    UNSPECIFIED = 0
    PRIVATE = 1
    ORG = 2


class MemoryStatus(IntEnum):
    """Where a memory is in its life. Values equal the wire's."""

    UNSPECIFIED = 0
    ACTIVE = 1
    SUPERSEDED = 2
    ARCHIVED = 3
    DELETED = 4


@dataclass(frozen=True, kw_only=True)
class MemoryAttributes:
    """The fields that recalld itself understands; `item.proto` documents each.

    Times are aware datetimes, kept to the microsecond. Fields that the proto marks output only are
    ignored on a write. `importance` and `confidence` are in 0..1; None means the server's default.
    """

    memory_type: str = ""
    namespace: str = ""
    user_id: str = ""
    session_id: str = ""
    agent_id: str = ""
    run_id: str = ""
    visibility: Visibility = Visibility.UNSPECIFIED
    status: MemoryStatus = MemoryStatus.UNSPECIFIED
    importance: float | None = None
    confidence: float | None = None
    create_time: datetime | None = None
    update_time: datetime | None = None
    event_time: datetime | None = None
    last_observed_time: datetime | None = None
    last_access_time: datetime | None = None
    expire_time: datetime | None = None
    access_count: int = 0
    observation_count: int = 0
    supersedes_id: str = ""
    superseded_by_id: str = ""
    revision: int = 0
    origin: str = ""
    embedding_truncated: bool = False


#: The attributes that a caller may set; the others are output only and ignored on a write.
WRITABLE_ATTRIBUTES = (
    "memory_type",
    "namespace",
    "user_id",
    "session_id",
    "agent_id",
    "run_id",
    "visibility",
    "importance",
    "confidence",
    "event_time",
    "expire_time",
    "supersedes_id",
)


def _no_metadata() -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class MemoryItem:
    """One memory as every source returns and accepts it.

    content: the text that an agent reads.
    source: the name of the source that produced it.
    score: the source's relevance, higher is better; None when the source does not rank.
    metadata: the caller's fields; frozen at construction, all the way down, and still a dict.
    id: the key of the record within its source; None (or empty, which counts as unset) when there is none.
    attributes: the fields that recalld understands; None when the source has none.

    `id` and `attributes` are keyword-only for good: a field put before `score` would shift every positional
    construction by one without an error.
    """

    content: str
    source: str
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=_no_metadata)
    _: KW_ONLY
    id: str | None = None
    attributes: MemoryAttributes | None = None

    def __post_init__(self) -> None:
        metadata: Any = self.metadata
        if not isinstance(metadata, Mapping):
            raise WrongType(f"metadata must be a dict, not {type(metadata).__name__}")
        try:
            object.__setattr__(self, "metadata", freeze(metadata))
        except RecursionError:
            raise InvalidField("metadata nests too deep, or contains itself") from None
        if self.id == "":
            object.__setattr__(self, "id", None)

    def __hash__(self) -> int:
        """Equal items hash alike; metadata is left out, since it may hold what does not hash."""
        return hash((self.content, self.source, self.score, self.id))


def writable_attributes(given: MemoryAttributes | None) -> MemoryAttributes:
    """What a writer sets of the attributes; the rest unset. Nobody saying otherwise, a memory is private."""
    given = given or MemoryAttributes()
    taken = {name: getattr(given, name) for name in WRITABLE_ATTRIBUTES}
    taken["visibility"] = given.visibility or Visibility.PRIVATE
    return MemoryAttributes(**taken)


#: The attributes that a context stands in for.
_OWNERS = ("user_id", "session_id", "agent_id", "run_id")


def assign_owner(items: Iterable[MemoryItem], ctx: Any) -> Iterator[MemoryItem]:
    """The items as a call of this context writes them: where they name no user, session, agent or run, they get the
    context's.

    Raises WrongType for a text, which is an iterable of its characters, and for a single item. Non-items pass here;
    validation reports their index.
    """
    whole: Any = items
    if isinstance(whole, (str, bytes, MemoryItem)):
        raise WrongType(f"items must be a list or another iterable of MemoryItem, not {type(whole).__name__}")
    own = {name: value for name in _OWNERS if (value := getattr(ctx, name, None))}
    for item in items:
        given: Any = item
        if not own or not isinstance(given, MemoryItem):
            yield item
            continue
        attributes = given.attributes or MemoryAttributes()
        missing = {name: value for name, value in own.items() if not getattr(attributes, name)}
        yield replace(given, attributes=replace(attributes, **missing)) if missing else given
