"""Ids and fingerprints of a batch, from the library."""

from recalld.identity import assign_ids as keyed
from recalld.identity import compute_fingerprint as fingerprint

__all__ = ["fingerprint", "keyed"]
