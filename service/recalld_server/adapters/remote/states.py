"""Merging commit tokens, from the library."""

from recalld.commit_tokens import merge as merged

__all__ = ["merged"]
