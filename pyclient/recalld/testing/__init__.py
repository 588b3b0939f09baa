"""For the tests of whoever builds on recalld: a contract suite for sources, and sources to stand in for real ones."""

from recalld.testing.contract import MemorySourceContract
from recalld.testing.fakes import BlockedMemory, FailingMemory, InMemoryVectors, ListMemory

__all__ = ["BlockedMemory", "FailingMemory", "InMemoryVectors", "ListMemory", "MemorySourceContract"]
