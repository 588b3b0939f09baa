"""The requests of an update and of a delete: what a caller says in Python, as the wire says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from recalld.checks import check_delete, check_update
from recalld.client.caller import check_names, raise_violations
from recalld.errors import InvalidField, WrongType
from recalld.filters import Field
from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem
from recalld.scope import Ctx
from recalld.store import UNSET, AttributeChanges, Unset, Where
from recalld.v1 import memory_service_pb2 as pb
from recalld.values import Violations, name_type
from recalld.where import parse_where
from recalld.wire import checked_text, encode_filter, encode_write

_UNSET_ATTRIBUTES = MemoryAttributes()


def encode_update(
    id: str,
    ctx: Ctx,
    *,
    content: str | Literal[Unset.UNSET],
    metadata: Mapping[str, Any] | Literal[Unset.UNSET],
    metadata_changes: Mapping[str, Any] | None,
    attributes: AttributeChanges | Literal[Unset.UNSET],
    if_revision: int | None,
) -> pb.UpdateRequest:
    """The item, the mask and the revision of the request. Raises for what is wrong with the call."""
    by_key = _check_mapping(metadata_changes or {}, "metadata_changes")
    changed: Mapping[str, Any] = {} if attributes is UNSET else _read_attributes(attributes)
    check_update(
        id,
        ctx,
        content=None if content is UNSET else content,
        metadata=None if metadata is UNSET else metadata,
        metadata_changes=by_key,
        attributes=changed,
        if_revision=if_revision,
    )
    if if_revision == 0:  # on the wire this would mean whatever the revision
        raise InvalidField(violations={"if_revision": "is 0, and revisions begin at 1"})
    mask = ["content"] * (content is not UNSET) + [f"attributes.{name}" for name in changed]
    kept = {key: value for key, value in by_key.items() if value is not UNSET}
    if metadata is UNSET:
        mask += [str(Field("metadata", (key,))) for key in by_key]
    else:
        mask.append("metadata")
        kept = {key: value for key, value in metadata.items() if key not in by_key} | kept
    item = MemoryItem(
        "" if content is UNSET else content, "", metadata=kept, id=id, attributes=MemoryAttributes(**dict(changed))
    )
    violations: Violations = {}
    request = pb.UpdateRequest(item=encode_write(item, "item", violations), if_revision=if_revision or 0)
    raise_violations(violations)
    request.update_mask.paths.extend(mask)
    return request


def _check_mapping(given: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise WrongType(violations={path: f"must be a dict, not {name_type(given)}"})
    mapping = cast("Mapping[Any, Any]", given)
    violations: Violations = {}
    for key in mapping:
        checked_text(key, f"{path}.{key}"[:100], violations)
    raise_violations(violations)
    return mapping


def _read_attributes(given: AttributeChanges) -> Mapping[str, Any]:
    """The attributes to change by name; one to clear has its unset value."""
    if isinstance(given, MemoryAttributes):
        values = {name: getattr(given, name) for name in WRITABLE_ATTRIBUTES}
        return {name: value for name, value in values.items() if value != getattr(_UNSET_ATTRIBUTES, name)}
    return {
        name: getattr(_UNSET_ATTRIBUTES, name, None) if value is None else value
        for name, value in _check_mapping(given, "attributes").items()
    }


def encode_delete(ids: Sequence[str] | None, where: Where, ctx: Ctx) -> pb.DeleteRequest:
    """The selection of the request. Raises for what is wrong with the call."""
    named = None if ids is None else check_names(ids, "ids")
    check_delete(named, where, ctx)
    condition = parse_where(where)
    return pb.DeleteRequest(ids=named or (), where=None if condition is None else encode_filter(condition))
