"""Input that no honest client sends, against the real store."""

from __future__ import annotations

import base64
import hashlib

import grpc
import pytest
from calls import Client, item

from recalld.v1 import item_pb2, memory_service_pb2
from recalld.wire import error_from_rpc


def forged(request: memory_service_pb2.ListRequest, cursor: bytes) -> str:
    """A token as the server makes them: nothing in it is secret, so whoever reads the source can make one."""
    said = request.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(
        len(said).to_bytes(8, "big") + said + cursor, digest_size=16, person=b"recalld.page"
    ).digest()
    return base64.urlsafe_b64encode(digest + cursor).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor", [b"", b"abc", b"1.5", b"-1", b" 1 ", b"1_0", b"9" * 30, b"9223372036854775808", b"\xd9\xa1"]
)
def test_a_forged_page_token_is_refused(client: Client, cursor):
    client.write(item("tea", "a"))
    request = memory_service_pb2.ListRequest(scope=client.scope, page_size=2)
    request.page_token = forged(request, cursor)
    with pytest.raises(grpc.RpcError) as caught:
        client.memory.List(request, timeout=30)
    assert error_from_rpc(caught.value, "memory").reason == "PAGE_TOKEN_MISMATCH"


def test_updates_key_by_key_do_not_grow_metadata_over_its_limit(client: Client):
    client.write(item("tea", "a"))

    def put(key: str, length: int) -> memory_service_pb2.UpdateResponse:
        metadata = {key: item_pb2.Value(string_value="v" * length)}
        request = memory_service_pb2.UpdateRequest(scope=client.scope, item=item("", "a", metadata=metadata))
        request.update_mask.paths.append(f"metadata.{key}")
        return client.memory.Update(request, timeout=30)

    put("first", 40_000)
    with pytest.raises(grpc.RpcError) as caught:
        put("second", 40_000)
    error = error_from_rpc(caught.value, "memory")
    assert error.reason == "INVALID_FIELD"
    assert list(error.violations) == ["item.metadata"]
    assert sorted(put("second", 20_000).item.metadata) == ["first", "second"]
