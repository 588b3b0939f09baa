"""For the tests of whoever builds on recalld: contract suites for sources, stores and record stores, and sources to
stand in for real ones."""

from recalld.testing.contract import MemorySourceContract
from recalld.testing.fakes import BlockedMemory, FailingMemory, InMemoryVectors, ListMemory, ScriptedStore
from recalld.testing.record_contract import RecordStoreContract
from recalld.testing.store_contract import MemoryStoreContract

__all__ = [
    "BlockedMemory",
    "FailingMemory",
    "InMemoryVectors",
    "ListMemory",
    "MemorySourceContract",
    "MemoryStoreContract",
    "RecordStoreContract",
    "ScriptedStore",
]
