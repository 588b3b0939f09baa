"""Page tokens: where the next page of a list begins, bound to the request that they continue."""

from __future__ import annotations

import base64
import binascii
import hashlib

from recalld.errors import PageTokenMismatch
from recalld.limits import Limits
from recalld.v1 import memory_service_pb2 as pb

_DIGEST_BYTES = 16


def encode(request: pb.ListRequest, cursor: str) -> str:
    """The token with which the same request goes on at the store's own token, `cursor`; URL-safe text."""
    return base64.urlsafe_b64encode(_digest(request, cursor.encode()) + cursor.encode()).decode().rstrip("=")


def decode(request: pb.ListRequest, limits: Limits) -> str:
    """The store's own token in the request's, empty without one.

    Raises PageTokenMismatch for a token that was made for a request with any other field, or was not made here.
    """
    token = request.page_token
    if not token:
        return ""
    if len(token) > limits.max_page_token_bytes:
        raise _mismatch()
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars="-_", validate=True)
        digest, cursor = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if not cursor or digest != _digest(request, cursor):
            raise _mismatch()
        return cursor.decode()
    except (binascii.Error, ValueError):
        raise _mismatch() from None


def _digest(request: pb.ListRequest, cursor: bytes) -> bytes:
    """Of every field but the token, and of the cursor, so that a damaged token is noticed."""
    rest = pb.ListRequest()
    rest.CopyFrom(request)
    rest.ClearField("page_token")
    said = rest.SerializeToString(deterministic=True)
    # The length keeps the two parts apart.
    return hashlib.blake2b(
        len(said).to_bytes(8, "big") + said + cursor, digest_size=_DIGEST_BYTES, person=b"recalld.page"
    ).digest()


def _mismatch() -> PageTokenMismatch:
    return PageTokenMismatch(violations={"page_token": "was not made by a request with the same fields"})
