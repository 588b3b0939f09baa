"""`MemoryClient`: the whole contract in domain words, over one channel."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from recalld import commit_tokens
from recalld.checks import check_ids, check_list, check_search
from recalld.client.batches import count_refused, counting_refused, split
from recalld.client.caller import Metadata, check_names, read_ctx
from recalld.client.calls import ServerCalls
from recalld.client.changes import encode_delete, encode_update
from recalld.client.connection import Opened
from recalld.client.encoding import check_fit, check_request, encode_items, measure_overhead
from recalld.client.results import DeletedItems, FoundItems, UpdatedItem
from recalld.client.searching import read_answer
from recalld.client.writing import BatchWriter
from recalld.errors import InvalidRequest, RecalldError
from recalld.item import MemoryItem
from recalld.limits import LIMITS
from recalld.scope import CtxLike
from recalld.store import (
    UNSET,
    AttributeChanges,
    ItemPage,
    SearchQuery,
    SearchResult,
    Unset,
    Where,
    WriteOutcome,
)
from recalld.v1 import memory_service_pb2 as pb
from recalld.where import parse_where
from recalld.wire import encode_filter
from recalld.wire.answers import decode_items, decode_outcome, decode_page, encode_query


class MemoryClient(ServerCalls):
    """A client of one recalld server.

    target: where the server listens, `host:port` or a gRPC target (`dns:///...`, `unix:...`, `ipv4:...`). sources: the
    server-side sources to use where a call names none; empty for the server's own choice. timeout: seconds that a call
    may take, and a write without progress. token: sent as `authorization: Bearer ...`, also without TLS, where
    everybody on the way can read it: keep that to loopback and trusted networks. tls: None for plain text. channel: a
    channel to use in place of an own one; it stays the caller's to close, and `target` is only a label. metadata: sent
    with every call. label: what errors call the server; None for the target. Raises InvalidField (a ValueError) for
    what cannot be.

    It connects on first use and works from any event loop. After `close` (or `async with`) every call raises
    SourceUnavailable, and so does every call of a process that was forked while its parent had a connection open.

    Every call takes a context. Its scope, user, session, agent and run go into the request; its request id, trace and
    `via` go into metadata; its deadline bounds the call with all its attempts and pauses. `call_metadata` is for that
    call alone and replaces pairs of the same key, for example another credential under `authorization`. sources,
    source: in place of the client's own.

    Whatever goes wrong is a RecalldError. What shows without asking the server (InvalidField, InvalidFilter,
    ScopeRequired) is raised before anything is sent. A lost connection is retried until the time is over; then
    SourceUnavailable, or DeadlineExceeded when the server did not answer.
    """

    async def search(
        self,
        query: SearchQuery,
        *,
        ctx: CtxLike,
        sources: Sequence[str] | None = None,
        explain: bool = True,
        attempts: int | None = None,
        call_metadata: Metadata = (),
    ) -> SearchResult:
        """What the server finds, with its degradations; `source` of an item is the server-side one. Nothing for
        `k <= 0`.

        explain: whether hits tell their ranks. attempts: the most attempts, None for as many as fit into the time.
        """
        call = read_ctx(ctx)
        check_search(query, call)
        caller = self._caller(call, call_metadata)
        selected = self._selected(sources)
        if query.k <= 0:
            return SearchResult()
        patience = caller.patience(attempts=attempts)
        # A server that allows less than the contract gives as many as it gives at once.
        most = (await self._info(caller, patience)).limits.max_k
        request = encode_query(replace(query, k=min(query.k, most)), parse_where(query.where))
        request.scope.CopyFrom(caller.scope)
        request.on_behalf_of_user_id = caller.user
        request.sources.extend(selected)
        request.explain = bool(explain)

        async def attempt(opened: Opened, left: float) -> SearchResult:
            stream = opened.memory.Query(request, timeout=left, metadata=caller.metadata)
            return await read_answer(stream, self._connection.label)

        return await self._connection.call(attempt, patience)

    async def write(
        self,
        items: Iterable[MemoryItem],
        *,
        ctx: CtxLike,
        idempotency_key: str = "",
        sources: Sequence[str] | None = None,
        call_metadata: Metadata = (),
    ) -> WriteOutcome:
        """Writes any number of items, in batches over one stream, and tells what became of them in each source.

        An item that names no user, session, agent or run gets the context's; its `id` is kept, one without gets a fresh
        one. Each batch has an idempotency key: after a lost connection only batches that were not acknowledged are sent
        again, and none is stored twice. With an `idempotency_key` of the caller's the batches' keys follow from it, so
        that the same write can be made again after an unknown outcome. The timeout bounds the wait for progress: each
        acknowledged batch starts it anew.

        The first batch that the server refuses ends the write: its error is raised, with a note of what is stored. An
        empty write sends nothing.
        """
        call = read_ctx(ctx)
        caller, selected = self._caller(call, call_metadata), self._selected(sources)
        encoded = await encode_items(items, call, idempotency_key=idempotency_key)
        if not encoded:
            return WriteOutcome()
        with self._connection.changing(), counting_refused(len(encoded)):
            limits = (await self._info(caller, caller.patience())).limits
            overhead = measure_overhead(caller, selected)
            check_fit(encoded, limits, overhead=overhead)
            parts = split(encoded, limits, overhead=overhead, idempotency_key=idempotency_key)
            writer = BatchWriter(self._connection, caller, sources=selected, window=limits.max_unacked_batches)
            return await self._look_again(await writer.write(parts, caller.patience()), caller)

    async def batch_write(
        self,
        items: Iterable[MemoryItem],
        *,
        ctx: CtxLike,
        idempotency_key: str = "",
        sources: Sequence[str] | None = None,
        call_metadata: Metadata = (),
    ) -> WriteOutcome:
        """Writes one batch in one call: each source takes it whole or not at all.

        Raises InvalidField that names `items` for none, for more than the server takes in a batch, and for what does
        not fit into one message; nothing is sent then. Else as `write`.
        """
        call = read_ctx(ctx)
        caller, selected = self._caller(call, call_metadata), self._selected(sources)
        encoded = await encode_items(items, call, idempotency_key=idempotency_key)
        with self._connection.changing(), counting_refused(len(encoded)):
            patience = caller.patience()
            limits = (await self._info(caller, patience)).limits
            check_fit(encoded, limits, overhead=measure_overhead(caller, selected))
            request = pb.BatchWriteRequest(
                scope=caller.scope,
                items=encoded,
                idempotency_key=idempotency_key or uuid.uuid4().hex,
                sources=selected,
                on_behalf_of_user_id=caller.user,
            )
            check_request(request, limits)

            async def attempt(opened: Opened, left: float) -> pb.BatchWriteResponse:
                return await opened.memory.BatchWrite(request, timeout=left, metadata=caller.metadata)

            response = await self._connection.call(attempt, patience, largest="items")
            return await self._look_again(count_refused(decode_outcome(response.outcome), len(encoded)), caller)

    async def get(
        self, ids: Sequence[str], *, ctx: CtxLike, source: str | None = None, call_metadata: Metadata = ()
    ) -> FoundItems:
        """The items of these ids, at most 1,000, in the order asked; a repeated id counts once."""
        call, wanted = read_ctx(ctx), check_names(ids, "ids")
        check_ids(wanted, call)
        caller = self._caller(call, call_metadata)
        request = pb.BatchGetRequest(
            scope=caller.scope,
            ids=wanted,
            source=self._first(source),
            on_behalf_of_user_id=caller.user,
        )

        async def attempt(opened: Opened, left: float) -> pb.BatchGetResponse:
            return await opened.memory.BatchGet(request, timeout=left, metadata=caller.metadata)

        response = await self._call(attempt, caller, largest="ids")
        items = await self._decode(response.ByteSize(), lambda found: decode_items(response.items, found))
        return FoundItems(items, list(response.missing_ids))

    async def list_page(
        self,
        *,
        ctx: CtxLike,
        where: Where = None,
        page_size: int = LIMITS.default_page_size,
        page_token: str = "",
        source: str | None = None,
        call_metadata: Metadata = (),
    ) -> ItemPage:
        """One page, newest first, of 1 to 1,000 items; it may hold fewer and not be the last."""
        call = read_ctx(ctx)
        check_list(where, page_size, call)
        (token,) = check_names([page_token], "page_token")
        caller = self._caller(call, call_metadata)
        condition = parse_where(where)
        request = pb.ListRequest(
            scope=caller.scope,
            page_size=page_size,
            page_token=token,
            source=self._first(source),
            on_behalf_of_user_id=caller.user,
        )
        if condition is not None:
            request.where.CopyFrom(encode_filter(condition))

        async def attempt(opened: Opened, left: float) -> pb.ListResponse:
            return await opened.memory.List(request, timeout=left, metadata=caller.metadata)

        response = await self._call(attempt, caller, largest="where")
        return await self._decode(response.ByteSize(), lambda found: decode_page(response, found))

    async def update(
        self,
        id: str,
        *,
        ctx: CtxLike,
        content: str | Literal[Unset.UNSET] = UNSET,
        metadata: Mapping[str, Any] | Literal[Unset.UNSET] = UNSET,
        metadata_changes: Mapping[str, Any] | None = None,
        attributes: AttributeChanges | Literal[Unset.UNSET] = UNSET,
        if_revision: int | None = None,
        source: str | None = None,
        call_metadata: Metadata = (),
    ) -> UpdatedItem:
        """Changes what is given, as `MemoryStore.update` does.

        With `if_revision` a lost connection is not retried: the change may have been made, and a second attempt would
        find another revision.
        """
        call = read_ctx(ctx)
        request = encode_update(
            id,
            call,
            content=content,
            metadata=metadata,
            metadata_changes=metadata_changes,
            attributes=attributes,
            if_revision=if_revision,
        )
        caller = self._caller(call, call_metadata)
        request.scope.CopyFrom(caller.scope)
        request.on_behalf_of_user_id = caller.user
        request.source = self._first(source)

        async def attempt(opened: Opened, left: float) -> pb.UpdateResponse:
            return await opened.memory.Update(request, timeout=left, metadata=caller.metadata)

        with self._connection.changing():
            attempts = None if if_revision is None else 1
            response = await self._call(attempt, caller, largest="item", attempts=attempts)
        (item,) = await self._decode(response.ByteSize(), lambda found: decode_items([response.item], found))
        return UpdatedItem(item, response.commit_token)

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        ctx: CtxLike,
        where: Where = None,
        dry_run: bool = False,
        sources: Sequence[str] | None = None,
        call_metadata: Metadata = (),
    ) -> DeletedItems:
        """Deletes by ids or by a condition, exactly one of them, in each selected source, one after another; a failure
        is raised after the others were tried. After a lost connection the count may leave out what the first attempt
        had deleted."""
        call = read_ctx(ctx)
        request = encode_delete(ids, where, call)
        caller = self._caller(call, call_metadata)
        request.scope.CopyFrom(caller.scope)
        request.on_behalf_of_user_id = caller.user
        request.dry_run = bool(dry_run)

        async def attempt(opened: Opened, left: float) -> pb.DeleteResponse:
            return await opened.memory.Delete(request, timeout=left, metadata=caller.metadata)

        count, tokens, failure = 0, list[str](), None
        with self._connection.changing():
            for source in dict.fromkeys(self._selected(sources) or ("",)):
                request.source = source
                try:
                    response = await self._call(attempt, caller, largest="ids" if ids else "where")
                except InvalidRequest:
                    raise
                except RecalldError as error:
                    failure = failure or error
                    continue
                count += response.deleted_count
                tokens.append(response.commit_token)
        if failure is not None:
            raise failure
        return DeletedItems(count, commit_tokens.merge(tokens))
