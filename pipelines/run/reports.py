"""What the stages report to the driver about one micro-batch: a class for each kind of report, with its encoding.

Reports cross Spark as rows of a kind and bytes. ``encode`` and ``decode`` are the only places that know their form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from jbod_model.errors import JbodError, marked, restored

if TYPE_CHECKING:
    from pipelines.lake.files import DataFile


@dataclass(frozen=True)
class SliceRead:
    """A slice that was decoded: offsets ``[start, end)``, and the last batch: append time (microseconds), epoch, CRC.

    ``snapshot``: the end offset of the snapshot that it is part of, -1 for the log. ``dropped``: records that do not
    count. ``unknown``: kinds of records that are not known, each with the offset of the first.
    """

    start: int
    end: int
    snapshot: int
    dropped: int
    time: int
    epoch: int
    crc: int
    unknown: Mapping[str, int]


@dataclass(frozen=True)
class FileWritten:
    """A data file that a stage wrote."""

    file: DataFile


@dataclass(frozen=True)
class ClosedRows:
    """Closed rows of a table, too few for a file of their own."""

    table: str
    rows: pa.Table


@dataclass(frozen=True)
class OpenRowsReplaced:
    """The open rows of a shard in a table are those of the file that it reports, or none if it reports none."""

    table: str
    shard: int


@dataclass(frozen=True)
class MetadataVersion:
    """The feature level ``metadata.version`` after the micro-batch."""

    level: int


@dataclass(frozen=True)
class Refusal:
    """The error of a stage, to raise on the driver."""

    error: JbodError


Report = SliceRead | FileWritten | ClosedRows | OpenRowsReplaced | MetadataVersion | Refusal
KINDS = {
    "slice": SliceRead,
    "file": FileWritten,
    "rows": ClosedRows,
    "replaced": OpenRowsReplaced,
    "level": MetadataVersion,
    "error": Refusal,
}
_KIND_OF = {kind: name for name, kind in KINDS.items()}


def encode(report: Report) -> tuple[str, bytes]:
    """The kind and the bytes of a report."""
    match report:
        case FileWritten():
            payload = report.file.to_json().encode()
        case ClosedRows():
            payload = report.table.encode() + b"\n" + _ipc(report.rows)
        case Refusal():
            payload = marked(report.error).encode()
        case _:
            payload = json.dumps(asdict(report)).encode()
    return _KIND_OF[type(report)], payload


def decode(kind: str, payload: bytes) -> Report:
    """Undoes ``encode``."""
    match kind:
        case "file":
            from pipelines.lake.files import DataFile  # not for a question to a log: it loads slowly

            return FileWritten(DataFile.from_json(payload))
        case "rows":
            name, _, body = payload.partition(b"\n")
            return ClosedRows(name.decode(), pa.ipc.open_stream(body).read_all())
        case "error":
            return Refusal(restored(payload.decode()) or JbodError(payload.decode()))
        case "slice":
            return SliceRead(**json.loads(payload))
        case "replaced":
            return OpenRowsReplaced(**json.loads(payload))
        case _:
            return MetadataVersion(**json.loads(payload))


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
