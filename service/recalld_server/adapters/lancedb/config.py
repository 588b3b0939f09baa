"""What a LanceDB store is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from recalld.engine.local import read_system_clock
from recalld.engine.ports import Clock, ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """When a table is tidied.

    commits: how many commits pile up before a quiet moment is used; the bound grows by one for every 5,000 rows, since
    compaction rewrites the table. rows: how many rows pile up before a quiet moment is used; the bound grows to an
    eighth of the table. A fifth of it is enough once writes have stopped, five times as many are too many to wait.
    forced: how many commits pile up before writes have to wait for it.
    quiet, settled: seconds without a waiting write that count as a quiet moment, and as writes having stopped.
    horizon: how long old versions stay readable; never shorter than the longest read. What a delete blanked is on the
    disk until then.
    """

    commits: int = 20
    rows: int = 1_000
    forced: int = 200
    quiet: float = 0.05
    settled: float = 0.5
    horizon: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceConfig:
    """One store.

    name: stamped on every item as its source and origin. root: a directory, or the URI of an object store. A commit at
    a head that has moved is refused by the database itself, so several servers may write to either; on a local disk
    they take turns as well.
    durability: `fsync` acknowledges a change when its files are on the disk, `commit` when LanceDB has committed it;
    an object store is always durable at commit. open_tables: how many scopes stay open. vector_index_threshold: from
    how many rows on a scope's vectors are indexed; below, search is exact. receipt_retention: how long a repeated
    idempotency key is recognised. expired_retention: how long an expired memory is kept before its content is erased,
    by `clock`.
    """

    name: str
    root: Path | str
    model: ModelIdentity
    durability: Literal["fsync", "commit"] = "fsync"
    index_cache_bytes: int = 128 << 20
    metadata_cache_bytes: int = 64 << 20
    open_tables: int = 64
    vector_index_threshold: int = 50_000
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    receipt_retention: timedelta = timedelta(days=7)
    expired_retention: timedelta = timedelta(days=7)
    clock: Clock = read_system_clock
