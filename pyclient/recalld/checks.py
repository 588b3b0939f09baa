"""What a wrong call is: checks on domain objects against the limits, with the field paths of the contract.

Every door uses them, so that a call in this process is refused for what a call over the wire is refused for. A check
finds everything that is wrong before it says so: it raises ScopeRequired, else InvalidField, else InvalidFilter, with
all violations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from recalld.errors import InvalidField, InvalidFilter, RecalldError, ScopeRequired
from recalld.filter_checks import check_filter
from recalld.filters import ATTRIBUTES, Kind
from recalld.item import WRITABLE_ATTRIBUTES, MemoryAttributes, MemoryItem, Visibility
from recalld.limits import LIMITS, Limits
from recalld.scope import Ctx, ScopeLike
from recalld.store import UNSET, RankFusion, RetrievalMode, SearchQuery, Where
from recalld.values import ValueChecks, Violations, find_text_fault, find_time_fault, name_type
from recalld.where import parse_where
from recalld.wire_size import measure_metadata

#: A call with this many violations is not looked at any further, and no more are told.
ENOUGH = 100

#: The strings that a caller may set, but for the one that is the id of an item.
STRING_ATTRIBUTES = tuple(
    name
    for name in WRITABLE_ATTRIBUTES
    if ATTRIBUTES[name] is Kind.STRING and name not in ("visibility", "supersedes_id")
)


class Checks:
    """The violations of one call, collected."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.fields: Violations = {}
        self.filters: Violations = {}
        self._scope: Violations = {}

    def fail(self, path: str, why: str) -> None:
        """Records a violation of a field."""
        self.fields[path] = why

    def raise_any(self) -> None:
        """Raises one error with every violation."""
        found = {**self._scope, **self.fields, **self.filters}
        if not found:
            return
        told = dict(list(found.items())[:ENOUGH])
        if len(found) > ENOUGH:
            told["..."] = f"and {len(found) - ENOUGH} more violations"
        raise self._error(told)

    def _error(self, told: Violations) -> RecalldError:
        if self._scope:
            return ScopeRequired("; ".join(f"{path}: {why}" for path, why in told.items()), violations=told)
        return InvalidField(violations=told) if self.fields else InvalidFilter(violations=told)

    def scope(self, scope: ScopeLike) -> None:
        """The tenant; both parts are required."""
        for name in ("org_id", "domain_id"):
            value: Any = getattr(scope, name)
            path = f"scope.{name}"
            if not value:
                self._scope[path] = "is required"
            elif not isinstance(value, str):
                self.fail(path, f"must be a string, not {name_type(value)}")
            elif len(value) > self.limits.max_scope_characters:
                self.fail(path, f"has {len(value)} characters, more than {self.limits.max_scope_characters}")
            elif any(character < " " or character == "\x7f" for character in value):
                self.fail(path, "holds a control character")
            elif fault := find_text_fault(value):
                self.fail(path, fault)

    def ctx(self, ctx: Ctx) -> None:
        """The tenant, and the user on whose behalf the call is made."""
        self.scope(ctx.scope)
        self.text(ctx.user_id or "", "on_behalf_of_user_id", self.limits.max_attribute_bytes)

    def text(self, value: Any, path: str, most: int) -> None:
        """A string of at most so many UTF-8 bytes."""
        if not isinstance(value, str):
            self.fail(path, f"must be a string, not {name_type(value)}")
        elif fault := find_text_fault(value):
            self.fail(path, fault)
        elif len(value) * 4 > most and (size := len(value.encode())) > most:
            self.fail(path, f"has {size} bytes, more than {most}")

    def number(self, value: Any, path: str, most: int, least: int = 0) -> None:
        """An integer in this range."""
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(path, f"must be an integer, not {name_type(value)}")
        elif not least <= value <= most:
            self.fail(path, f"is {value}, not in {least} to {most}")

    def weight(self, value: Any, path: str) -> None:
        """A weight of a ranking."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(path, f"must be a number, not {name_type(value)}")
        elif not (math.isfinite(value) and 0 <= value <= self.limits.max_weight):
            self.fail(path, f"is {value}, not in 0 to {self.limits.max_weight:g}")

    def fusion(self, fusion: RankFusion) -> None:
        """How a caller wants two rankings fused; None leaves a part to the store."""
        if fusion.k is not None:
            self.number(fusion.k, "fusion.k", self.limits.max_rank_constant)
        for name in ("lexical_weight", "semantic_weight"):
            weight: float | None = getattr(fusion, name)
            if weight is not None:
                self.weight(weight, f"fusion.{name}")
        if fusion.lexical_weight == fusion.semantic_weight == 0:
            self.fail("fusion", "has no weight above 0")

    def names(self, values: Sequence[str], path: str) -> None:
        """Names of sources, each once."""
        seen: dict[str, int] = {}
        for index, name in enumerate(values):
            if name in seen:
                self.fail(f"{path}[{index}]", f"repeats {path}[{seen[name]}]")
            seen.setdefault(name, index)

    def ids(self, values: Sequence[str], path: str = "ids") -> None:
        """Ids to look up, 1 to `max_ids`; they may repeat."""
        whole: Any = values
        if isinstance(whole, (str, bytes)):
            self.fail(path, f"must be a list of ids, not {name_type(whole)}")
            return
        if not 1 <= len(values) <= self.limits.max_ids:
            self.fail(path, f"must hold 1 to {self.limits.max_ids} ids, not {len(values)}")
        for index, value in enumerate(values[: self.limits.max_ids]):
            if value == "":
                self.fail(f"{path}[{index}]", "is empty")
            self.text(value, f"{path}[{index}]", self.limits.max_id_bytes)

    def where(self, where: Where, path: str = "where") -> None:
        """A condition. Raises WrongType for what is none at all."""
        try:
            condition = parse_where(where)
        except InvalidFilter as error:
            self.filters.update(error.violations or {path: error.message})
            return
        if condition is not None:
            check_filter(condition, path, self.filters)

    def batch(self, items: Sequence[Any], check_item: Callable[[Any, str], None], path: str = "items") -> None:
        """The items of a write, no id twice. check_item: checks one, given it and its path."""
        if not 1 <= len(items) <= self.limits.max_batch_items:
            self.fail(path, f"must hold 1 to {self.limits.max_batch_items} items, not {len(items)}")
        places: dict[str, str] = {}
        for index, item in enumerate(items[: self.limits.max_batch_items]):
            if len(self.fields) > ENOUGH:
                break
            place = f"{path}[{index}]"
            id, content = getattr(item, "id", None), getattr(item, "content", None)
            if id and places.setdefault(id, place) != place:
                self.fail(f"{place}.id", f"repeats {places[id]}.id")
            if content == "":
                self.fail(f"{place}.content", "is empty")
            check_item(item, place)

    def item(self, item: MemoryItem, path: str) -> None:
        """One item as a caller writes it. Its content may be empty."""
        limits = self.limits
        if item.id is not None:
            self.text(item.id, f"{path}.id", limits.max_id_bytes)
        self.text(item.content, f"{path}.content", limits.max_content_bytes)
        if item.attributes is not None:
            self.attributes(vars(item.attributes), f"{path}.attributes")
        self.metadata(item.metadata, f"{path}.metadata")

    def metadata(self, metadata: Any, path: str) -> None:
        """Metadata: its values, how deep they nest, and their size on the wire."""
        if not isinstance(metadata, Mapping):
            self.fail(path, f"must be a dict, not {name_type(metadata)}")
            return
        values = cast("Mapping[str, Any]", metadata)
        faults: Violations = {}
        ValueChecks(faults).fields(values, path)
        self.fields.update(faults)
        if not faults:
            self.metadata_size(measure_metadata(values), path)

    def metadata_size(self, size: int, path: str) -> bool:
        """Whether metadata of so many bytes on the wire is within its limit."""
        if size <= self.limits.max_metadata_bytes:
            return True
        self.fail(path, f"has {size} bytes, more than {self.limits.max_metadata_bytes}")
        return False

    def attributes(self, given: Mapping[str, Any], path: str) -> None:
        """Attributes that a caller sets, by name; output-only ones are ignored, as a write ignores them."""
        for name in STRING_ATTRIBUTES:
            if name in given:
                self.text(given[name], f"{path}.{name}", self.limits.max_attribute_bytes)
        if "supersedes_id" in given:
            self.text(given["supersedes_id"], f"{path}.supersedes_id", self.limits.max_id_bytes)
        for name in ("importance", "confidence"):
            value = given.get(name)
            if value is not None:
                self._fraction(value, f"{path}.{name}")
        for name in ("event_time", "expire_time"):
            value = given.get(name)
            if value is not None:
                self._time(value, f"{path}.{name}")
        if "visibility" in given and given["visibility"] not in tuple(Visibility):
            self.fail(f"{path}.visibility", "is not a known visibility")

    def owner(self, attributes: MemoryAttributes | None, user: str | None, path: str) -> None:
        """On behalf of a user nobody else's private memory is written; one for the organisation may name anybody."""
        named = attributes.user_id if attributes is not None else ""
        if user and named not in ("", user) and attributes is not None and attributes.visibility != Visibility.ORG:
            self.fail(f"{path}.attributes.user_id", "names another user, and the memory would be private")

    def _fraction(self, value: Any, path: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(path, f"must be a number, not {name_type(value)}")
        elif not (math.isfinite(value) and 0 <= value <= 1):
            self.fail(path, f"is {value}, which is not in 0 to 1")

    def _time(self, value: Any, path: str) -> None:
        if not isinstance(value, datetime):
            self.fail(path, f"must be a datetime, not {name_type(value)}")
        elif fault := find_time_fault(value):
            self.fail(path, fault)


def check_batch(items: Sequence[Any], ctx: Ctx, limits: Limits = LIMITS, *, idempotency_key: str = "") -> None:
    """Raises for what is wrong with a write of these items, which have their owner already."""
    checks = Checks(limits)
    checks.ctx(ctx)

    def check_item(item: Any, path: str) -> None:
        if not isinstance(item, MemoryItem):
            checks.fail(path, f"must be a MemoryItem, not {name_type(item)}")
            return
        checks.item(item, path)
        checks.owner(item.attributes, ctx.user_id, path)

    checks.batch(items, check_item)
    checks.text(idempotency_key, "idempotency_key", limits.max_idempotency_key_bytes)
    checks.raise_any()


def check_search(query: SearchQuery, ctx: Ctx, limits: Limits = LIMITS) -> None:
    """Raises for what is wrong with a search; `k` of 0 and below is in order, and finds nothing."""
    checks = Checks(limits)
    checks.ctx(ctx)
    checks.text(query.text, "query", limits.max_query_bytes)
    k: Any = query.k
    if isinstance(k, bool) or not isinstance(k, int) or k > limits.max_k:
        checks.number(query.k, "k", limits.max_k)
    if query.candidates is not None:
        checks.number(query.candidates, "candidates", limits.max_candidates)
    if query.mode not in tuple(RetrievalMode):
        checks.fail("mode", f"is {query.mode!r}, which is not a known mode")
    checks.fusion(query.fusion)
    checks.text(query.min_commit_token, "min_commit_token", limits.max_commit_token_bytes)
    checks.where(query.where)
    checks.raise_any()


def check_ids(ids: Sequence[str], ctx: Ctx, limits: Limits = LIMITS) -> None:
    """Raises for what is wrong with a look-up of these ids."""
    checks = Checks(limits)
    checks.ctx(ctx)
    checks.ids(ids)
    checks.raise_any()


def check_list(where: Where, page_size: int, ctx: Ctx, limits: Limits = LIMITS) -> None:
    """Raises for what is wrong with a page of a list."""
    checks = Checks(limits)
    checks.ctx(ctx)
    checks.where(where)
    checks.number(page_size, "page_size", limits.max_page_size, 1)
    checks.raise_any()


def check_update(
    id: str,
    ctx: Ctx,
    limits: Limits = LIMITS,
    *,
    content: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    metadata_changes: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    if_revision: int | None = None,
) -> None:
    """Raises for what is wrong with an update; None is what it leaves alone. A removed key of `metadata_changes` has a
    value that is none of metadata's."""
    checks = Checks(limits)
    checks.ctx(ctx)
    if id == "":
        checks.fail("item.id", "is required")
    checks.text(id, "item.id", limits.max_id_bytes)
    if content is not None:
        checks.text(content, "item.content", limits.max_content_bytes)
        if content == "":
            checks.fail("item.content", "is empty")
    if metadata is not None:
        checks.metadata(metadata, "item.metadata")
    if metadata_changes:
        kept = {key: value for key, value in metadata_changes.items() if value is not UNSET}
        checks.metadata(kept, "item.metadata")
    if attributes is not None:
        for name in attributes:
            if name not in WRITABLE_ATTRIBUTES:
                checks.fail(f"item.attributes.{name}", "is not an attribute that can be changed")
        checks.attributes(attributes, "item.attributes")
    if if_revision is not None:
        checks.number(if_revision, "if_revision", 2**63 - 1)
    checks.raise_any()


def check_delete(ids: Sequence[str] | None, where: Where, ctx: Ctx, limits: Limits = LIMITS) -> None:
    """Raises for what is wrong with a delete: exactly one of ids and a condition, which is not empty."""
    checks = Checks(limits)
    checks.ctx(ctx)
    if ids is None:
        checks.where(where)
        if where is None:
            checks.fail("ids", "is empty, and where is not set: exactly one must be")
        elif where == {}:
            checks.fail("where", "is empty; to delete is to say what")
    elif where is not None:
        checks.fail("where", "is set, and so is ids: exactly one must be")
    else:
        checks.ids(ids)
    checks.raise_any()


def check_metadata_size(metadata: Mapping[str, Any], path: str, limits: Limits = LIMITS) -> None:
    """Raises InvalidField for metadata of more bytes than it may have; for what came together key by key."""
    size = measure_metadata(metadata)
    if size > limits.max_metadata_bytes:
        raise InvalidField(violations={path: f"would have {size} bytes, more than {limits.max_metadata_bytes}"})
