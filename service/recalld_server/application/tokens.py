"""Commit tokens, from the library."""

from recalld.commit_tokens import decode, encode, join, split

__all__ = ["decode", "encode", "join", "split"]
