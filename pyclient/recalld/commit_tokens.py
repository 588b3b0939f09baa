"""Commit tokens: how a caller names a state that it wrote or read.

A source's token holds a digest of the scope and a revision; the composition's token holds one token a source. Both are
opaque to callers and carry nothing of a tenant.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from recalld.errors import InvalidField
from recalld.scope import Scope

_REVISION = re.compile(r"[0-9a-f]{1,16}")


def encode(scope: Scope, revision: int) -> str:
    """The token of a revision of a scope."""
    return f"{_digest(scope)}.{revision:x}"


def decode(scope: Scope, token: str) -> int:
    """The revision in a token of this scope. Raises InvalidField for any other text."""
    digest, dot, revision = token.partition(".")
    if not dot or digest != _digest(scope):
        raise _invalid("is not a commit token of this scope")
    if not _REVISION.fullmatch(revision):  # `int` alone would take signs, spaces and underscores too
        raise _invalid("is not a commit token")
    return int(revision, 16)


def join(tokens: Mapping[str, str]) -> str:
    """One token for several sources; those without a token are left out. A name may be any text."""
    return ",".join(
        f"{quote(name, safe='')}:{base64.urlsafe_b64encode(token.encode()).decode().rstrip('=')}"
        for name, token in tokens.items()
        if token
    )


def split(token: str) -> dict[str, str]:
    """The tokens by source. Raises InvalidField for text that `join` did not make."""
    tokens: dict[str, str] = {}
    for part in token.split(",") if token else ():
        quoted, colon, inner = part.partition(":")
        name = unquote(quoted)
        if not (name and colon and inner) or name in tokens:
            raise _invalid("is not a commit token")
        try:
            tokens[name] = base64.b64decode(inner + "=" * (-len(inner) % 4), altchars="-_", validate=True).decode()
        except ValueError:  # of base64 as well as of UTF-8
            raise _invalid("is not a commit token") from None
    return tokens


def merge(made: Iterable[str]) -> str:
    """A token of the state that every given token names; later calls' tokens come later.

    Of each source the highest revision counts, also of the sources behind a source. Where two tokens read differently,
    the later one counts.
    """
    result = ""
    for token in made:
        result = _merge_two(result, token)
    return result


def _merge_two(earlier: str, later: str) -> str:
    if not earlier or not later:
        return later or earlier
    old, new = _read_revision(earlier), _read_revision(later)
    if old is not None and new is not None:
        return earlier if old[0] == new[0] and old[1] > new[1] else later
    try:
        parts, others = split(earlier), split(later)
    except InvalidField:
        return later
    return join(parts | {name: _merge_two(parts.get(name, ""), part) for name, part in others.items()})


def _read_revision(token: str) -> tuple[str, int] | None:
    """The scope's digest and the revision in the token of a single source; None for any other text."""
    digest, dot, revision = token.partition(".")
    return (digest, int(revision, 16)) if dot and ":" not in digest and _REVISION.fullmatch(revision) else None


def _invalid(why: str) -> InvalidField:
    return InvalidField(violations={"min_commit_token": why})


def _digest(scope: Scope) -> str:
    text = "\x00".join((scope.org_id or "", scope.domain_id or ""))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
