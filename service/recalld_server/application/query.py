"""The query use case: ask every source at once, merge what answers, name what does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from recalld.errors import AllSourcesFailed, DeadlineExceeded, InternalFailure, InvalidRequest, RecalldError
from recalld.fusion import merge_duplicates, rrf_rerank
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application import tokens
from recalld_server.application.composition import Composition
from recalld_server.ports import Degradation, Hit, QuerySpec, Ranked, Source

_LOG = logging.getLogger(__name__)

#: The share of the caller's time that a source may take, so that what did answer can still be sent.
_SOURCE_SHARE = 0.9


class QueryMemories:
    """Fans a query out over the composition."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition

    async def __call__(self, scope: Scope, spec: QuerySpec, sources: Sequence[str]) -> Ranked:
        """The best `spec.k` hits of the sources asked.

        A single source's ranking is passed on as it is. Several are merged as `CompositeMemory` does (copies of one
        fact become one hit) and ranked by reciprocal rank within their own source, since scores of different sources
        do not compare. A source that fails or is late becomes a degradation; only when all fail is an error raised.
        """
        asked = self._composition.select(sources)
        seen = tokens.split(spec.min_commit_token)
        results = await asyncio.gather(
            *(_search(source, scope, replace(spec, min_commit_token=seen.get(source.name, ""))) for source in asked)
        )
        answers = {s.name: r for s, r in zip(asked, results, strict=True) if isinstance(r, Ranked)}
        failures = {s.name: r for s, r in zip(asked, results, strict=True) if isinstance(r, RecalldError)}
        if not answers:
            raise _all_failed(failures)
        for failure in failures.values():
            if isinstance(failure, InvalidRequest):
                raise failure  # the request is wrong: hiding that behind the others' answers would help nobody
        token = tokens.join({name: answer.commit_token for name, answer in answers.items()})
        degradations = [degradation for answer in answers.values() for degradation in answer.degradations]
        degradations += [Degradation(name, error.reason, str(error)) for name, error in failures.items()]
        for each in degradations:
            _LOG.warning("degraded", extra={"component": each.component, "reason": each.reason})
        if len(asked) == 1:
            (only,) = answers.values()
            return replace(only, degradations=degradations, commit_token=token)
        return Ranked(await _merge(spec, list(answers.values())), degradations, token)


async def _search(source: Source, scope: Scope, spec: QuerySpec) -> Ranked | RecalldError:
    timeout = None if spec.timeout is None else spec.timeout * _SOURCE_SHARE
    try:
        async with asyncio.timeout(timeout):
            return await source.search(scope, replace(spec, timeout=timeout))
    except RecalldError as error:
        return error
    except TimeoutError:
        return DeadlineExceeded(f"source {source.name!r} did not answer in time", details={"stage": source.name})
    except Exception:  # noqa: BLE001 - a defect in one source must not take the others' answers away; it is logged
        _LOG.exception("query_defect", extra={"source": source.name})
        return InternalFailure(f"source {source.name!r} failed", details={"source": source.name})


def _all_failed(failures: Mapping[str, RecalldError]) -> RecalldError:
    if len(failures) == 1:
        return next(iter(failures.values()))
    return next((each for each in failures.values() if isinstance(each, InvalidRequest)), AllSourcesFailed(failures))


async def _merge(spec: QuerySpec, answers: Sequence[Ranked]) -> Sequence[Hit]:
    hits = {(hit.item.source, hit.item.id, hit.item.content): hit for answer in answers for hit in answer.hits}
    items = merge_duplicates([hit.item for answer in answers for hit in answer.hits], "id")
    if spec.text:
        ranked = await rrf_rerank()(spec.text, items, k=spec.k)
    else:
        ranked = sorted(items, key=_create_time, reverse=True)[: spec.k]
    # A survivor keeps the source, id and content of its first copy, so it finds how that one was ranked.
    return [replace(hits[item.source, item.id, item.content], item=item) for item in ranked]


_NEVER = datetime.min.replace(tzinfo=UTC)


def _create_time(item: MemoryItem) -> datetime:
    return (item.attributes and item.attributes.create_time) or _NEVER
