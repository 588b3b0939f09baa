"""One row of a table, as Python values, and both ways between rows and Arrow."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, cast

import numpy as np

from recalld.errors import InvalidField
from recalld.filters import Kind
from recalld.item import MemoryAttributes, MemoryItem, MemoryStatus, Visibility
from recalld_server.adapters.lancedb import analysis, values
from recalld_server.adapters.lancedb.engine import pa
from recalld_server.adapters.lancedb.schema import ATTRIBUTE_COLUMNS, ITEM_COLUMNS
from recalld_server.adapters.lancedb.sql import instant, micros
from recalld_server.adapters.lancedb.values import FilterColumns
from recalld_server.ports import Vector


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
        raise InvalidField(f"{text!r} is not valid Unicode") from error
    return kind + b64encode(digest, values.DIGEST_SIGNS).decode()


@dataclass(frozen=True, slots=True)
class Body:
    """What is blanked when a memory is deleted. `metadata` is JSON text, see `values`."""

    content: str
    words: str
    metadata: str
    columns: FilterColumns
    vector: Vector

    @staticmethod
    def of(content: str, metadata: Mapping[str, Any], vector: Vector, dimensions: int) -> Body:
        """Raises InvalidField for metadata, text or a vector that cannot be stored."""
        # The squared length is 0 for a zero vector and not finite for any that holds what is not: one pass, one test.
        if vector.shape != (dimensions,) or not 0 < float(vector @ vector) < np.inf:
            raise InvalidField(f"the vector must be {dimensions} finite numbers that are not all 0")
        try:
            content.encode()
        except UnicodeEncodeError as error:
            raise InvalidField("content is not valid Unicode") from error
        text = values.dump(metadata)
        return Body(content, analysis.index_text(content), text, values.filter_columns(metadata), vector)


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """What a write with an idempotency key answered."""

    fingerprint: str
    revision: int
    ids: tuple[str, ...]


_UNSET = MemoryAttributes()


@dataclass(frozen=True, slots=True)
class Record:
    """A row. A memory has an `id`, a live one also a body, unless it was not read. A receipt has neither."""

    key: str
    revision: int
    id: str = ""
    live: bool = False
    sequence: int = 0
    attributes: MemoryAttributes = _UNSET
    body: Body | None = None
    receipt: WriteReceipt | None = None

    def item(self, source: str) -> MemoryItem:
        """The memory as the store answers it."""
        assert self.body is not None  # noqa: S101 - only called where the body was read
        attributes = replace(self.attributes, revision=self.revision, origin=source)
        return MemoryItem(
            self.body.content, source, metadata=values.load(self.body.metadata), id=self.id, attributes=attributes
        )


# To Arrow.


def to_batch(records: Sequence[Record], schema: Any) -> Any:
    """The records as an Arrow table of the schema."""
    bodies = [record.body for record in records]
    columns: dict[str, Any] = {
        "key": [record.key for record in records],
        "live": [record.live for record in records],
        "sequence": [record.sequence if record.id else None for record in records],
        "revision": [record.revision for record in records],
        "id": [record.id or None for record in records],
        "content": [body and body.content for body in bodies],
        "words": [body and body.words for body in bodies],
        "vector": _vectors(bodies, schema.field("vector").type),
        "metadata": [body and body.metadata for body in bodies],
        "receipt": [_receipt_text(record.receipt) for record in records],
    }
    for column in fields(FilterColumns):
        columns[column.name] = [getattr(body.columns, column.name) if body else None for body in bodies]
    for name, kind in ATTRIBUTE_COLUMNS.items():
        columns[name] = [_attribute_out(record, name, kind) for record in records]
    return pa.Table.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _array(column: Any, kind: Any) -> Any:
    if isinstance(column, pa.Array):
        return column
    if pa.types.is_timestamp(kind):
        return pa.array(column, pa.int64()).cast(kind)
    return pa.array(column, kind)


def _vectors(bodies: Sequence[Body | None], kind: Any) -> Any:
    blank = np.zeros(kind.list_size, np.float32)
    flat = np.concatenate([body.vector if body else blank for body in bodies]).astype(np.float32, copy=False)
    missing = pa.array([body is None for body in bodies])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=kind, mask=missing)


def _attribute_out(record: Record, name: str, kind: Kind) -> Any:
    if name == "update_time":
        return None if record.attributes.update_time is None else micros(record.attributes.update_time)
    if not record.id:
        return None
    if name == "status":
        return record.attributes.status.name.lower()
    if not record.live:
        return None
    if name == "visibility":
        return record.attributes.visibility.name.lower()
    value = getattr(record.attributes, name)
    if kind is Kind.TIME:
        return None if value is None else micros(value)
    return None if value == "" else value


def _receipt_text(receipt: WriteReceipt | None) -> str | None:
    if receipt is None:
        return None
    return json.dumps(
        {"fingerprint": receipt.fingerprint, "revision": receipt.revision, "ids": receipt.ids}, ensure_ascii=False
    )


# From Arrow.


def to_records(table: Any) -> list[Record]:
    """The rows of a table that holds STATE_COLUMNS or ROW_COLUMNS."""
    columns = {name: _plain(table.column(name)) for name in table.column_names if name != "vector"}
    vectors = _vectors_in(table.column("vector")) if "vector" in table.column_names else None
    attributes = _attributes(columns, table.num_rows)
    return [
        Record(
            key=columns["key"][at],
            revision=columns["revision"][at],
            id=columns["id"][at] or "",
            live=columns["live"][at],
            sequence=columns["sequence"][at] or 0,
            attributes=attributes[at],
            body=_body_in(columns, at, vectors[at]) if vectors is not None and columns["live"][at] else None,
            receipt=_receipt_in(columns["receipt"][at]),
        )
        for at in range(table.num_rows)
    ]


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
            attributes=replace(attributes[at], revision=revision, origin=source),
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


def _body_in(columns: Mapping[str, list[Any]], at: int, vector: Vector) -> Body:
    content, metadata = columns["content"][at], columns["metadata"][at]
    return Body(
        content, analysis.index_text(content), metadata, values.filter_columns(values.load(metadata)), vector.copy()
    )


def _receipt_in(text: str | None) -> WriteReceipt | None:
    if text is None:
        return None
    found = json.loads(text)
    return WriteReceipt(found["fingerprint"], found["revision"], tuple(found["ids"]))


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
