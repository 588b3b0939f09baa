"""The change use cases: update one item, delete some."""

from __future__ import annotations

from collections.abc import Sequence

from recalld.errors import MemoryWriteRefused, RecalldError
from recalld.filters import Filter
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld_server.application import tokens
from recalld_server.application.composition import Composition, holds_records
from recalld_server.ports import Deleted


class ChangeMemories:
    """Changes records of one source, or deletes from all that accept writes."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition

    async def update(
        self,
        scope: Scope,
        item: MemoryItem,
        mask: Sequence[tuple[str, ...]],
        *,
        if_revision: int | None,
        source: str,
    ) -> tuple[MemoryItem, str]:
        """The item as it is now, and a commit token. Raises ItemNotFound, RevisionMismatch and MemoryWriteRefused."""
        target = self._composition.changeable(source)
        updated, token = await target.update(scope, item, mask, if_revision=if_revision)
        return updated, tokens.join({target.name: token})

    async def delete(self, scope: Scope, selected: Sequence[str] | Filter, *, dry_run: bool, source: str) -> Deleted:
        """Deletes from the named source, or from each that accepts writes, one after another.

        A failure is raised after the other sources were tried; deleting again is safe.
        """
        if source:
            targets = [self._composition.readable(source)]
        else:
            targets = [s for s in self._composition.sources if holds_records(s) and s.accepts_writes]
        if not targets:
            raise MemoryWriteRefused(source=self._composition.name, n=0)
        count, made, failure = 0, dict[str, str](), None
        for target in targets:
            try:
                deleted = await target.delete(scope, selected, dry_run=dry_run)
            except RecalldError as error:
                failure = failure or error
                continue
            count += deleted.count
            made[target.name] = deleted.commit_token
        if failure is not None:
            raise failure
        return Deleted(count, tokens.join(made))
