"""One row of a table, as Python values, and both ways between rows and Arrow."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from recalld.engine.analysis import index_text
from recalld.engine.records import Body, Commit, Receipt, Record, shown_attributes
from recalld.errors import InternalFailure, InvalidField
from recalld.filters import Kind
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld_server.adapters.lancedb import values
from recalld_server.adapters.lancedb.engine import pa
from recalld_server.adapters.lancedb.schema import ATTRIBUTE_COLUMNS, ITEM_COLUMNS
from recalld_server.adapters.lancedb.sql import EPOCH, instant, micros
from recalld_server.adapters.lancedb.values import FilterColumns

Vectors = NDArray[np.float32]

#: The key of the row that holds the head of the scope. It is part of every commit, and nothing ever deletes it: the
#: condition that makes a moved head a conflict is asked of the row that is there.
HEAD_KEY = "h"


def item_key(id: str) -> str:
    """The key of a memory: a digest, so that ids of any text and length cost the same and stay out of SQL."""
    return _key("m", id)


def receipt_key(key: str) -> str:
    """The key of a receipt; never that of a memory."""
    return _key("r", key)


def _key(kind: str, text: str) -> str:
    try:
        digest = blake2b(text.encode(), digest_size=18).digest()
    except UnicodeEncodeError as error:
        raise InvalidField(violations={"id": f"{text!r} is not valid Unicode"}) from error
    return kind + b64encode(digest, values.DIGEST_SIGNS).decode()


# To Arrow.


@dataclass(frozen=True, slots=True)
class _Row:
    """What a row holds of a record, a receipt or the head."""

    key: str
    revision: int
    sequence: int | None = None
    record: Record | None = None
    receipt: Receipt | None = None


def to_batch(commit: Commit, schema: Any) -> Any:
    """The rows of a commit, its head among them, as an Arrow table of the schema. Raises InvalidField for text that is
    no valid Unicode."""
    rows = [
        *(_Row(item_key(each.id), each.revision, each.sequence, record=each) for each in commit.records.values()),
        *(_Row(receipt_key(each.key), each.revision, receipt=each) for each in commit.receipts.values()),
        _Row(HEAD_KEY, commit.head.revision, commit.head.sequence),
    ]
    bodies = [row.record.body if row.record is not None else None for row in rows]
    _check_text(bodies)
    filtering = [values.filter_columns(body.metadata) if body else None for body in bodies]
    columns: dict[str, Any] = {
        "key": [row.key for row in rows],
        "live": [row.record is not None and row.record.live for row in rows],
        "sequence": [row.sequence for row in rows],
        "revision": [row.revision for row in rows],
        "id": [row.record.id if row.record is not None else None for row in rows],
        "content": [body and body.content for body in bodies],
        "words": [body and index_text(body.content) for body in bodies],
        "vector": _vectors(bodies, schema.field("vector").type),
        "metadata": [body and values.dump(body.metadata) for body in bodies],
        "receipt": [_receipt_text(row.receipt) for row in rows],
    }
    for column in fields(FilterColumns):
        columns[column.name] = [getattr(each, column.name) if each else None for each in filtering]
    for name, kind in ATTRIBUTE_COLUMNS.items():
        columns[name] = [_attribute_out(row, name, kind) for row in rows]
    return pa.Table.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _check_text(bodies: Iterable[Body | None]) -> None:
    for body in bodies:
        try:
            if body is not None:
                body.content.encode()
        except UnicodeEncodeError as error:
            raise InvalidField(violations={"content": "is not valid Unicode"}) from error


def _array(column: Any, kind: Any) -> Any:
    if isinstance(column, pa.Array):
        return column
    if pa.types.is_timestamp(kind):
        return pa.array(column, pa.int64()).cast(kind)
    return pa.array(column, kind)


def _vectors(bodies: Sequence[Body | None], kind: Any) -> Any:
    matrix = np.zeros((len(bodies), kind.list_size), np.float32)
    missing = [body is None or body.vector is None for body in bodies]
    for at, body in enumerate(bodies):
        if body is not None and body.vector is not None:
            matrix[at] = _checked_vector(body.vector, kind.list_size)
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), type=kind, mask=pa.array(missing))


def _checked_vector(vector: Any, dimensions: int) -> Vectors:
    given = np.asarray(vector, np.float32)
    # The squared length is 0 for a zero vector and not finite for any that holds what is not: one pass, one test.
    if given.shape != (dimensions,) or not 0 < float(given @ given) < np.inf:
        raise InternalFailure(f"an embedding must be {dimensions} finite numbers that are not all 0")
    return given


def _attribute_out(row: _Row, name: str, kind: Kind) -> Any:
    if row.receipt is not None:
        return micros(row.receipt.time) if name == "update_time" else None
    if row.record is None:
        return None
    value = getattr(row.record.attributes, name)
    if name in ("status", "visibility"):
        return value.name.lower() if value else None
    if kind is Kind.TIME:
        return None if value is None else micros(value)
    # A tombstone keeps nothing but its status and when it went.
    return value if row.record.live and value != "" else None


def _receipt_text(receipt: Receipt | None) -> str | None:
    if receipt is None:
        return None
    told = {"fingerprint": receipt.fingerprint, "revision": receipt.revision, "ids": receipt.ids}
    return json.dumps(told, ensure_ascii=False)


# From Arrow.


def to_records(table: Any) -> list[Record]:
    """The memories and tombstones of a table that holds STATE_COLUMNS, with bodies if it holds ROW_COLUMNS."""
    columns = {name: _plain(table.column(name)) for name in table.column_names if name != "vector"}
    vectors = _vectors_in(table.column("vector")) if "vector" in table.column_names else None
    attributes = _attributes(columns, table.num_rows)
    return [
        Record(
            id=columns["id"][at],
            revision=columns["revision"][at],
            sequence=columns["sequence"][at] or 0,
            attributes=attributes[at],
            body=_body_in(columns, at, vectors[at]) if vectors is not None and columns["live"][at] else None,
        )
        for at in range(table.num_rows)
        if columns["id"][at] is not None
    ]


def to_receipts(table: Any, wanted: Mapping[str, str]) -> list[Receipt]:
    """The receipts of a table that holds STATE_COLUMNS. wanted: their idempotency keys by the keys of their rows, which
    are digests."""
    keys, texts, times = (
        table.column("key").to_pylist(),
        table.column("receipt").to_pylist(),
        _plain(table.column("update_time")),
    )
    found: list[Receipt] = []
    for key, text, time in zip(keys, texts, times, strict=True):
        if text is not None and key in wanted:
            told = json.loads(text)
            written = EPOCH if time is None else instant(time)
            found.append(Receipt(wanted[key], told["fingerprint"], told["revision"], tuple(told["ids"]), written))
    return found


def to_items(table: Any, source: str) -> list[MemoryItem]:
    """The memories of a table that holds ITEM_COLUMNS."""
    columns = {name: _plain(table.column(name)) for name in ITEM_COLUMNS}
    attributes = _attributes(columns, table.num_rows)
    return [
        MemoryItem(
            content,
            source,
            metadata=values.load(metadata),
            id=id,
            attributes=shown_attributes(attributes[at], revision=revision, source=source),
        )
        for at, (content, metadata, id, revision) in enumerate(
            zip(columns["content"], columns["metadata"], columns["id"], columns["revision"], strict=True)
        )
    ]


def _plain(column: Any) -> list[Any]:
    # Times go through integers: exact, and free of what zone database the machine has.
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def _vectors_in(column: Any) -> Any:
    size = column.type.list_size
    chunks: Iterable[Any] = column.chunks
    # `fill_null` on lists does not exist; `values` ignores offsets, so each chunk is flattened through its slice.
    rows = [
        np.asarray(chunk.values.slice(chunk.offset * size, len(chunk) * size).to_numpy(zero_copy_only=False)).reshape(
            len(chunk), size
        )
        for chunk in chunks
    ]
    return np.concatenate(rows) if rows else np.zeros((0, size), np.float32)


def _body_in(columns: Mapping[str, list[Any]], at: int, vector: Vectors) -> Body:
    # A stored zero stands where the row has no vector.
    return Body(columns["content"][at], values.load(columns["metadata"][at]), vector.copy() if vector.any() else None)


def _attributes(columns: Mapping[str, list[Any]], rows: int) -> list[MemoryAttributes]:
    present = [
        (name, _READERS.get(name) or (instant if kind is Kind.TIME else None), columns[name])
        for name, kind in ATTRIBUTE_COLUMNS.items()
    ]
    return [
        MemoryAttributes(
            **{
                name: cast("Any", read(column[at]) if read else column[at])
                for name, read, column in present
                if column[at] is not None
            }
        )
        for at in range(rows)
    ]


def _visibility(name: str) -> Visibility:
    return Visibility[name.upper()]


def _status(name: str) -> MemoryStatus:
    return MemoryStatus[name.upper()]


_READERS: Mapping[str, Any] = {"visibility": _visibility, "status": _status}
