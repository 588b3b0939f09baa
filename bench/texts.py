"""Made-up short texts to measure on: varied in words and length, and the same for the same seed."""

from __future__ import annotations

import random

_WHO = ("Maya", "Jonas", "Priya", "Farid", "Ingrid", "Tomas", "Aiko", "Lena", "Omar", "Chen", "Ruth", "Pavel", "Nadia")
_DOES = ("prefers", "dislikes", "moved", "changed", "booked", "reviewed", "forgot", "cancelled", "described", "bought")
_WHAT = (
    "the morning train",
    "a green bicycle",
    "the quarterly report",
    "black coffee without sugar",
    "the deployment of the billing service",
    "a window seat",
    "her sister's wedding",
    "the flat near the harbour",
    "weekly reviews",
    "the spare key",
    "an old piano",
    "the database migration",
    "vegetarian food",
    "a crime novel",
    "error logs of the gateway",
    "the budget for travel",
)
_WHEN = (
    "last spring",
    "on Tuesdays",
    "before nine",
    "after the outage",
    "since the move",
    "in the summer holidays",
    "during the release",
    "because of the weather",
    "when the office was closed",
    "at the request of support",
)


def sentences(generator: random.Random, count: int, clauses: int = 3) -> list[str]:
    """`count` texts of one to `clauses` clauses, each of some 8 words."""
    return [
        " and ".join(
            f"{generator.choice(_WHO)} {generator.choice(_DOES)} {generator.choice(_WHAT)} {generator.choice(_WHEN)}"
            f" ({generator.randrange(10_000)})"
            for _ in range(generator.randint(1, clauses))
        )
        for _ in range(count)
    ]
