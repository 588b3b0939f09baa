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
from recalld_server.transport.checks import Checks

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
    checks = Checks(limits)
    mode = _MODES.get(request.mode)
    if mode is None:
        checks.fail("mode", f"is {int(request.mode)}, which is not a known mode")
    query = Query(
        checks.scope(request),
        checks.user(request),
        SearchQuery(
            text=checks.text(request.query, "query", limits.max_query_bytes),
            k=checks.number(request.k, "k", limits.max_k, limits.default_k),
            where=checks.where(request.where),
            mode=mode or RetrievalMode.HYBRID,
            fusion=_fusion(request.fusion, checks),
            candidates=checks.number(request.candidates, "candidates", limits.max_candidates, 0) or None,
            min_commit_token=checks.text(request.min_commit_token, "min_commit_token", limits.max_commit_token_bytes),
        ),
        checks.names(request.sources, "sources"),
    )
    checks.raise_any()
    return query


def _fusion(fusion: pb.RankFusion, checks: Checks) -> RankFusion:
    lexical = checks.weight(fusion.lexical_weight, "fusion.lexical_weight")
    semantic = checks.weight(fusion.semantic_weight, "fusion.semantic_weight")
    given = fusion.HasField("lexical_weight"), fusion.HasField("semantic_weight")
    if all(given) and lexical == semantic == 0:
        checks.fail("fusion", "has no weight above 0")
    return RankFusion(
        k=checks.number(fusion.k, "fusion.k", checks.limits.max_rank_constant, 0) or None,
        lexical_weight=lexical if given[0] else None,
        semantic_weight=semantic if given[1] else None,
    )


def read_write(request: pb.WriteRequest | pb.BatchWriteRequest, limits: Limits) -> Write:
    checks = Checks(limits)
    write = Write(
        checks.scope(request),
        checks.user(request),
        checks.batch(request.items),
        checks.text(request.idempotency_key, "idempotency_key", limits.max_idempotency_key_bytes),
        checks.names(request.sources, "sources"),
    )
    checks.raise_any()
    return write


def read_get(request: pb.BatchGetRequest, limits: Limits) -> Get:
    checks = Checks(limits)
    get = Get(checks.scope(request), checks.user(request), checks.ids(request.ids, "ids"))
    checks.raise_any()
    return get


def read_list(request: pb.ListRequest, limits: Limits) -> ListPage:
    checks = Checks(limits)
    if request.page_size < 0:
        checks.fail("page_size", f"is {request.page_size}, which is negative")
    page = ListPage(
        checks.scope(request),
        checks.user(request),
        checks.where(request.where),
        min(request.page_size or limits.default_page_size, limits.max_page_size),
    )
    checks.raise_any()
    return page


def read_update(request: pb.UpdateRequest, limits: Limits) -> Update:
    checks = Checks(limits)
    scope = checks.scope(request)
    if not request.item.id:
        checks.fail("item.id", "is required")
    if request.if_revision < 0:
        checks.fail("if_revision", f"is {request.if_revision}, which is negative")
    mask = _mask(request.update_mask.paths, checks)
    if ("content",) in mask and not request.item.content:
        checks.fail("item.content", "is empty, and update_mask names it")
    item = checks.item(request.item, "item")
    user = checks.user(request)
    checks.raise_any()
    return Update(scope, user, item, mask, request.if_revision or None)


def _mask(paths: Sequence[str], checks: Checks) -> Sequence[Mask]:
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
    checks = Checks(limits)
    scope = checks.scope(request)
    selected: Sequence[str] | Filter | None = None
    if request.ids and request.HasField("where"):
        checks.fail("where", "is set, and so is ids: exactly one must be")
    elif request.ids:
        selected = checks.ids(request.ids, "ids")
    elif not request.HasField("where"):
        checks.fail("ids", "is empty, and where is not set: exactly one must be")
    else:
        selected = checks.where(request.where)
        if request.where.WhichOneof("node") is None:
            checks.fail("where", "is empty; to delete is to say what")
    user = checks.user(request)
    checks.raise_any()
    return Delete(scope, user, selected or [])
