"""The table of one scope: its columns, and the metadata by which it says whose it is and what made its vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from recalld.engine.ports import ModelIdentity
from recalld.errors import EmbeddingModelMismatch, StorageCorrupt
from recalld.filters import ATTRIBUTES, Kind
from recalld.scope import Scope
from recalld_server.adapters.lancedb.engine import pa
from recalld_server.adapters.lancedb.layout import FORMAT

#: Attributes that are not columns: the origin is the store, and a revision is kept for receipts and tombstones as well.
_NOT_COLUMNS = ("origin", "revision")

#: The column of each attribute has its name.
ATTRIBUTE_COLUMNS: Mapping[str, Kind] = {name: kind for name, kind in ATTRIBUTES.items() if name not in _NOT_COLUMNS}

_TIME = pa.timestamp("us", tz="UTC")
_TYPES = {
    Kind.STRING: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIME: _TIME,
}

# Declared in the field itself, the primary key is there from the first commit on; without one, concurrent upserts of
# a new key leave two rows.
_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

#: What a filter column of metadata holds.
METADATA_COLUMNS: Mapping[str, Any] = {
    "tokens": pa.list_(pa.string()),
    "integer_paths": pa.list_(pa.string()),
    "integer_values": pa.list_(pa.int64()),
    "double_paths": pa.list_(pa.string()),
    "double_values": pa.list_(pa.float64()),
    "string_paths": pa.list_(pa.string()),
    "string_values": pa.list_(pa.string()),
    "time_paths": pa.list_(pa.string()),
    "time_values": pa.list_(pa.int64()),
}

#: Everything but vectors and what is derived: what an item is read back from.
ITEM_COLUMNS = ("id", "content", "metadata", "revision", *ATTRIBUTE_COLUMNS)
#: What a replaced row leaves to its successor.
STATE_COLUMNS = ("key", "id", "live", "sequence", "revision", "receipt", *ATTRIBUTE_COLUMNS)
#: What a change of a row starts from.
ROW_COLUMNS = (*STATE_COLUMNS, "content", "metadata", "vector")


def table_schema(scope: Scope, model: ModelIdentity) -> Any:
    """The Arrow schema of a scope's table.

    A row is a memory or the receipt of a write, told apart by the first character of its key; `live` is true for
    memories that are not deleted. `words` is what full text searches.
    """
    return pa.schema(
        [
            pa.field("key", pa.string(), nullable=False, metadata=_PRIMARY_KEY),
            pa.field("live", pa.bool_(), nullable=False),
            pa.field("sequence", pa.int64()),
            pa.field("revision", pa.int64(), nullable=False),
            pa.field("id", pa.string()),
            pa.field("content", pa.string()),
            pa.field("words", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), model.dimensions)),
            pa.field("metadata", pa.string()),
            *(pa.field(name, kind) for name, kind in METADATA_COLUMNS.items()),
            *(pa.field(name, _TYPES[kind]) for name, kind in ATTRIBUTE_COLUMNS.items()),
            pa.field("receipt", pa.string()),
        ],
        metadata={
            "recalld.format": str(FORMAT),
            "recalld.org_id": scope.org_id or "",
            "recalld.domain_id": scope.domain_id or "",
            "recalld.model.name": model.name,
            "recalld.model.dimensions": str(model.dimensions),
            "recalld.model.sha256": model.sha256,
        },
    )


def verify(schema: Any, scope: Scope, model: ModelIdentity, *, where: str) -> None:
    """Raises StorageCorrupt when the table is not this scope's or of another format, EmbeddingModelMismatch when its
    vectors are another model's. `where` names the table."""
    said: dict[str, str] = {
        key.decode(): value.decode() for key, value in cast("dict[bytes, bytes]", schema.metadata or {}).items()
    }
    if said.get("recalld.format") != str(FORMAT):
        raise StorageCorrupt(
            f"{where} has format {said.get('recalld.format')!r}; this server reads {FORMAT}", details={"file": where}
        )
    if (said.get("recalld.org_id"), said.get("recalld.domain_id")) != (scope.org_id, scope.domain_id):
        raise StorageCorrupt(f"{where} belongs to another scope", details={"file": where})
    stored = tuple(said.get(f"recalld.model.{part}", "") for part in ("name", "dimensions", "sha256"))
    served = (model.name, str(model.dimensions), model.sha256)
    if stored != served:
        raise EmbeddingModelMismatch(
            f"this scope was embedded with {_named(stored)}, and the server serves {_named(served)}; their vectors "
            "cannot be compared. Serve with the stored model, or re-embed: read the items with List from a server with "
            "the stored model and write them to a server with the new model and a new data directory",
            details={"storedModel": _named(stored), "servedModel": _named(served)},
        )


def _named(model: tuple[str, ...]) -> str:
    name, dimensions, digest = model
    return f"{name} ({dimensions} dimensions, sha256 {digest[:12]})"
