"""Each request of MemoryService, checked whole and turned into domain words.

Every function raises ScopeRequired, InvalidField or InvalidFilter with all violations of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recalld.errors import InvalidFilter
from recalld.filters import Filter, split_path
from recalld.item import WRITABLE_ATTRIBUTES, MemoryItem
from recalld.limits import Limits
from recalld.scope import Scope
from recalld.store import RankFusion, RetrievalMode, SearchQuery
from recalld.v1 import memory_service_pb2 as pb
from recalld.wire.answers import decode_fusion
from recalld_server.transport.checks import RequestChecks

Mask = tuple[str, ...]

_METADATA: Mask = ("metadata",)
_MODES = {
    pb.RETRIEVAL_MODE_UNSPECIFIED: RetrievalMode.HYBRID,
    pb.RETRIEVAL_MODE_HYBRID: RetrievalMode.HYBRID,
    pb.RETRIEVAL_MODE_LEXICAL: RetrievalMode.LEXICAL,
    pb.RETRIEVAL_MODE_SEMANTIC: RetrievalMode.SEMANTIC,
}


@dataclass(frozen=True, slots=True)
class Query:
    scope: Scope
    user: str
    asked: SearchQuery
    sources: Sequence[str]


@dataclass(frozen=True, slots=True)
class Write:
    scope: Scope
    user: str
    items: Sequence[MemoryItem]
    idempotency_key: str
    sources: Sequence[str]


@dataclass(frozen=True, slots=True)
class Get:
    scope: Scope
    user: str
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class ListPage:
    scope: Scope
    user: str
    where: Filter | None
    page_size: int


@dataclass(frozen=True, slots=True)
class Update:
    scope: Scope
    user: str
    item: MemoryItem
    mask: Sequence[Mask]
    if_revision: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    scope: Scope
    user: str
    selected: Sequence[str] | Filter


def read_query(request: pb.QueryRequest, limits: Limits) -> Query:
    checks = RequestChecks(limits)
    mode = _MODES.get(request.mode)
    if mode is None:
        checks.fail("mode", f"is {int(request.mode)}, which is not a known mode")
    query = Query(
        checks.read_scope(request),
        checks.read_user(request),
        SearchQuery(
            text=checks.read_text(request.query, "query", limits.max_query_bytes),
            k=checks.read_number(request.k, "k", limits.max_k, limits.default_k),
            where=checks.read_where(request.where),
            mode=mode or RetrievalMode.HYBRID,
            fusion=_fusion(request.fusion, checks),
            candidates=checks.read_number(request.candidates, "candidates", limits.max_candidates, 0) or None,
            min_commit_token=checks.read_text(
                request.min_commit_token, "min_commit_token", limits.max_commit_token_bytes
            ),
        ),
        _names(request.sources, checks),
    )
    checks.raise_any()
    return query


def _fusion(fusion: pb.RankFusion, checks: RequestChecks) -> RankFusion:
    wanted = decode_fusion(fusion)
    checks.fusion(wanted)
    return wanted


def read_write(request: pb.WriteRequest | pb.BatchWriteRequest, limits: Limits) -> Write:
    checks = RequestChecks(limits)
    user = checks.read_user(request)
    write = Write(
        checks.read_scope(request),
        user,
        checks.read_batch(request.items, user),
        checks.read_text(request.idempotency_key, "idempotency_key", limits.max_idempotency_key_bytes),
        _names(request.sources, checks),
    )
    checks.raise_any()
    return write


def _names(sources: Sequence[str], checks: RequestChecks) -> Sequence[str]:
    checks.names(sources, "sources")
    return list(sources)


def _ids(ids: Sequence[str], checks: RequestChecks) -> Sequence[str]:
    checks.ids(ids)
    return list(ids)


def read_get(request: pb.BatchGetRequest, limits: Limits) -> Get:
    checks = RequestChecks(limits)
    get = Get(checks.read_scope(request), checks.read_user(request), _ids(request.ids, checks))
    checks.raise_any()
    return get


def read_list(request: pb.ListRequest, limits: Limits) -> ListPage:
    checks = RequestChecks(limits)
    if request.page_size < 0:
        checks.fail("page_size", f"is {request.page_size}, which is negative")
    page = ListPage(
        checks.read_scope(request),
        checks.read_user(request),
        checks.read_where(request.where),
        min(request.page_size or limits.default_page_size, limits.max_page_size),
    )
    checks.raise_any()
    return page


def read_update(request: pb.UpdateRequest, limits: Limits) -> Update:
    checks = RequestChecks(limits)
    scope = checks.read_scope(request)
    if not request.item.id:
        checks.fail("item.id", "is required")
    if request.if_revision < 0:
        checks.fail("if_revision", f"is {request.if_revision}, which is negative")
    mask = _mask(request.update_mask.paths, checks)
    if ("content",) in mask and not request.item.content:
        checks.fail("item.content", "is empty, and update_mask names it")
    user = checks.read_user(request)
    item = checks.read_item(request.item, "item", user)
    checks.raise_any()
    return Update(scope, user, item, mask, request.if_revision or None)


def _mask(paths: Sequence[str], checks: RequestChecks) -> Sequence[Mask]:
    if not 1 <= len(paths) <= checks.limits.max_mask_paths:
        checks.fail("update_mask", f"must hold 1 to {checks.limits.max_mask_paths} paths, not {len(paths)}")
    mask: dict[Mask, None] = {}
    for index, path in enumerate(paths[: checks.limits.max_mask_paths]):
        parsed = _mask_path(path)
        if parsed is None:
            checks.fail(f"update_mask.paths[{index}]", f"is {path[:64]!r}, which is not a path that can be changed")
        else:
            mask[parsed] = None
    if _METADATA in mask:
        return [path for path in mask if path == _METADATA or path[0] != "metadata"]
    return list(mask)


def _mask_path(path: str) -> Mask | None:
    """`content`, `metadata`, `metadata.<key>` or `attributes.<field>`; a backslash before a dot makes it part of the
    key."""
    try:
        parts = split_path(path)
    except InvalidFilter:
        return None
    if parts in (("content",), _METADATA):
        return parts
    if len(parts) == 2 and (parts[0] == "metadata" or (parts[0] == "attributes" and parts[1] in WRITABLE_ATTRIBUTES)):
        return parts
    return None


def read_delete(request: pb.DeleteRequest, limits: Limits) -> Delete:
    checks = RequestChecks(limits)
    scope = checks.read_scope(request)
    selected: Sequence[str] | Filter | None = None
    if request.ids and request.HasField("where"):
        checks.fail("where", "is set, and so is ids: exactly one must be")
    elif request.ids:
        selected = _ids(request.ids, checks)
    elif not request.HasField("where"):
        checks.fail("ids", "is empty, and where is not set: exactly one must be")
    else:
        selected = checks.read_where(request.where)
        if request.where.WhichOneof("node") is None:
            checks.fail("where", "is empty; to delete is to say what")
    user = checks.read_user(request)
    checks.raise_any()
    return Delete(scope, user, selected or [])
