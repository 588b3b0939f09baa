"""The LanceDB engine, imported in the one way that is safe for a server.

Lance sizes its thread pools once, when it is first used: cores - 2, at least 1. With a pool of one thread, scans that
wait for one another are known to hang, so both pools get two before the import.

A third of what `import lancedb` takes goes into the REST client of catalogues that the embedded engine never calls, so
that one waits until somebody does.
"""

from __future__ import annotations

import os
from typing import Any

from recalld_server.adapters.lancedb.on_demand import import_on_demand

for _pool in ("LANCE_CPU_THREADS", "LANCE_IO_THREADS"):
    if int(os.environ.get(_pool) or 0) < 2:
        os.environ[_pool] = str(max(2, (os.cpu_count() or 2) - 1))
# Its warnings (`No existing dataset at <path>`) are not ours to print, and they carry absolute paths.
os.environ.setdefault("LANCEDB_LOG", "error")

import_on_demand("lance_namespace_urllib3_client")

import lancedb as _lancedb  # noqa: E402
import pyarrow as _pyarrow  # noqa: E402
import pyarrow.compute as _compute  # noqa: E402

# Neither has full stubs: taken as untyped here, so that nothing else has to say so.
lancedb: Any = _lancedb
pa: Any = _pyarrow
compute: Any = _compute
