"""The store on LanceDB. Nothing outside this package sees a LanceDB or Arrow type."""

from recalld_server.adapters.lancedb.config import LanceConfig, MaintenancePolicy
from recalld_server.adapters.lancedb.store import LanceStore, open_store

__all__ = ["LanceConfig", "LanceStore", "MaintenancePolicy", "open_store"]
