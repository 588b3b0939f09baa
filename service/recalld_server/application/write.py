"""The write use case: one batch to every source asked, and the split of what became of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recalld.errors import InternalFailure, RecalldError
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application import tokens
from recalld_server.application.composition import Composition
from recalld_server.application.identity import keyed
from recalld_server.ports import Batch, Committed, Source

_LOG = logging.getLogger(__name__)


class _Refused:
    """The mark of a source that is read-only by policy and dropped the batch."""


_REFUSED: Final = _Refused()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch: every source asked is in exactly one of accepted, refused and failed.

    ids: of the items in request order; empty when no source accepted. replayed: every accepting source answered a
    repeat of an idempotency key.
    """

    accepted: Sequence[str]
    refused: Sequence[str]
    failed: Mapping[str, RecalldError]
    ids: Sequence[str]
    commit_token: str
    replayed: bool


class WriteMemories:
    """Broadcasts a batch over the composition."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition

    async def __call__(
        self,
        scope: Scope,
        items: Sequence[MemoryItem],
        *,
        idempotency_key: str,
        sources: Sequence[str],
        lane: object | None = None,
    ) -> Outcome:
        """Writes to all sources at once and waits for each. lane: as in `Batch`.

        Raises UnknownSource. Where a single source was asked and failed, its error is the call's: there is no split
        to tell.
        """
        asked = self._composition.select(sources)
        batch = Batch(keyed(items, scope=scope, idempotency_key=idempotency_key), idempotency_key, lane)
        results = await asyncio.gather(*(_write_to(source, scope, batch) for source in asked))
        accepted = {s.name: r for s, r in zip(asked, results, strict=True) if isinstance(r, Committed)}
        failed = {s.name: r for s, r in zip(asked, results, strict=True) if isinstance(r, RecalldError)}
        if len(asked) == 1 and failed:
            raise failed[asked[0].name]
        return Outcome(
            accepted=list(accepted),
            refused=[s.name for s, r in zip(asked, results, strict=True) if r is _REFUSED],
            failed=failed,
            ids=list(next(iter(accepted.values())).ids) if accepted else [],
            commit_token=tokens.join({name: committed.commit_token for name, committed in accepted.items()}),
            replayed=bool(accepted) and all(committed.replayed for committed in accepted.values()),
        )


async def _write_to(source: Source, scope: Scope, batch: Batch) -> Committed | RecalldError | _Refused:
    try:
        committed = await source.write(scope, batch)
    except RecalldError as error:
        return error
    except Exception:  # noqa: BLE001 - a defect in one source must not lose what became of the batch in the others
        _LOG.exception("write_defect", extra={"source": source.name})
        return InternalFailure(f"source {source.name!r} failed", details={"source": source.name})
    # A source that takes no writes returns as if nothing had happened; filing it under accepted would be a lie.
    return committed if source.accepts_writes else _REFUSED
