"""What every call carries: tenant and user in the request, the rest of the context in the call's metadata."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from recalld.client.patience import Patience
from recalld.errors import InvalidField, WrongType
from recalld.scope import Ctx, CtxLike, as_ctx
from recalld.v1 import item_pb2
from recalld.values import Violations, name_type
from recalld.wire import checked_text, encode_scope

Metadata = Sequence[tuple[str, str | bytes]]
"""Metadata of a call: pairs of a lower-case key and text, or bytes where the key ends with `-bin`."""

_KEY = re.compile(r"[0-9a-z_.-]+")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and how long there is to answer: timeout in seconds, deadline in seconds of `time.monotonic()`."""

    scope: item_pb2.Scope
    user: str
    metadata: Metadata
    timeout: float
    deadline: float | None

    def patience(self, *, attempts: int | None = None) -> Patience:
        """The time of one call, from now on."""
        return Patience(self.timeout, deadline=self.deadline, attempts=attempts)


def read_ctx(ctx: CtxLike) -> Ctx:
    """The context as a `Ctx`. Raises WrongType for an object that is none."""
    try:
        return as_ctx(ctx)
    except AttributeError:
        fault = f"needs a scope with org_id and domain_id, which {name_type(ctx)} lacks"
        raise WrongType(violations={"ctx": fault}) from None


def read_caller(ctx: Ctx, metadata: Metadata, timeout: float) -> Caller:
    """The caller that a checked context names, with the metadata of its calls."""
    return Caller(encode_scope(ctx.scope), ctx.user_id or "", read_metadata(ctx, metadata), timeout, ctx.deadline)


def read_metadata(ctx: Ctx, metadata: Metadata) -> Metadata:
    """The metadata of a call: what is always sent, and what the context has to be carried on from hop to hop. Raises
    InvalidField for what headers cannot carry."""
    told = list(metadata)
    violations: Violations = {}
    for key, field, value in (
        ("x-request-id", "request_id", ctx.request_id),
        ("traceparent", "trace", ctx.trace),
        ("x-recalld-via", "via", ",".join(ctx.via)),
    ):
        if not value:
            continue
        if _is_header_text(text := str(value)):
            told.append((key, text))
        else:
            violations[field] = "must be printable ASCII without spaces around it"
    raise_violations(violations)
    return told


def check_metadata(metadata: Metadata, path: str) -> Metadata:
    """The pairs, checked to be what headers can carry. Raises InvalidField."""
    if isinstance(metadata, (str, bytes)):
        raise WrongType(violations={path: "must be a sequence of pairs of a key and a value"})
    violations: Violations = {}
    pairs: list[tuple[str, str | bytes]] = []
    for index, pair in enumerate(cast("Iterable[Any]", metadata)):
        match pair:
            case (str(key), bytes(value)) if _KEY.fullmatch(key) and key.endswith("-bin"):
                pairs.append((key, value))
            case (str(key), str(value)) if _KEY.fullmatch(key) and not key.endswith("-bin") and _is_header_text(value):
                pairs.append((key, value))
            case _:
                violations[f"{path}[{index}]"] = (
                    "must be a pair of a lower-case key and printable ASCII without spaces around it, "
                    "or bytes where the key ends with -bin"
                )
    raise_violations(violations)
    return tuple(pairs)


def replace_metadata(metadata: Metadata, others: Metadata) -> Metadata:
    """Both; of a key that both have, only what `others` has."""
    replaced = {key for key, _ in others}
    return (*(pair for pair in metadata if pair[0] not in replaced), *others) if others else metadata


def encode_token(token: Any) -> Metadata:
    """A bearer token as metadata; none for None. Raises InvalidField for one that a header cannot carry."""
    if token is None:
        return ()
    if not isinstance(token, str) or not _is_header_text(token):
        raise InvalidField(violations={"token": "must be printable ASCII without spaces around it"})
    return (("authorization", f"Bearer {token}"),)


def check_timeout(timeout: Any) -> float:
    """The seconds. Raises InvalidField for what is no positive number of them."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise WrongType(violations={"timeout": f"must be a number of seconds, not {name_type(timeout)}"})
    if not (math.isfinite(timeout) and timeout > 0):
        raise InvalidField(violations={"timeout": f"is {timeout}; it must be a positive number of seconds"})
    return timeout


def check_names(names: Any, path: str) -> tuple[str, ...]:
    """A sequence of texts, such as names of sources or ids. Raises InvalidField for anything else."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise WrongType(violations={path: f"must be a sequence of strings, not {name_type(names)}"})
    violations: Violations = {}
    checked = tuple(
        checked_text(name, f"{path}[{index}]", violations) for index, name in enumerate(cast("Iterable[Any]", names))
    )
    raise_violations(violations)
    return checked


def raise_violations(violations: Violations) -> None:
    """Raises InvalidField when there are any."""
    if violations:
        raise InvalidField(violations=violations)


def _is_header_text(text: str) -> bool:
    return text.isascii() and text.isprintable() and text.strip() == text != ""
