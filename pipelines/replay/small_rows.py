"""A few closed rows on their way to the driver, which writes one file of them for all shards."""

from __future__ import annotations

import pyarrow as pa


def packed_rows(name: str, rows: pa.Table) -> bytes:
    """The rows of the table ``name`` as bytes, for ``read_rows``."""
    return name.encode() + b"\n" + _ipc(rows)


def _ipc(table: pa.Table) -> bytes:
    plain = pa.table(
        [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else _plain_lists(c) for c in table.columns],
        names=table.schema.names,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain.schema) as stream:
        stream.write_table(plain)
    return bytes(sink.getvalue())


def _plain_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type) and pa.types.is_dictionary(column.type.value_type):
        return column.cast(pa.list_(column.type.value_type.value_type))
    return column


def read_rows(payload: bytes) -> tuple[str, pa.Table]:
    """Undoes ``packed_rows``: (table name, rows)."""
    name, _, body = payload.partition(b"\n")
    return name.decode(), pa.ipc.open_stream(body).read_all()
