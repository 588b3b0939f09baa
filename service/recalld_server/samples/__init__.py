"""Sample memories for the demo: what an assistant might have learnt about one person and her work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from importlib import resources

from recalld.item import MemoryAttributes, MemoryItem
from recalld.scope import Scope

#: The tenant that the samples belong to.
SAMPLE_SCOPE = Scope("demo", "demo")

#: Questions in words that the memories do not use, one that shares words, and one that only the exact word answers.
SAMPLE_QUESTIONS = (
    "which nuts would be dangerous for her?",
    "is she vegetarian?",
    "who looks after the pet while they are on holiday?",
    "why did checkout fail in April?",
    "ERR-4271-XK",
)


def sample_items() -> Sequence[MemoryItem]:
    """The sample memories, each with a fixed id, so that writing them again changes nothing."""
    lines = resources.files("recalld_server.samples").joinpath("memories.jsonl").read_text("utf-8").splitlines()
    return [_item(index, json.loads(line)) for index, line in enumerate(lines, 1)]


def _item(index: int, entry: dict[str, str]) -> MemoryItem:
    when = datetime.fromisoformat(entry["when"]) if "when" in entry else None
    return MemoryItem(
        entry["content"],
        "samples",
        metadata={"topic": entry["topic"]},
        id=f"sample-{index:02}",
        attributes=MemoryAttributes(memory_type=entry["type"], user_id="maya", event_time=when),
    )
