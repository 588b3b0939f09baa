"""Another recalld server as a source: searches, writes and records are forwarded, errors come back as its own."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from recalld.client.connection import Connection, Opened, Patience, TLSConfig
from recalld.client.writing import write_items
from recalld.errors import InternalFailure, InvalidField, MemoryWriteRefused, SourceUnavailable
from recalld.filters import Field, Filter
from recalld.item import MemoryItem
from recalld.scope import Scope
from recalld.sources.remote import stamped
from recalld.v1 import item_pb2, memory_service_pb2
from recalld.wire import Violations, decode_item, encode_filter, encode_scope, encode_write, encode_writes
from recalld_server.adapters.remote.answers import hit_of, query_request, ranked
from recalld_server.adapters.remote.states import merged
from recalld_server.ports import Batch, Committed, Deleted, Hit, Page, QuerySpec, Ranked

T = TypeVar("T")

#: A search shares its answer with other sources, which should not wait long for one that is down.
_SEARCH_ATTEMPTS = 4


class RemoteSource:
    """A `Source` whose records another server holds.

    name: what its items are stamped with; the upstream's source stays in `attributes.origin`. target, token, tls: as
    in `RemoteMemory`. sources: the upstream sources to use, empty for all; records are read and changed in the first.
    timeout: seconds for a call where the caller leaves more or no limit, and for a write without progress.

    Every method raises RecalldError only: the upstream's own, or SourceUnavailable and DeadlineExceeded when it does
    not answer; lost connections are retried within the time.
    """

    def __init__(
        self,
        name: str,
        target: str,
        *,
        token: str | None = None,
        tls: TLSConfig | None = None,
        sources: Sequence[str] = (),
        timeout: float = 10.0,
    ) -> None:
        self._name = name
        self._sources = tuple(sources)
        self._timeout = timeout
        self._connection = Connection(target, token=token, tls=tls)

    @property
    def name(self) -> str:
        return self._name

    @property
    def kind(self) -> str:
        return "remote"

    @property
    def accepts_writes(self) -> bool:
        """As the upstream last said of the sources used here; True before it said so."""
        known = self._connection.known
        return known is None or known.accepts_writes(self._sources)

    async def search(self, scope: Scope, spec: QuerySpec) -> Ranked:
        """What the upstream finds, with its explanations, its fusion, and its degradations under this name."""
        patience = self._patience(spec.timeout)
        facts = await self._connection.facts(patience, self._name)
        request = query_request(scope, spec, self._sources, most=facts.max_k)

        async def attempt(opened: Opened, left: float) -> Ranked:
            call = opened.memory.Query(request, timeout=left, metadata=opened.metadata)
            hits: list[Hit] = []
            summary: memory_service_pb2.QuerySummary | None = None
            try:
                async for frame in call:
                    if frame.WhichOneof("frame") == "summary":
                        summary = frame.summary
                    else:
                        hits.extend(hit_of(hit, self._item(hit.item)) for hit in frame.hits.hits)
            finally:
                call.cancel()
            if summary is None:
                message = f"{self._name}: the answer is incomplete; the stream ended without a summary"
                raise SourceUnavailable(message, details={"source": self._name})
            return ranked(hits[: spec.k], summary, self._name)

        return await self._connection.call(attempt, patience, self._name)

    async def write(self, scope: Scope, batch: Batch) -> Committed:
        """Writes the batch upstream, under its idempotency key; one made for this call where it has none.

        Raises CompositeWriteError when some upstream source failed: the others have committed. Where every upstream
        source ignores writes it returns having stored nothing, and `accepts_writes` is False.
        """
        wire_scope = encode_scope(scope)
        items = encode_writes(batch.items)
        key = batch.idempotency_key or uuid.uuid4().hex
        written = await write_items(
            self._connection,
            items,
            source=self._name,
            scope=wire_scope,
            sources=self._sources,
            timeout=self._timeout,
            key=lambda number: _key(key, number),
        )
        written.raise_for_failures()
        if not written.accepted and self.accepts_writes:
            # Returning means "stored" unless `accepts_writes` is False.
            raise MemoryWriteRefused(source=self._name, n=len(items))
        return Committed(written.ids, merged(written.commit_tokens), written.replayed)

    async def get(self, scope: Scope, ids: Sequence[str]) -> Sequence[MemoryItem]:
        request = memory_service_pb2.BatchGetRequest(scope=encode_scope(scope), ids=ids, source=self._first)
        response = await self._unary(lambda at, left: at.memory.BatchGet(request, timeout=left, metadata=at.metadata))
        return [self._item(item) for item in response.items]

    async def list(self, scope: Scope, where: Filter | None, *, limit: int, cursor: str | None) -> Page:
        """As the upstream lists; the cursor is the upstream's page token, and a page may be shorter than `limit`."""
        request = memory_service_pb2.ListRequest(
            scope=encode_scope(scope), page_size=limit, page_token=cursor or "", source=self._first
        )
        if where is not None:
            request.where.CopyFrom(encode_filter(where))
        response = await self._unary(lambda at, left: at.memory.List(request, timeout=left, metadata=at.metadata))
        return Page([self._item(item) for item in response.items], response.next_page_token or None)

    async def update(
        self, scope: Scope, item: MemoryItem, mask: Sequence[tuple[str, ...]], *, if_revision: int | None
    ) -> tuple[MemoryItem, str]:
        """The item as it is now and a commit token. With `if_revision` a lost connection is not retried: the change
        may have been made, and a second try would find another revision."""
        violations: Violations = {}
        request = memory_service_pb2.UpdateRequest(
            scope=encode_scope(scope),
            item=encode_write(item, "item", violations),
            if_revision=if_revision or 0,
            source=self._first,
        )
        if violations:
            raise InvalidField(violations=violations)
        request.update_mask.paths.extend(str(Field(path[0], path[1:])) for path in mask)
        response = await self._unary(
            lambda at, left: at.memory.Update(request, timeout=left, metadata=at.metadata),
            repeatable=if_revision is None,
        )
        return self._item(response.item), response.commit_token

    async def delete(self, scope: Scope, selected: Sequence[str] | Filter, *, dry_run: bool) -> Deleted:
        """Deletes in the upstream sources used here. After a lost connection the count may leave out what the first
        try had deleted."""
        request = memory_service_pb2.DeleteRequest(scope=encode_scope(scope), dry_run=dry_run)
        if isinstance(selected, Sequence):
            request.ids.extend(selected)
        else:
            request.where.CopyFrom(encode_filter(selected))
        count, made = 0, list[str]()
        for source in dict.fromkeys(self._sources or ("",)):
            request.source = source
            response = await self._unary(lambda at, left: at.memory.Delete(request, timeout=left, metadata=at.metadata))
            count += response.deleted_count
            made.append(response.commit_token)
        return Deleted(count, merged(made))

    async def close(self) -> None:
        await self._connection.close()

    @property
    def _first(self) -> str:
        return self._sources[0] if self._sources else ""

    def _patience(self, timeout: float | None) -> Patience:
        timeout = self._timeout if timeout is None else min(timeout, self._timeout)
        return Patience(timeout, attempts=_SEARCH_ATTEMPTS)

    async def _unary(self, attempt: Callable[[Opened, float], Awaitable[T]], *, repeatable: bool = True) -> T:
        patience = Patience(self._timeout, attempts=None if repeatable else 1)
        return await self._connection.call(attempt, patience, self._name)

    def _item(self, item: item_pb2.MemoryItem) -> MemoryItem:
        violations: Violations = {}
        decoded = decode_item(item, "item", violations)
        if decoded is None:
            raise InternalFailure(f"{self._name}: sent an item that does not read: {violations}")
        return stamped(decoded, self._name)


def _key(key: str, number: int) -> str:
    """The key of a batch that was split: the caller's own for its first part, derived ones for the others."""
    if number == 0:
        return key
    return hashlib.blake2b(f"{number}:{key}".encode(), digest_size=16).hexdigest()
