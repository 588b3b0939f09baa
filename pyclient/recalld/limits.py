"""Every limit of the contract: the one table that all doors, GetServerInfo and the comments in `proto/` share."""

from __future__ import annotations

from dataclasses import dataclass

#: The smallest `max_message_bytes` under which any single item, with its metadata and attributes, can be sent.
SMALLEST_MESSAGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may hold. Bytes of text are UTF-8 bytes; every `max_` is itself allowed.

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
    max_id_bytes: int = 256
    #: Ids in one BatchGet or Delete.
    max_ids: int = 1000
    #: The metadata of one item as it stands on the wire.
    max_metadata_bytes: int = 65_536
    #: Keys and indices on the way from `metadata` to a value.
    max_metadata_levels: int = 16
    #: Values in one item's metadata. Far more than its bytes can hold; it bounds the walk through a structure that
    #: shares parts of itself, which can be small in memory and astronomically large written out.
    max_metadata_values: int = 65_536
    #: Each string of `MemoryAttributes`, and `on_behalf_of_user_id`.
    max_attribute_bytes: int = 256
    #: `idempotency_key`.
    max_idempotency_key_bytes: int = 256
    #: Paths of one `update_mask`.
    max_mask_paths: int = 100

    #: Conditions in one filter, those that join others included. A test of one field against many values is one.
    max_filter_conditions: int = 256
    #: How deep conditions nest. With `max_filter_value_levels` it keeps a request inside the 100 messages that protobuf
    #: parses.
    max_filter_levels: int = 16
    #: How deep a value that a condition compares to nests.
    max_filter_value_levels: int = 10
    #: Values of one `in`.
    max_in_values: int = 1000

    #: Servers that a call may come through before this one.
    max_hops: int = 4

    #: `ListRequest.page_size` where it is 0.
    default_page_size: int = 100
    #: Items of one page; a larger `page_size` means this.
    max_page_size: int = 1000
    #: `page_token`; no token that the server makes comes near it.
    max_page_token_bytes: int = 4096


#: The limits of the contract, where nobody has set others.
LIMITS = Limits()
