"""The recalld server, and its engine for use in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recalld_server.extras import needing

if TYPE_CHECKING:
    from recalld_server.local import EmbeddedMemory

__all__ = ["embedded"]


def embedded(path: str | Path, *, name: str = "memory", model: Path | None = None) -> EmbeddedMemory:
    """A memory in this process, over the data directory `path`: see `recalld_server.local.EmbeddedMemory`.

    The same code moves to a server by putting `RemoteMemory("HOST:PORT")` in its place. Raises MissingExtra without
    `recalld[server]`.
    """
    # Imported on use: the command line must not load LanceDB and the model's runtime to print its help.
    with needing("server", "recalld_server.embedded"):
        from recalld_server.local import EmbeddedMemory

    return EmbeddedMemory(path, name=name, model=model)
