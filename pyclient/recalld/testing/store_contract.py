"""What every memory store keeps to, as tests that a store of your own can run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from recalld.errors import (
    IdempotencyKeyReused,
    InvalidFilter,
    InvalidRequest,
    ItemNotFound,
    RecalldError,
    RevisionMismatch,
    ScopeRequired,
)
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld.scope import Ctx, Scope
from recalld.store import UNSET, MemoryStore, RetrievalMode, SearchQuery, WriteBatch, WriteOutcome
from recalld.testing.contract import MemorySourceContract
from recalld.testing.suite import check, check_equal, fail, on_a_loop, skip_unless, typed

_SPARE = 50


class MemoryStoreContract(MemorySourceContract):
    """Subclass it, name the subclass `Test...`, override `make_source` with one that gives a store, and pytest runs
    this suite and that of a source on it.

    The store is fresh, takes writes, and holds three memories in the scope of `ctx` that match `query`. The hooks say
    what else it can do; a test that does not apply is skipped, and says why.
    """

    scoped = True
    keeps_metadata = True

    #: Whether it finds by meaning too.
    semantic: ClassVar[bool] = False
    #: Whether commit tokens name states.
    commit_tokens: ClassVar[bool] = True
    #: Names that may stand in the split of a write; None for the store's own name only.
    writers: ClassVar[frozenset[str] | None] = None
    #: The most items of one batch, of which the suite writes one more than fit; None where nothing bounds it.
    max_batch_items: ClassVar[int | None] = 500

    def call(self, user: str | None = None, **fields: Any) -> Ctx:
        """The context of `ctx`, on behalf of a user."""
        return replace(Ctx(scope=self.ctx().scope), user_id=user, **fields)

    # What a search tells

    @on_a_loop
    async def test_search_tells_how_it_found(self, store: MemoryStore) -> None:
        """Hits have the rank by words that their order has, and the short form gives the same items."""
        result = await store.search(SearchQuery(self.query, mode=RetrievalMode.LEXICAL), ctx=self.call())
        check(len(result.hits) >= 3, f"{len(result.hits)} hits by words")
        ranks = [hit.lexical_rank for hit in result.hits]
        check_equal(ranks, list(range(1, len(ranks) + 1)), "the ranks by words")
        for hit in result.hits:
            check(hit.lexical_score is not None, "a hit by words has its score")
            check_equal((hit.semantic_rank, hit.semantic_score), (0, None), "the rank by meaning of a search by words")
        check_equal(result.degradations, type(result.degradations)(), "the degradations")
        hybrid = await store.search(SearchQuery(self.query, _SPARE), ctx=self.call())
        found = await store.query(self.query, k=_SPARE, ctx=self.call())
        check_equal([item.id for item in found], [hit.item.id for hit in hybrid.hits], "the ids of the short form")

    @on_a_loop
    async def test_a_mode_that_it_cannot_do_is_a_degradation(self, store: MemoryStore) -> None:
        """By meaning it finds, or says that it cannot; it does not answer in another way."""
        result = await store.search(SearchQuery(self.query, mode=RetrievalMode.SEMANTIC), ctx=self.call())
        if self.semantic:
            check([hit.semantic_rank for hit in result.hits][:1] == [1], "the best by meaning has rank 1")
            check(not result.degradations, f"degraded: {result.degradations}")
        else:
            check(not result.hits and result.degradations, f"{len(result.hits)} hits without a degradation")

    @on_a_loop
    async def test_an_empty_text_lists_the_newest(self, store: MemoryStore) -> None:
        """Without words the newest come first, unranked."""
        await self._commit(store, self._item("later", id="later"))
        result = await store.search(SearchQuery("", 1), ctx=self.call())
        check_equal([hit.item.id for hit in result.hits], ["later"], "the newest")
        check_equal(result.hits[0].item.score, None, "the score of what was not ranked")

    @on_a_loop
    async def test_commit_tokens_name_states(self, store: MemoryStore) -> None:
        """A search that asks for the state of a commit sees it; another scope's token, or none at all, is refused."""
        skip_unless(self.commit_tokens, "the store has no commit tokens")
        outcome = await self._commit(store, self._item("tokened", id="t"))
        check(outcome.commit_token, "a commit has a token")
        query = SearchQuery("", 1, min_commit_token=outcome.commit_token)
        result = await store.search(query, ctx=self.call())
        check_equal([hit.item.id for hit in result.hits], ["t"], "what the token promises")
        check(result.commit_token, "a search has a token")
        check(await store.commit_token(ctx=self.call()), "the state of now has a token")
        elsewhere = replace(self.call(), scope=Scope("another", "scope"))
        for token, ctx in (("no token", self.call()), (outcome.commit_token, elsewhere)):
            with suppress(RecalldError):
                await store.search(replace(query, min_commit_token=token), ctx=ctx)
                fail(f"min_commit_token {token!r} is taken")

    # What becomes of a write

    @on_a_loop
    async def test_a_commit_tells_what_became_of_it(self, store: MemoryStore) -> None:
        """The split has every writer once; ids are the caller's own, or fresh ones, each its own."""
        outcome = await self._commit(store, self._item("one", id="mine"), self._item("two"), self._item("three"))
        check_equal(set(outcome.accepted), set(self.writers or {store.name}), "who accepted")
        check_equal((list(outcome.refused), dict(outcome.failed)), ([], {}), "who refused and who failed")
        check_equal(outcome.replayed, False, "whether it was a repeat")
        ids = list(outcome.ids)
        check(len(set(ids)) == 3 and all(ids), f"three items have three ids, not {ids}")
        check_equal(ids[0], "mine", "the caller's own id")
        check_equal([item.id for item in await store.get(ids, ctx=self.call())], ids, "the ids read back")

    @on_a_loop
    async def test_an_id_is_one_memory(self, store: MemoryStore) -> None:
        """Writing an id again replaces what was there, and keeps its birth and its place."""
        await self._commit(store, self._item("first", id="a", metadata={"x": 1}), self._item("other", id="b"))
        (before,) = await store.get(["a"], ctx=self.call())
        await self._commit(store, self._item("second", id="a"))
        (after,) = await store.get(["a"], ctx=self.call())
        check_equal((after.content, dict(after.metadata)), (self._text("second"), {}), "what is there now")
        check_equal(_attributes(after).create_time, _attributes(before).create_time, "the create time")
        check(_attributes(after).revision > _attributes(before).revision, "the revision grows")
        check_equal([item.id for item in await self._newest(store)][:2], ["b", "a"], "the order")

    @on_a_loop
    async def test_writers_of_one_id_at_once_leave_one_memory(self, store: MemoryStore) -> None:
        """Concurrent writes of one new id, each durable, leave one record."""
        await asyncio.gather(*(self._commit(store, self._item(f"by {n}", id="same")) for n in range(8)))
        found = [item async for item in store.list(ctx=self.call()) if item.id == "same"]
        check_equal(len(found), 1, "how many records the id has")

    @on_a_loop
    async def test_a_key_applies_once(self, store: MemoryStore) -> None:
        """A repeat under the same idempotency key answers as the first did and changes nothing, whatever came in
        between; other items under it are refused; so are repeats side by side."""
        batch = WriteBatch([self._item("keyed", metadata={"n": 1}), self._item("also")], "key-1")
        first = await store.commit(batch, ctx=self.call())
        await store.delete([first.ids[0]], ctx=self.call())
        again = await store.commit(batch, ctx=self.call())
        check_equal((list(again.ids), again.replayed), (list(first.ids), True), "the repeat")
        check_equal(await store.get([first.ids[0]], ctx=self.call()), [], "what was deleted in between")
        other = WriteBatch([self._item("keyed", metadata={"n": 1.0}), self._item("also")], "key-1")
        with suppress(IdempotencyKeyReused):
            outcome = await store.commit(other, ctx=self.call())
            check(any(isinstance(each, IdempotencyKeyReused) for each in outcome.failed.values()), "the key is reused")
        batch = WriteBatch([self._item("at once")], "key-2")
        outcomes = await asyncio.gather(*(store.commit(batch, ctx=self.call()) for _ in range(4)))
        check_equal(
            {tuple(outcome.ids) for outcome in outcomes}, {tuple(outcomes[0].ids)}, "the ids of repeats at once"
        )
        check_equal(sum(not outcome.replayed for outcome in outcomes), 1, "how often it was applied")

    @on_a_loop
    async def test_the_short_write_takes_a_key(self, store: MemoryStore) -> None:
        """A caller can retry a write after an unknown outcome."""
        for _ in range(2):
            await store.write([self._item("retried")], ctx=self.call(), idempotency_key="retry")  # type: ignore[call-arg]
        found = [item async for item in store.list(ctx=self.call()) if item.content == self._text("retried")]
        check_equal(len(found), 1, "how many memories two tries leave")

    @on_a_loop
    async def test_a_lane_keeps_its_order(self, store: MemoryStore) -> None:
        """Batches of one lane are stored in the order in which they were given, whatever they hold."""
        long = [self._item(f"filler {n} " + "word " * 200) for n in range(40)]
        batches = [[*long, self._item("first", id="x")], [self._item("second", id="x")], [self._item("third", id="y")]]
        await asyncio.gather(*(store.commit(WriteBatch(items, lane="lane"), ctx=self.call()) for items in batches))
        (x,) = await store.get(["x"], ctx=self.call())
        check_equal(x.content, self._text("second"), "the last batch of the id")
        check_equal((await self._newest(store))[0].id, "y", "the last batch of the lane")

    @on_a_loop
    async def test_a_wrong_batch_leaves_nothing(self, store: MemoryStore) -> None:
        """Every violation is told by its place, and nothing of the batch is stored."""
        bad = [
            self._item("fine", id="fine"),
            MemoryItem("", "suite"),
            self._item("far", attributes=MemoryAttributes(importance=1.5)),
            self._item("odd", metadata={"at": datetime(2024, 1, 1)}),  # noqa: DTZ001 - the fault
            self._item("twice", id="fine"),
        ]
        violations = await self._violations(store.commit(WriteBatch(bad), ctx=self.call()))
        expected = {
            "items[1].content", "items[2].attributes.importance", "items[3].metadata.at", "items[4].id"
        }  # fmt: skip
        check_equal(set(violations), expected, "the violations")
        check_equal(await store.get(["fine"], ctx=self.call()), [], "what is stored of a wrong batch")
        if self.max_batch_items is not None:
            many = WriteBatch([self._item(str(n)) for n in range(self.max_batch_items + 1)])
            check("items" in await self._violations(store.commit(many, ctx=self.call())), "a batch has its limit")

    @on_a_loop
    async def test_reads_show_defaults(self, store: MemoryStore) -> None:
        """What is unset reads as filters see it."""
        await self._commit(store, self._item("plain", id="plain"))
        (item,) = await store.get(["plain"], ctx=self.call())
        shown = _attributes(item)
        check_equal((shown.memory_type, shown.namespace), ("semantic", "default"), "type and namespace")
        check_equal((shown.importance, shown.confidence), (0.5, 1.0), "importance and confidence")
        check_equal(
            (shown.visibility, shown.status), (Visibility.PRIVATE, MemoryStatus.ACTIVE), "visibility and status"
        )
        check(shown.create_time is not None and shown.update_time is not None, "the times of the store")

    @on_a_loop
    async def test_what_is_given_reads_back(self, store: MemoryStore) -> None:
        """Content, metadata and every attribute that a writer sets come back as they were, of the same types."""
        given = MemoryAttributes(
            memory_type="episodic", namespace="trips", user_id="u", session_id="s", agent_id="a", run_id="r",
            visibility=Visibility.ORG, importance=0.25, confidence=0.0,
            event_time=datetime(1969, 7, 20, 20, 17, 40, 123456, UTC), expire_time=datetime(9999, 1, 1, tzinfo=UTC),
        )  # fmt: skip
        item = MemoryItem("Straße  \t 東京 end", "suite", metadata=dict(self.metadata), id="k/\n'", attributes=given)
        await store.commit(WriteBatch([item]), ctx=self.call())
        (found,) = await store.get(["k/\n'"], ctx=self.call())
        check_equal((found.content, found.score, found.id), (item.content, None, item.id), "the item")
        check_equal(typed(found.metadata), typed(item.metadata), "the metadata")
        shown = {name: getattr(_attributes(found), name) for name in vars(given)}
        for name, value in vars(given).items():
            if value != vars(MemoryAttributes())[name]:
                check_equal(shown[name], value, f"attributes.{name}")

    # Records

    @on_a_loop
    async def test_get_keeps_the_order_asked(self, store: MemoryStore) -> None:
        """In the order asked, each once, and without those that are not there."""
        await self._commit(store, self._item("a", id="a"), self._item("b", id="b"))
        found = await store.get(["b", "missing", "a", "b"], ctx=self.call())
        check_equal([item.id for item in found], ["b", "a"], "the ids")

    @on_a_loop
    async def test_a_list_has_each_item_once(self, store: MemoryStore) -> None:
        """Newest first over all pages, also when items come and go meanwhile."""
        await self._commit(store, *(self._item(str(n), id=f"n{n}") for n in range(7)))
        seen: list[str | None] = []
        async for item in store.list(ctx=self.call(), page_size=2):
            seen.append(item.id)
            if len(seen) == 3:
                await self._commit(store, self._item("newer", id="newer"))
                await store.delete(["n3"], ctx=self.call())
        expected = [f"n{n}" for n in (6, 5, 4, 2, 1, 0)]
        check_equal([id for id in seen if id in expected], expected, "the ids in order")
        check_equal(len(seen), len(set(seen)), "how many are listed, and how many different ones")
        page = await store.list_page(ctx=self.call(), page_size=2)
        check(len(page.items) == 2 and page.next_page_token, "a page has its size and says that it goes on")
        with suppress(InvalidRequest):
            await store.list_page(ctx=self.call(), page_token="forged")  # noqa: S106 - no password
            fail("a forged page token is taken")

    @on_a_loop
    async def test_a_list_filters(self, store: MemoryStore) -> None:
        """By metadata, attributes and id; a wrong condition is an error and not an empty list."""
        await self._commit(
            store, self._item("a", id="a", metadata={"n": 1}), self._item("b", id="b", metadata={"n": 2})
        )
        for where, expected in (({"n": 2}, ["b"]), ({"n": {"$gte": 1}}, ["b", "a"]), ({"id": "a"}, ["a"])):
            found = [item.id async for item in store.list(ctx=self.call(), where=where)]
            check_equal(found, expected, f"the list where {where}")
        with suppress(InvalidFilter):
            await self._newest(store, where={"attributes.status": "Active"})
            fail("a status that there is not is taken")

    @on_a_loop
    async def test_update_changes_what_is_given(self, store: MemoryStore) -> None:
        """Content, metadata whole or by key, attributes by name; the rest stays, and updates of different fields never
        undo each other."""
        given = MemoryAttributes(importance=0.1, namespace="n")
        await self._commit(store, self._item("old", id="u", metadata={"a": 1, "b": 2}, attributes=given))
        item = await store.update("u", ctx=self.call(), content="entirely fresh words")
        check_equal((item.content, dict(item.metadata)), ("entirely fresh words", {"a": 1, "b": 2}), "new content")
        found = await store.search(SearchQuery("entirely", mode=RetrievalMode.LEXICAL), ctx=self.call())
        check_equal([hit.item.id for hit in found.hits], ["u"], "what the new words find")
        item = await store.update("u", ctx=self.call(), metadata_changes={"b": UNSET, "c": [1, None]})
        check_equal(typed(item.metadata), typed({"a": 1, "c": [1, None]}), "metadata by key")
        item = await store.update("u", ctx=self.call(), metadata={"d": True})
        check_equal(typed(item.metadata), typed({"d": True}), "metadata whole")
        item = await store.update("u", ctx=self.call(), attributes={"importance": 0.9, "namespace": None})
        shown = _attributes(item)
        check_equal((shown.importance, shown.namespace), (0.9, "default"), "attributes by name")
        item = await store.update("u", ctx=self.call(), attributes=MemoryAttributes(session_id="s"))
        shown = _attributes(item)
        check_equal((shown.importance, shown.session_id), (0.9, "s"), "attributes that are set")
        await asyncio.gather(
            store.update("u", ctx=self.call(), attributes={"importance": 0.3}),
            store.update("u", ctx=self.call(), metadata_changes={"e": 5}),
        )
        (item,) = await store.get(["u"], ctx=self.call())
        check_equal((_attributes(item).importance, item.metadata["e"]), (0.3, 5), "two updates at once")

    @on_a_loop
    async def test_update_can_ask_for_a_revision(self, store: MemoryStore) -> None:
        """Only the revision that was read is changed; what is not there is ITEM_NOT_FOUND."""
        await self._commit(store, self._item("r", id="r"))
        (item,) = await store.get(["r"], ctx=self.call())
        revision = _attributes(item).revision
        await store.update("r", ctx=self.call(), metadata={"x": 1}, if_revision=revision)
        with suppress(RevisionMismatch):
            await store.update("r", ctx=self.call(), metadata={"x": 2}, if_revision=revision)
            fail("an old revision is taken")
        with suppress(ItemNotFound):
            await store.update("missing", ctx=self.call(), metadata={})
            fail("an item that is not there was updated")
        wrongs: list[dict[str, Any]] = [
            {"attributes": {"revision": 3}},
            {"content": ""},
            {"attributes": {"importance": 7}},
        ]
        for wrong in wrongs:
            check(await self._violations(store.update("r", ctx=self.call(), **wrong)), f"{wrong} is taken")

    @on_a_loop
    async def test_delete_takes_what_it_is_told(self, store: MemoryStore) -> None:
        """By ids or by a condition; a dry run counts and takes nothing; what is gone is found by nobody."""
        await self._commit(store, *(self._item(f"gone {n}", id=f"d{n}", metadata={"n": n}) for n in range(4)))
        check_equal(await store.delete(["d0", "d0", "missing"], ctx=self.call(), dry_run=True), 1, "a dry run by id")
        check_equal(await store.delete(ctx=self.call(), where={"n": {"$gte": 2}}, dry_run=True), 2, "a dry run")
        check_equal(len(await store.get(["d0", "d1", "d2", "d3"], ctx=self.call())), 4, "what a dry run leaves")
        check_equal(await store.delete(["d0", "d0", "missing"], ctx=self.call()), 1, "how many were deleted by id")
        check_equal(await store.delete(ctx=self.call(), where={"n": {"$gte": 2}}), 2, "how many were deleted")
        check_equal([i.id for i in await store.get(["d0", "d1", "d2", "d3"], ctx=self.call())], ["d1"], "what is left")
        found = await store.search(SearchQuery("gone", _SPARE), ctx=self.call())
        check(not {"d0", "d2", "d3"} & {hit.item.id for hit in found.hits}, "a deleted memory is found")
        for ids, where in ((None, None), (["d1"], {"n": 1}), ([], None)):
            check(await self._violations(store.delete(ids, where=where, ctx=self.call())), f"{ids}, {where} is taken")

    @on_a_loop
    async def test_a_deleted_id_starts_anew(self, store: MemoryStore) -> None:
        """It can be written again, as a new memory with a later revision."""
        await self._commit(store, self._item("old", id="z", metadata={"x": 1}), self._item("mid", id="mid"))
        (before,) = await store.get(["z"], ctx=self.call())
        await store.delete(["z"], ctx=self.call())
        await self._commit(store, self._item("new", id="z"))
        (after,) = await store.get(["z"], ctx=self.call())
        check_equal(dict(after.metadata), {}, "the metadata")
        check(_attributes(after).revision > _attributes(before).revision, "the revision grows")
        check_equal([item.id for item in await self._newest(store)][:2], ["z", "mid"], "the order")

    @on_a_loop
    async def test_expired_memories_are_hidden(self, store: MemoryStore) -> None:
        """From search, get, list and update; a delete by condition takes them."""
        past = MemoryAttributes(expire_time=datetime.now(UTC) - timedelta(hours=1))
        await self._commit(store, self._item("expired", id="e", attributes=past, metadata={"n": 1}))
        found = await store.search(SearchQuery("expired", _SPARE), ctx=self.call())
        check("e" not in [hit.item.id for hit in found.hits], "an expired memory is found")
        check_equal(await store.get(["e"], ctx=self.call()), [], "an expired memory by id")
        check_equal(await self._newest(store, where={"n": 1}), [], "an expired memory in a list")
        with suppress(ItemNotFound):
            await store.update("e", ctx=self.call(), metadata={})
            fail("an expired memory was updated")
        check_equal(await store.delete(ctx=self.call(), where={"n": 1}), 1, "how many expired ones a delete takes")

    # Who a call is for

    @on_a_loop
    async def test_private_memories_are_their_users(self, store: MemoryStore) -> None:
        """A call on behalf of a user neither sees nor touches another's private memory, by any method."""
        mine, other = self.call("maya"), self.call("noor")
        await store.commit(WriteBatch([self._item("secret", id="p", metadata={"n": 1})]), ctx=mine)
        (own,) = await store.get(["p"], ctx=mine)
        check_equal(_attributes(own).user_id, "maya", "whose it is that names nobody")
        found = await store.search(SearchQuery("secret", _SPARE), ctx=other)
        check("p" not in [hit.item.id for hit in found.hits], "another's private memory is found")
        check_equal(await store.get(["p"], ctx=other), [], "another's private memory by id")
        check_equal([item.id async for item in store.list(ctx=other, where={"n": 1})], [], "and in a list")
        with suppress(ItemNotFound):
            await store.update("p", ctx=other, metadata={})
            fail("another's private memory was updated")
        check_equal(await store.delete(["p"], ctx=other), 0, "how many of another's were deleted by id")
        check_equal(await store.delete(ctx=other, where={"n": 1}), 0, "how many of another's were deleted")
        violations = await self._violations(store.commit(WriteBatch([self._item("mine", id="p")]), ctx=other))
        check_equal(set(violations), {"items[0].id"}, "what is wrong with another's id")
        (own,) = await store.get(["p"], ctx=mine)
        check_equal(own.content, self._text("secret"), "what it was")
        check_equal([item.id for item in await store.get(["p"], ctx=self.call())], ["p"], "a call without a user")

    @on_a_loop
    async def test_shared_memories_are_everybodys(self, store: MemoryStore) -> None:
        """Visible to the organisation, or private without a user: seen by every user of the scope."""
        shared = MemoryAttributes(visibility=Visibility.ORG)
        await store.commit(WriteBatch([self._item("shared", id="o", attributes=shared)]), ctx=self.call("maya"))
        await store.commit(WriteBatch([self._item("nobody's", id="n")]), ctx=self.call())
        found = await store.get(["o", "n"], ctx=self.call("noor"))
        check_equal([item.id for item in found], ["o", "n"], "what another user sees")

    @on_a_loop
    async def test_a_private_memory_is_the_callers(self, store: MemoryStore) -> None:
        """On behalf of a user nobody else's private memory is written; an organisation's may name anybody."""
        private = self._item("private", attributes=MemoryAttributes(user_id="noor"))
        violations = await self._violations(store.commit(WriteBatch([private]), ctx=self.call("maya")))
        check_equal(set(violations), {"items[0].attributes.user_id"}, "the violations")
        attributes = MemoryAttributes(user_id="noor", visibility=Visibility.ORG)
        outcome = await store.commit(WriteBatch([self._item("org", attributes=attributes)]), ctx=self.call("maya"))
        check(outcome.accepted, "an organisation's memory may name another user")

    @on_a_loop
    async def test_what_is_written_names_its_context(self, store: MemoryStore) -> None:
        """Session, agent and run of the context stand in for those that an item does not name."""
        ctx = self.call("maya", session_id="s", agent_id="a", run_id="r")
        await store.commit(WriteBatch([self._item("told", id="c", attributes=MemoryAttributes(run_id="own"))]), ctx=ctx)
        (item,) = await store.get(["c"], ctx=self.call("maya"))
        shown = _attributes(item)
        check_equal((shown.session_id, shown.agent_id, shown.run_id), ("s", "a", "own"), "session, agent and run")

    @on_a_loop
    async def test_every_call_needs_a_whole_scope(self, store: MemoryStore) -> None:
        """A scope that lacks a part is refused by every method."""
        ctx = Ctx(scope=Scope("acme", None))
        for call in (
            store.search(SearchQuery("x"), ctx=ctx),
            store.commit(WriteBatch([self._item("x")]), ctx=ctx),
            store.get(["x"], ctx=ctx),
            store.list_page(ctx=ctx),
            store.update("x", ctx=ctx, content="x"),
            store.delete(["x"], ctx=ctx),
        ):
            with suppress(ScopeRequired):
                await call
                fail("an incomplete scope is taken")

    @on_a_loop
    async def test_records_keep_to_their_scope(self, store: MemoryStore) -> None:
        """One id in two scopes is two memories; neither scope reads, changes or deletes the other's."""
        await self._commit(store, self._item("ours", id="s"))
        own = self.ctx().scope
        for scope in (Scope("another", own.domain_id), Scope(own.org_id, "another")):
            ctx = Ctx(scope=scope)
            check_equal(await store.get(["s"], ctx=ctx), [], f"the id in {scope}")
            check_equal([item async for item in store.list(ctx=ctx)], [], f"the list of {scope}")
            check_equal(await store.delete(["s"], ctx=ctx), 0, f"what {scope} deletes")
            with suppress(ItemNotFound):
                await store.update("s", ctx=ctx, metadata={})
                fail(f"{scope} updated another scope's memory")
        check_equal(len(await store.get(["s"], ctx=self.call())), 1, "what is left of ours")

    # Inside.

    def _text(self, what: str) -> str:
        return f"suite {what}"

    def _item(self, what: str, **fields: Any) -> MemoryItem:
        return MemoryItem(self._text(what), "suite", **fields)

    async def _commit(self, store: MemoryStore, *items: MemoryItem) -> WriteOutcome:
        outcome = await store.commit(WriteBatch(items), ctx=self.call())
        outcome.raise_for_failures()
        return outcome

    async def _newest(self, store: MemoryStore, where: Any = None) -> list[MemoryItem]:
        return [item async for item in store.list(ctx=self.call(), where=where)]

    async def _violations(self, call: Any) -> dict[str, str]:
        """The violations of a call that must be refused as wrong."""
        violations: dict[str, str] | None = None
        try:
            await call
        except InvalidRequest as error:
            violations = error.violations
        check(violations is not None, "a wrong call is taken")
        return violations or {}


def _attributes(item: MemoryItem) -> MemoryAttributes:
    if item.attributes is None:
        fail(f"item {item.id!r} has no attributes")
    return item.attributes
