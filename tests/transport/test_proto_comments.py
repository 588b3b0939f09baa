"""The comments of the contract state the limits that are enforced."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from string import Formatter

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from recalld.limits import Limits

PROTO = Path(__file__).parents[2] / "proto"

#: What the comment of an element says, with the names of limits in place of numbers.
STATED = {
    "Scope.org_id": ["1-{max_scope_characters} characters"],
    "MemoryItem.id": ["At most {max_id_bytes} UTF-8 bytes"],
    "MemoryItem.content": ["At most {max_content_bytes} UTF-8 bytes"],
    "MemoryItem.metadata": ["At most {max_metadata_bytes} bytes", "at most {max_metadata_levels} levels"],
    "MemoryAttributes": ["at most {max_attribute_bytes} UTF-8 bytes"],
    "MemoryAttributes.supersedes_id": ["At most {max_id_bytes} UTF-8 bytes"],
    "Filter": ["At most {max_filter_conditions} conditions, nested at most {max_filter_levels} levels"],
    "Comparison.value": ["at most {max_filter_value_levels} levels"],
    "QueryRequest.query": ["At most {max_query_bytes} UTF-8 bytes"],
    "QueryRequest.k": ["0 means {default_k}; 1-{max_k}"],
    "Membership.values": ["At most {max_in_values}"],
    "QueryRequest.candidates": ["1-{max_candidates}"],
    "QueryRequest.min_commit_token": ["At most {max_commit_token_bytes} UTF-8 bytes"],
    "QueryRequest.on_behalf_of_user_id": ["At most {max_attribute_bytes} UTF-8 bytes"],
    "RankFusion.k": ["1-{max_rank_constant}"],
    "RankFusion.lexical_weight": ["0 to {max_weight:.0f}"],
    "RankFusion.semantic_weight": ["0 to {max_weight:.0f}"],
    "WriteRequest.idempotency_key": ["At most {max_idempotency_key_bytes} UTF-8 bytes"],
    "BatchGetRequest.ids": ["1-{max_ids}", "at most {max_id_bytes} UTF-8 bytes"],
    "DeleteRequest.ids": ["At most {max_ids}", "at most {max_id_bytes} UTF-8 bytes"],
    "ListRequest.page_size": ["0 means {default_page_size}; values above {max_page_size} mean {max_page_size}"],
    "UpdateRequest.update_mask": ["1-{max_mask_paths} paths"],
    "ServerLimits.max_batch_items": ["{max_batch_items} unless"],
    "ServerLimits.max_message_bytes": ["{max_message_bytes} unless"],
    "ServerLimits.max_unacked_batches": [": {max_unacked_batches}."],
    "ServerLimits.max_content_bytes": [": {max_content_bytes}."],
    "ServerLimits.max_k": [": {max_k}."],
}

#: Tokens are opaque: their length is nobody's concern who passes on what the server made. The number of values is
#: bounded by their bytes first, and hops are counted by servers that know one another.
UNSTATED = {"max_page_token_bytes", "max_metadata_values", "max_hops"}

NUMBERS = dataclasses.asdict(Limits())


@pytest.fixture(scope="module")
def comments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The comment of every message and field, on one line."""
    target = tmp_path_factory.mktemp("proto") / "contract.bin"
    files = [str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto")]
    well_known = Path(protoc.__file__).parent / "_proto"
    command = ["protoc", f"-I{PROTO}", f"-I{well_known}", "--include_source_info", f"--descriptor_set_out={target}"]
    assert protoc.main([*command, *files]) == 0
    found: dict[str, str] = {}
    for file in descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file:
        for location in file.source_code_info.location:
            text = " ".join(location.leading_comments.split())
            match list(location.path):
                case [4, message]:
                    found[file.message_type[message].name] = text
                case [4, message, 2, field]:
                    owner = file.message_type[message]
                    found[f"{owner.name}.{owner.field[field].name}"] = text
    return found


@pytest.mark.parametrize(("element", "phrase"), [(name, phrase) for name, all in STATED.items() for phrase in all])
def test_the_comment_states_the_limit(comments, element, phrase):
    assert phrase.format(**NUMBERS) in comments[element]


def test_every_limit_is_stated_somewhere():
    named = {name for all in STATED.values() for phrase in all for _, name, _, _ in Formatter().parse(phrase) if name}
    assert named | UNSTATED == set(NUMBERS)
