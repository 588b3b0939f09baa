"""Pages of a list: bound to their request, cut to the size of a message, complete."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalld.errors import PageTokenMismatch
from recalld.item import MemoryItem
from recalld.limits import Limits
from recalld.v1 import filter_pb2, item_pb2
from recalld.v1 import memory_service_pb2 as pb
from recalld_server.transport import page_tokens


async def pages(client, scope, **fields):
    token, found = "", []
    while True:
        page = await client.memory.List(pb.ListRequest(scope=scope, page_token=token, **fields))
        found.append(page)
        token = page.next_page_token
        if not token:
            return found


async def test_pages_go_on_where_the_last_one_ended(client, notebook, scope, tenant):
    notebook.add(tenant, *(MemoryItem("x", "", id=f"n{number}") for number in range(25)))
    found = await pages(client, scope, page_size=10)
    assert [len(page.items) for page in found] == [10, 10, 5]
    assert [item.id for page in found for item in page.items] == [f"n{number}" for number in range(24, -1, -1)]


@pytest.mark.parametrize(("asked", "given_"), [(0, 100), (1, 1), (1000, 1000), (5000, 1000)])
async def test_a_page_has_as_many_items_as_asked_within_the_limits(client, notebook, scope, tenant, asked, given_):
    notebook.add(tenant, *(MemoryItem("x", "", id=f"n{number}") for number in range(1001)))
    page = await client.memory.List(pb.ListRequest(scope=scope, page_size=asked))
    assert len(page.items) == given_


async def test_pages_of_large_items_are_cut_shorter_and_miss_nothing(start, notebook, scope, tenant):
    most = 256 * 1024
    client = await start(limits=Limits(max_message_bytes=most))
    sizes = [60_000, 1, 65_000, 30_000, 65_536, 65_536, 65_536, 65_536, 10, 40_000, 65_536] * 5
    notebook.add(tenant, *(MemoryItem("x" * size, "", id=f"n{at}") for at, size in enumerate(sizes)))
    found = await pages(client, scope, page_size=1000)
    assert [item.id for page in found for item in page.items] == [f"n{at}" for at in range(len(sizes) - 1, -1, -1)]
    assert all(page.items for page in found)
    assert max(page.ByteSize() for page in found) <= most
    # Cut, but not needlessly: two neighbours never fit into one message.
    assert all(a.ByteSize() + b.items[0].ByteSize() > most - 10_000 for a, b in pairwise(found))


async def test_a_large_page_is_read_in_stretches(client, notebook, scope, tenant):
    notebook.add(tenant, *(MemoryItem("x", "", id=f"n{number}") for number in range(1000)))
    await client.memory.List(pb.ListRequest(scope=scope, page_size=1000))
    assert max(notebook.listings) <= 200


async def test_an_item_larger_than_a_message_does_not_stop_the_paging(start, notebook, scope, tenant):
    client = await start(limits=Limits(max_message_bytes=256 * 1024))
    notebook.add(tenant, *(MemoryItem("x" * size, "", id=f"n{size}") for size in (5, 300_000, 6)))
    found = await pages(client, scope)
    assert [[item.id for item in page.items] for page in found] == [["n6"], ["n300000"], ["n5"]]


OTHER = {
    "org": {"scope": item_pb2.Scope(org_id="other", domain_id="support")},
    "domain": {"scope": item_pb2.Scope(org_id="acme", domain_id="other")},
    "size": {"page_size": 3},
    "source": {"source": "memory"},
    "where": {"where": filter_pb2.Filter(exists="id")},
    "empty where": {"where": filter_pb2.Filter()},
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
async def test_a_token_of_another_request_is_refused(client, notebook, scope, tenant, fails, change):
    notebook.add(tenant, *(MemoryItem("x", "", id=f"n{number}") for number in range(5)))
    page = await client.memory.List(pb.ListRequest(scope=scope, page_size=2))
    fields = {"scope": scope, "page_size": 2, "page_token": page.next_page_token, **change}
    fault = await fails(client.memory.List(pb.ListRequest(**fields)))
    assert (fault.code.name, fault.reason) == ("INVALID_ARGUMENT", "PAGE_TOKEN_MISMATCH")
    assert "page_token" in fault.message


@pytest.mark.parametrize(
    "token", ["x", "!!!", "é", "AAAA", "A" * 22, "A" * 10_000, base64.b64encode(b"\xff" * 40).decode()]
)
async def test_rubbish_is_no_token(client, scope, fails, token):
    fault = await fails(client.memory.List(pb.ListRequest(scope=scope, page_token=token)))
    assert fault.reason == "PAGE_TOKEN_MISMATCH"


REQUEST = pb.ListRequest(scope=item_pb2.Scope(org_id="acme", domain_id="support"), page_size=7)


@given(st.text(min_size=1, max_size=40), st.integers(0, 200), st.sampled_from("abcXYZ019-_"))
def test_a_token_comes_back_whole_or_not_at_all(cursor, at, character):
    token = page_tokens.encode(REQUEST, cursor)
    request = pb.ListRequest()
    request.CopyFrom(REQUEST)
    request.page_token = token
    assert page_tokens.decode(request, Limits()) == cursor
    at %= len(token)
    damaged = token[:at] + character + token[at + 1 :]
    request.page_token = damaged
    # The last character may hold bits that mean nothing.
    if at == len(token) - 1 or damaged == token:
        return
    with pytest.raises(PageTokenMismatch):
        page_tokens.decode(request, Limits())
