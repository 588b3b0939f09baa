"""proto <-> domain, both ways. The library and the server convert here and nowhere else."""

from recalld.values import Violations
from recalld.wire.errors import (
    STATUS_DETAILS,
    decode_write_error,
    encode_write_error,
    error_from_rpc,
    reason_name,
    reason_number,
    status_bytes,
)
from recalld.wire.filters import MAX_CONDITIONS, MAX_FILTER_LEVELS, MAX_VALUE_LEVELS, decode_filter, encode_filter
from recalld.wire.items import (
    decode_item,
    decode_scope,
    decode_write,
    encode_item,
    encode_scope,
    encode_write,
    encode_writes,
    metadata_bytes,
)
from recalld.wire.values import (
    MAX_ID_BYTES,
    MAX_KEY_BYTES,
    MAX_LEVELS,
    checked_text,
)

__all__ = [
    "MAX_CONDITIONS",
    "MAX_FILTER_LEVELS",
    "MAX_ID_BYTES",
    "MAX_KEY_BYTES",
    "MAX_LEVELS",
    "MAX_VALUE_LEVELS",
    "STATUS_DETAILS",
    "Violations",
    "checked_text",
    "decode_filter",
    "decode_item",
    "decode_scope",
    "decode_write",
    "decode_write_error",
    "encode_filter",
    "encode_item",
    "encode_scope",
    "encode_write",
    "encode_write_error",
    "encode_writes",
    "error_from_rpc",
    "metadata_bytes",
    "reason_name",
    "reason_number",
    "status_bytes",
]
