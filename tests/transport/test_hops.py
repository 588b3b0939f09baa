"""Servers that name each other as sources."""

from __future__ import annotations

import socket

import pytest

from recalld.errors import InvalidField, RecalldError
from recalld.item import MemoryItem
from recalld.scope import Ctx, Scope
from recalld.sources.remote import RemoteMemory
from recalld.store import SearchQuery, WriteBatch


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


async def test_a_circle_of_servers_is_cut_and_told(start, new_notebook):
    ports = [free_port(), free_port()]
    books = [new_notebook("first"), new_notebook("second")]
    remotes = [RemoteMemory(f"127.0.0.1:{ports[1]}", name="b"), RemoteMemory(f"127.0.0.1:{ports[0]}", name="a")]
    for port, book, remote in zip(ports, books, remotes, strict=True):
        await start(book, remote, listen=f"127.0.0.1:{port}")
    ctx = Ctx(Scope("acme", "support"))
    async with RemoteMemory(f"127.0.0.1:{ports[0]}") as memory:
        with pytest.raises(InvalidField, match="name each other"):
            await memory.search(SearchQuery("words", 3), ctx=ctx)
        # Each server asks its own memory once.
        assert [len(book.searches) for book in books] == [1, 1]
        try:
            outcome = await memory.commit(WriteBatch([MemoryItem("words", "")]), ctx=ctx)
            told = str(outcome.failed)
        except RecalldError as error:
            told = str(error)
        assert [len(book.batches) for book in books] == [1, 1]
        assert "name each other" in told
    for remote in remotes:
        await remote.close()
