"""Commit tokens of one upstream, made by several calls, as one token."""

from __future__ import annotations

from collections.abc import Iterable

from recalld.errors import InvalidField
from recalld_server.application import tokens


def merged(made: Iterable[str]) -> str:
    """A token of the state that every given token names; later calls' tokens come later.

    Clients cannot look into tokens, but this server reads those of an upstream of its own kind: of each of the
    upstream's sources the highest revision counts. Where two tokens read differently, the later one counts.
    """
    result = ""
    for token in made:
        result = _both(result, token)
    return result


def _both(earlier: str, later: str) -> str:
    if not earlier or not later:
        return later or earlier
    old, new = _revision(earlier), _revision(later)
    if old is not None and new is not None:
        return earlier if old[0] == new[0] and old[1] > new[1] else later
    try:
        parts, others = tokens.split(earlier), tokens.split(later)
    except InvalidField:
        return later
    # A source of the upstream may be remote too; then its part is again a token of several sources.
    return tokens.join(parts | {name: _both(parts.get(name, ""), part) for name, part in others.items()})


def _revision(token: str) -> tuple[str, int] | None:
    """The scope's digest and the revision in the token of a single source."""
    digest, dot, revision = token.partition(".")
    try:
        return (digest, int(revision, 16)) if dot and ":" not in token else None
    except ValueError:
        return None
