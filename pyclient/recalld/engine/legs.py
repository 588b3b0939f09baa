"""The two legs of a search, side by side, each within its time; what a leg could not do is told and not raised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from recalld.engine.ports import Embedder, Lexical, RecordStore, Scored
from recalld.errors import DeadlineExceeded, InternalFailure, RecalldError, SourceUnavailable
from recalld.filters import Filter
from recalld.scope import Scope
from recalld.store import Degradation, RetrievalMode

_LOG = logging.getLogger(__name__)

Found = TypeVar("Found")

#: The share of the caller's time that a leg may take; the rest is for reading the winners.
_LEG_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class LegsFound:
    """What each leg found, None for one that did not run or did not come through, and why it did not."""

    lexical: Lexical | None
    semantic: Sequence[Scored] | None
    degradations: Sequence[Degradation]


@dataclass(frozen=True, slots=True)
class Legs:
    """Searches one store by words and, where there is an embedder, by meaning."""

    records: RecordStore
    embedder: Embedder | None

    async def run(
        self,
        scope: Scope,
        text: str,
        visible: Filter,
        *,
        mode: RetrievalMode,
        depth: int,
        remaining: float | None,
    ) -> LegsFound:
        """The legs that `mode` names at the same time, each under the same filter, to the same depth.

        Without an embedder a hybrid search is by words, and a semantic one finds nothing and says so. A leg that failed
        or was late is a degradation while the other answers; when none did, the first one's error is raised.
        """
        by_words = mode is not RetrievalMode.SEMANTIC
        by_meaning = mode is not RetrievalMode.LEXICAL
        if by_meaning and self.embedder is None:
            by_meaning = False
            if not by_words:
                return LegsFound(None, (), [self._no_embedder()])
        timeout = None if remaining is None else remaining * _LEG_SHARE
        legs: dict[str, Awaitable[Lexical | Sequence[Scored]]] = {}
        if by_words:
            legs["lexical"] = self.records.lexical(scope, text, visible, limit=depth)
        if by_meaning:
            legs["semantic"] = self._semantic(scope, text, visible, depth)
        answers = await asyncio.gather(*(_within(timeout, name, leg) for name, leg in legs.items()))
        failures = {
            name: answer for name, answer in zip(legs, answers, strict=True) if isinstance(answer, RecalldError)
        }
        if len(failures) == len(legs):
            raise next(iter(failures.values()))
        found = {name: answer for name, answer in zip(legs, answers, strict=True) if name not in failures}
        lexical, semantic = found.get("lexical"), found.get("semantic")
        return LegsFound(
            lexical if isinstance(lexical, Lexical) else None,
            semantic if not isinstance(semantic, (Lexical, RecalldError)) else None,
            [Degradation(f"{self.records.name}/{leg}", error.reason, str(error)) for leg, error in failures.items()],
        )

    async def _semantic(self, scope: Scope, text: str, visible: Filter, depth: int) -> Sequence[Scored]:
        assert self.embedder is not None  # noqa: S101 - `run` has looked
        embedding = await self.embedder.embed_query(text)
        return await self.records.semantic(scope, embedding.vector, visible, limit=depth)

    def _no_embedder(self) -> Degradation:
        return Degradation(
            f"{self.records.name}/semantic", SourceUnavailable.reason, "this memory has no embedder: it finds by words"
        )


async def _within(timeout: float | None, name: str, leg: Awaitable[Found]) -> Found | RecalldError:
    try:
        async with asyncio.timeout(timeout):
            return await leg
    except RecalldError as error:
        return error
    except TimeoutError:
        return DeadlineExceeded(f"the {name} leg did not answer in time", details={"stage": name})
    except Exception:  # noqa: BLE001 - a defect of one leg must not take the other's answer away; it is logged
        _LOG.exception("leg_defect", extra={"leg": name})
        return InternalFailure(f"the {name} leg failed")
