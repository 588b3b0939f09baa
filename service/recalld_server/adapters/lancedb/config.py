"""What a LanceDB store is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from recalld.engine.ports import ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """When a table is tidied.

    commits: how many commits pile up before a quiet moment is used; the bound grows by one for every 5,000 rows, since
    compaction rewrites the table. forced: how many commits pile up before writes have to wait for it.
    quiet: seconds without a waiting write that count as a quiet moment.
    horizon: how long old versions stay readable; never shorter than the longest read. What a delete blanked is on the
    disk until then.
    """

    commits: int = 20
    forced: int = 200
    quiet: float = 0.05
    horizon: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceConfig:
    """One store.

    name: stamped on every item as its source and origin. root: a directory, or the URI of an object store. Between
    processes on one local directory writes are serialised; on an object store that has to be one server a scope, since
    nothing there can be locked: two would still leave one row a key, but may give one revision twice.
    durability: `fsync` acknowledges a change when its files are on the disk, `commit` when LanceDB has committed it;
    an object store is always durable at commit. open_tables: how many scopes stay open. waiting: how many changes of a
    scope may wait before callers are held back. group_rows: how many rows one commit takes at most, beyond the first
    change. vector_index_threshold: from how many rows on a scope's vectors are indexed; below, search is exact.
    receipt_retention: how long a repeated idempotency key is recognised.
    """

    name: str
    root: Path | str
    model: ModelIdentity
    durability: Literal["fsync", "commit"] = "fsync"
    index_cache_bytes: int = 128 << 20
    metadata_cache_bytes: int = 64 << 20
    open_tables: int = 64
    waiting: int = 1024
    group_rows: int = 2048
    vector_index_threshold: int = 50_000
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    receipt_retention: timedelta = timedelta(days=7)
