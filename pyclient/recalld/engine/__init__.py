"""The engine of a memory: its rules over two ports, a record store and an embedder."""

from recalld.engine.in_memory import InMemoryRecords
from recalld.engine.local import LocalMemory

__all__ = ["InMemoryRecords", "LocalMemory"]
