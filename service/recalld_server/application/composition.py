"""The sources behind a server, and how a request picks among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from recalld.errors import InvalidRequest, MemoryWriteRefused, UnknownSource
from recalld_server.ports import Records, Source


class RecordSource(Source, Records):
    """A source that holds records; only named for its type."""


def holds_records(source: Source) -> TypeGuard[RecordSource]:
    """Whether the records of a source can be addressed by id."""
    return all(hasattr(source, verb) for verb in ("get", "list", "update", "delete"))


class Composition:
    """The sources in order, under one name.

    Raises InvalidRequest for two sources of one name: no split could tell them apart.
    """

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        names = [source.name for source in sources]
        repeated = sorted({each for each in names if names.count(each) > 1})
        if repeated:
            raise InvalidRequest(f"two sources are named {repeated[0]!r}")
        self.name = name
        self.sources = tuple(sources)

    def select(self, names: Sequence[str]) -> Sequence[Source]:
        """The named sources, in the composition's order; all of them for no names. Raises UnknownSource."""
        if not names:
            return self.sources
        known = {source.name for source in self.sources}
        for name in names:
            if name not in known:
                raise UnknownSource(f"no source is named {name!r}", details={"source": name})
        return [source for source in self.sources if source.name in set(names)]

    def readable(self, name: str) -> RecordSource:
        """The named source, or the first that holds records. Raises UnknownSource."""
        for source in self.select([name] if name else []):
            if holds_records(source):
                return source
        raise UnknownSource(
            f"source {name!r} holds no records that can be read by id" if name else "no source holds records",
            details={"source": name},
        )

    def changeable(self, name: str) -> RecordSource:
        """The named source, or the first whose records can be changed. Raises UnknownSource and MemoryWriteRefused."""
        if name:
            return self.readable(name)
        for source in self.sources:
            if holds_records(source) and source.accepts_writes:
                return source
        raise MemoryWriteRefused(source=self.name, n=1)

    async def close(self) -> None:
        """Closes every source, also when one of them fails to."""
        failures: list[Exception] = []
        for source in reversed(self.sources):
            try:
                await source.close()
            except Exception as error:  # noqa: BLE001 - the others must be closed too; all are raised below
                failures.append(error)
        if failures:
            raise ExceptionGroup("closing the sources failed", failures)
