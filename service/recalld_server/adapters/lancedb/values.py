"""Typed metadata as LanceDB columns: one to read back, the others to filter by.

To read back: JSON text, in which a time is `{"$time": microseconds}` and a map that would look like such a mark is
wrapped as `{"$map": ...}`. JSON keeps 1, 1.0 and -0.0 apart, and 64-bit integers whole.

To filter by: `tokens`, digests of what a filter can ask of a path (that it is there, that it equals a value, that its
list has a member), and for each ordered type a list of path digests beside the list of values at those paths.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

from recalld.errors import InvalidField
from recalld_server.adapters.lancedb.sql import instant, micros

Path = tuple[str, ...]

#: What digests have beside letters and digits: nothing that means anything in SQL, quoted or not.
DIGEST_SIGNS = b"._"

#: 96 bits as 16 characters of base64: far from chance, and half of what hexadecimal digits take in a column.
_DIGEST_BYTES = 12
_DIGEST_CHARACTERS = 16


@dataclass(slots=True)
class FilterColumns:
    """What one item's metadata contributes to the filter columns; `*_paths[i]` is where `*_values[i]` stands."""

    tokens: list[str] = field(default_factory=list[str])
    integer_paths: list[str] = field(default_factory=list[str])
    integer_values: list[int] = field(default_factory=list[int])
    double_paths: list[str] = field(default_factory=list[str])
    double_values: list[float] = field(default_factory=list[float])
    string_paths: list[str] = field(default_factory=list[str])
    string_values: list[str] = field(default_factory=list[str])
    time_paths: list[str] = field(default_factory=list[str])
    time_values: list[int] = field(default_factory=list[int])


