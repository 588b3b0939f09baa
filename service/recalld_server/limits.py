"""Every limit that the server enforces: the one table that validation, GetServerInfo and the comments in `proto/`
share."""

from __future__ import annotations

from dataclasses import dataclass

from recalld.wire import MAX_ID_BYTES, MAX_KEY_BYTES, MAX_LEVELS

#: The smallest `max_message_bytes` under which any single item, with its metadata and attributes, can be sent.
SMALLEST_MESSAGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may hold. Bytes of text are UTF-8 bytes; every `max_` is itself allowed.

    The first five are told by GetServerInfo; of these an operator may set `max_batch_items` and `max_message_bytes`.
    """

    #: Items in one batch; at least one.
    max_batch_items: int = 500
    #: One message, either way.
    max_message_bytes: int = 4 * 1024 * 1024
    #: Batches of one Write stream that are read but not yet acknowledged.
    max_unacked_batches: int = 8
    #: `MemoryItem.content`.
    max_content_bytes: int = 65_536
    #: `QueryRequest.k`.
    max_k: int = 1000

    #: `QueryRequest.k` where it is 0.
    default_k: int = 10
    #: `QueryRequest.query`.
    max_query_bytes: int = 8192
    #: `QueryRequest.candidates`.
    max_candidates: int = 10_000
    #: `RankFusion.k`.
    max_rank_constant: int = 10_000
    #: Either weight of `RankFusion`; far below where a sum of weights stops being finite.
    max_weight: float = 1_000_000.0
    #: `min_commit_token`, which holds one part for each source.
    max_commit_token_bytes: int = 4096

    #: `Scope.org_id` and `Scope.domain_id`, in code points.
    max_scope_characters: int = 128
    #: An item id.
    max_id_bytes: int = MAX_ID_BYTES
    #: Ids in one BatchGet or Delete.
    max_ids: int = 1000
    #: The metadata of one item as it stands on the wire.
    max_metadata_bytes: int = 65_536
    #: Keys and indices on the way from `metadata` to a value.
    max_metadata_levels: int = MAX_LEVELS
    #: Each string of `MemoryAttributes`, and `on_behalf_of_user_id`.
    max_attribute_bytes: int = 256
    #: `idempotency_key`.
    max_idempotency_key_bytes: int = MAX_KEY_BYTES
    #: Paths of one `update_mask`.
    max_mask_paths: int = 100

    #: `ListRequest.page_size` where it is 0.
    default_page_size: int = 100
    #: Items of one page; a larger `page_size` means this.
    max_page_size: int = 1000
    #: `page_token`; no token that the server makes comes near it.
    max_page_token_bytes: int = 4096
