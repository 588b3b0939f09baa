"""The store on LanceDB. Nothing outside this package sees a LanceDB or Arrow type."""

from recalld_server.adapters.lancedb.config import LanceConfig, MaintenancePolicy
from recalld_server.adapters.lancedb.store import LanceRecords, open_records

__all__ = ["LanceConfig", "LanceRecords", "MaintenancePolicy", "open_records"]
