"""The table of one scope: its columns, and the metadata by which it says whose it is and what made its vectors."""

from __future__ import annotations

import json
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

#: Before what a table says of the model that made its vectors.
_MODEL = "recalld.model."

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

    A row is a memory, the receipt of a write or the head of the scope, told apart by the first character of its key;
    `live` is true for memories that are not deleted. `words` is what full text searches.
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
            _MODEL + "name": model.name,
            _MODEL + "dimensions": str(model.dimensions),
            _MODEL + "sha256": model.sha256,
            _MODEL + "fingerprint": model.fingerprint,
            _MODEL + "traits": json.dumps(dict(model.traits)),
        },
    )


def verify(schema: Any, scope: Scope, model: ModelIdentity, *, where: str) -> None:
    """Raises StorageCorrupt when the table is not this scope's or of another format, EmbeddingModelMismatch when its
    vectors are another model's. `where` names the table.

    Models are told apart by their fingerprints, whatever they are called; a table that has none, by what was looked at
    when it was made: the weights and the dimensions.
    """
    said = verify_format(schema, where=where)
    if (said.get("recalld.org_id"), said.get("recalld.domain_id")) != (scope.org_id, scope.domain_id):
        raise StorageCorrupt(f"{where} belongs to another scope", details={"file": where})
    stored = {key.removeprefix(_MODEL): value for key, value in said.items() if key.startswith(_MODEL)}
    difference = _difference(stored, model)
    if difference:
        was, served = _named(stored), _named({**_told(model), "name": model.name})
        raise EmbeddingModelMismatch(
            f"this scope was embedded with {was}, and the server serves {served}; their vectors cannot be compared: "
            f"{difference}. Serve with the stored model and its settings, or re-embed: read the items with List from a "
            "server with the stored model and write them to a server with the new model and a new data directory",
            details={"storedModel": was, "servedModel": served},
        )


def verify_format(schema: Any, *, where: str) -> Mapping[str, str]:
    """What the table says of itself. Raises StorageCorrupt when it is of another format."""
    said = {key.decode(): value.decode() for key, value in cast("dict[bytes, bytes]", schema.metadata or {}).items()}
    if said.get("recalld.format") != str(FORMAT):
        raise StorageCorrupt(
            f"{where} has format {said.get('recalld.format')!r}; this server reads {FORMAT}", details={"file": where}
        )
    return said


def _difference(stored: Mapping[str, str], model: ModelIdentity) -> str:
    """What keeps the vectors of the two models apart; empty when they can be compared."""
    was, served = dict(stored), _told(model)
    # Tables of earlier versions have no fingerprint: what they tell is compared.
    told_whole = bool(stored.get("fingerprint") and model.fingerprint)
    if told_whole:
        if stored["fingerprint"] == model.fingerprint:
            return ""
        was, served = {**was, **json.loads(stored["traits"])}, {**served, **model.traits}
    parts = [
        f"{trait} was {was.get(trait, '')!r} and is {served[trait]!r}"
        for trait in served
        if was.get(trait, "") != served[trait]
    ]
    return "; ".join(parts) or ("their fingerprints differ" if told_whole else "")


def _told(model: ModelIdentity) -> dict[str, str]:
    """What tables have always told of a model that shapes its vectors."""
    return {"dimensions": str(model.dimensions), "sha256": model.sha256}


def _named(model: Mapping[str, str]) -> str:
    name, dimensions, digest = (model.get(part, "") for part in ("name", "dimensions", "sha256"))
    return f"{name} ({dimensions} dimensions, sha256 {digest[:12]})"