def dump(metadata: Mapping[str, Any]) -> str:
    """The JSON text of metadata. Raises InvalidField for what metadata cannot hold."""
    try:
        text = json.dumps({key: _plain(value) for key, value in metadata.items()}, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidField(violations={"metadata": str(error)}) from error
    return text


def load(text: str) -> dict[str, Any]:
    """The metadata of a JSON text that `dump` made."""
    return {key: _typed(value) for key, value in json.loads(text).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$time": micros(value)}
    if isinstance(value, Mapping):
        members = {key: _plain(member) for key, member in cast("Mapping[str, Any]", value).items()}
        return {"$map": members} if len(members) == 1 and next(iter(members)) in ("$time", "$map") else members
    if isinstance(value, (list, tuple)):
        return [_plain(member) for member in cast("Sequence[Any]", value)]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"integer {value} is over 64 bits")
    return value


def _typed(value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(member) for member in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if len(members) == 1:
            if "$time" in members:
                return instant(members["$time"])
            if "$map" in members:
                members = cast("dict[str, Any]", members["$map"])
        return {key: _typed(member) for key, member in members.items()}
    return value


def filter_columns(metadata: Mapping[str, Any]) -> FilterColumns:
    """The filter columns of metadata; absent and null leave no trace in them."""
    columns = FilterColumns()
    for path, value in _paths((), metadata):
        columns.tokens.append(exists_token(path))
        columns.tokens.extend(_some(value_token(path, value)))
        place = path_digest(path)
        if isinstance(value, bool):
            pass
        elif isinstance(value, int):
            columns.integer_paths.append(place)
            columns.integer_values.append(value)
        elif isinstance(value, float):
            columns.double_paths.append(place)
            columns.double_values.append(value + 0.0)
        elif isinstance(value, str):
            columns.string_paths.append(place)
            columns.string_values.append(value)
        elif isinstance(value, datetime):
            columns.time_paths.append(place)
            columns.time_values.append(micros(value))
        elif isinstance(value, (list, tuple)):
            members = cast("Sequence[Any]", value)
            columns.tokens.extend(
                dict.fromkeys(token for member in members for token in _some(member_token(path, member)))
            )
    return columns


def _paths(path: Path, value: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    for key, member in value.items():
        if member is None:
            continue
        below = (*path, key)
        yield below, member
        if isinstance(member, Mapping):
            yield from _paths(below, cast("Mapping[str, Any]", member))


def _some(token: str | None) -> tuple[str, ...]:
    return () if token is None else (token,)


# The items of a scope have much the same paths; the caches are small, since paths are a tenant's text.
@lru_cache(2048)
def path_digest(path: Path) -> str:
    """The digest of a path, as the `*_paths` columns hold it."""
    return _digest(b"p", path, b"")


@lru_cache(2048)
def exists_token(path: Path) -> str:
    """The token of items that have something other than null at the path."""
    return _digest(b"e", path, b"")


def value_token(path: Path, value: Any) -> str | None:
    """The token of items whose value at the path is the same as `value`; None when nothing is the same as it."""
    return _token(b"v", path, value)


def value_tokens(path: Path, values: Iterable[Any]) -> list[str]:
    """The tokens of values at one path, as `value_token` makes them, without the Nones. Quick, for a filter may ask for
    hundreds of thousands."""
    start = blake2b(b"v" + _encoded(path), digest_size=_DIGEST_BYTES)
    digests: list[bytes] = []
    for value in values:
        if type(value) is str:
            text = value.encode()
            canonical = b"s%d:%b" % (len(text), text)
        elif type(value) is int:
            canonical = b"i%d;" % value
        else:
            parts: list[bytes] = []
            if value is None or not _canonical(value, parts):
                continue
            canonical = b"".join(parts)
        digest = start.copy()
        digest.update(canonical)
        digests.append(digest.digest())
    # Twelve bytes are sixteen characters without a rest, so the digests can be written down as one text.
    text = b64encode(b"".join(digests), DIGEST_SIGNS).decode()
    return [text[at : at + _DIGEST_CHARACTERS] for at in range(0, len(text), _DIGEST_CHARACTERS)]


def member_token(path: Path, value: Any) -> str | None:
    """The token of items with a list at the path that has `value` as a member."""
    return _token(b"m", path, value)


def _token(tag: bytes, path: Path, value: Any) -> str | None:
    if value is None and tag == b"v":
        return None
    canonical: list[bytes] = []
    return _digest(tag, path, b"".join(canonical)) if _canonical(value, canonical) else None


def _digest(tag: bytes, path: Path, value: bytes) -> str:
    digest = blake2b(tag + _encoded(path) + value, digest_size=_DIGEST_BYTES).digest()
    return b64encode(digest, DIGEST_SIGNS).decode()


@lru_cache(2048)
def _encoded(path: Path) -> bytes:
    parts = [b"%d" % len(path)]
    for key in path:
        _sized(key.encode(), parts)
    return b"".join(parts)


def _sized(text: bytes, parts: list[bytes]) -> None:
    parts.append(b"%d:" % len(text))
    parts.append(text)


def _canonical(value: Any, parts: list[bytes]) -> bool:
    """Appends bytes that are equal exactly for values that `recalld.filters.same` calls the same; False for NaN."""
    if value is None:
        parts.append(b"N")
    elif isinstance(value, bool):
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int):
        parts.append(b"i%d;" % value)
    elif isinstance(value, float):
        if math.isnan(value):
            return False
        # A whole double is the integer that it equals: 1.0 is 1, and 2.0**53 is not 2**53 + 1.
        parts.append(b"i%d;" % int(value) if value.is_integer() else b"f" + value.hex().encode() + b";")
    elif isinstance(value, str):
        parts.append(b"s")
        _sized(value.encode(), parts)
    elif isinstance(value, datetime):
        parts.append(b"t%d;" % micros(value))
    elif isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        parts.append(b"{%d:" % len(members))
        for key in sorted(members):
            _sized(key.encode(), parts)
            if not _canonical(members[key], parts):
                return False
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast("Sequence[Any]", value)
        parts.append(b"[%d:" % len(items))
        return all(_canonical(member, parts) for member in items)
    else:
        return False
    return True
