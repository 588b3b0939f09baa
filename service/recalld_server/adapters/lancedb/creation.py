"""Makes the table of a scope, so that of several servers that try at once all get the same one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

from recalld_server.adapters.lancedb.layout import Layout

#: The beginning of the names of tables that are not in place yet; a crash may leave one, which is empty.
BEING_MADE = "new-"


async def make_empty(connection: Any, layout: Layout, name: str, schema: Any) -> None:
    """Makes an empty table under this name where there is none; the caller opens it afterwards, whoever made it.

    `create_table` is not safe between servers: it overwrites a table that came up since it looked. On a local disk the
    caller holds the table's lock. Elsewhere an empty table of our own is cloned into the name: a clone is always
    version 1, which exists once.
    """
    if layout.local is not None:
        with suppress(ValueError):  # another process was first; the lock has kept it from being overwritten
            await connection.create_table(name, schema=schema, mode="create")
        return
    own = f"{BEING_MADE}{uuid4().hex}"
    await connection.create_table(own, schema=schema)
    try:
        # Who comes second gets one of several errors, and on some stores the first one too: opening the table tells.
        with suppress(RuntimeError):
            await connection.clone_table(name, f"{layout.uri}/{own}.lance", is_shallow=True)
    finally:
        await connection.drop_table(own)
