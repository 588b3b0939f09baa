"""The two legs of a search: ids and scores only, the filter inside; an empty condition leaves nothing out."""

from __future__ import annotations

import asyncio
from typing import Any

from recalld.engine.coverage import LexicalQuery, coverage
from recalld.engine.ports import Lexical, Scored
from recalld.engine.records import Vector
from recalld_server.adapters.lancedb.engine import lancedb
from recalld_server.adapters.lancedb.tables import OpenTable

#: What is fetched beyond the limit, so that candidates of one score are cut by id and not by chance.
_MARGIN = 32
# Scalar quantisation loses a little order; this many times the limit is scored again exactly.
_REFINE = 5
_PROBES = 20


async def lexical(table: OpenTable, text: str, condition: str, limit: int) -> Lexical:
    """The best by BM25. A table without its index is searched too, by words as LanceDB splits them unasked."""
    query = LexicalQuery.of(text)
    if not query.words or limit <= 0:  # the engine panics on a limit of 0
        return Lexical()
    with table.translated("search by words"):
        runs = [_matching(table, words, condition, limit) for words in (query.words, query.anchors) if words]
        rows, found, *anchored = await asyncio.gather(table.lance.count_rows(), *runs)
    best = _best(found["id"].to_pylist(), found["_score"].to_pylist(), limit)
    if not best:
        return Lexical()
    covered = coverage(
        query,
        rows=rows,
        top_score=best[0].score,
        found=found.num_rows,
        anchored=anchored[0].num_rows if anchored else 0,
    )
    return Lexical(best, covered)


async def _matching(table: OpenTable, words: str, condition: str, limit: int) -> Any:
    query = table.lance.query().nearest_to_text(words, columns=["words"])
    if condition:
        query = query.where(condition)
    return await query.select(["id", "_score"]).limit(limit + _MARGIN).to_arrow()


async def semantic(table: OpenTable, vector: Vector, condition: str, limit: int) -> list[Scored]:
    """The best by cosine similarity: exact without a vector index, scored again exactly with one."""
    if limit <= 0:
        return []
    with table.translated("search by meaning"):
        query = table.lance.query().nearest_to(vector).column("vector").distance_type("cosine")
        if condition:
            query = query.where(condition)
        # Without an upper bound on partitions a selective filter still fills the list.
        query = query.refine_factor(_REFINE).minimum_nprobes(_PROBES).maximum_nprobes(0)
        found = await query.select(["id", "_distance"]).limit(limit + _MARGIN).to_arrow()
    return _best(found["id"].to_pylist(), [1.0 - distance for distance in found["_distance"].to_pylist()], limit)


async def newest(table: OpenTable, columns: list[str], condition: str, limit: int) -> Any:
    """The rows last first-stored, as an Arrow table."""
    latest = lancedb.query.ColumnOrdering(column_name="sequence", ascending=False)
    with table.translated("list items"):
        return await table.lance.query().where(condition).select(columns).order_by([latest]).limit(limit).to_arrow()


def _best(ids: list[str], scores: list[float], limit: int) -> list[Scored]:
    ranked = sorted(zip(ids, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return [Scored(id, score) for id, score in ranked[:limit]]
