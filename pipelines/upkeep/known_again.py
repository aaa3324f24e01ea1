"""Records that were unknown when they were published, and are known now: ``rebuild`` adds them to the tables
(R-REC-4)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model.formats.records import API_KEYS, TYPE_NAMES
from pipelines.formats.programs import programs
from pipelines.formats.record_names import kind_of
from pipelines.formats.records import decode_values
from pipelines.lake import files
from pipelines.lake.commit import LiveFile, live_files
from pipelines.lake.delta import connect, data_files, read_parquet
from pipelines.lake.files import DataFile
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import RECORDS
from pipelines.replay.record_rows import record_rows

UNKNOWN = "UNKNOWN_"
_READ_AGAIN = ("record_type", "topic_id", "partition", "broker_id")


def unknown_in(lake: LakeWriter) -> dict[str, int]:
    """The kinds of records of a lake that are not known, each with the offset of the first."""
    delta = lake.tables[RECORDS.name]
    source = read_parquet(lake.location, RECORDS.name, delta, [file["path"] for file in data_files(delta)])
    with connect(lake.location) as connection:
        rows = connection.execute(
            f"SELECT record_type, record_version, min(log_offset) FROM {source} GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    numbers = {TYPE_NAMES[kind]: number for number, kind in API_KEYS.items()}
    found: dict[str, int] = {}
    for name, version, offset in rows:
        number = _number(name) if name.startswith(UNKNOWN) else numbers.get(name)
        if number is not None and programs().entries_of(np.array([number]), np.array([version]))[0] < 0:
            kind = kind_of(number, version)
            found[kind] = min(offset, found.get(kind, offset))
    return found


def renamed(lake: LakeWriter) -> tuple[list[DataFile], list[LiveFile]]:
    """Files of ``records`` in which types that are known now have their names, and those that they replace.

    MalformedLog where such a record cannot be read.
    """
    known = {f"{UNKNOWN}{number}" for number in API_KEYS}
    added, gone = [], []
    for file in live_files(lake.tables[RECORDS.name]):
        rows = files.read(lake.location, RECORDS, [file.path])
        mask = pc.is_in(rows["record_type"].cast(pa.string()), pa.array(sorted(known)))
        if pc.any(mask).as_py():
            added.append(files.write(lake.location, RECORDS.name, _read_again(rows, mask)))
            gone.append(file)
    return added, gone


def _read_again(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """The rows, with the columns that are read from the value made again where ``mask``."""
    chosen = rows.filter(mask)
    values = chosen["value"].to_pylist()
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    offsets = chosen["log_offset"].to_numpy()
    times = chosen["append_time"].cast(pa.int64()).to_numpy() // 1000
    records = decode_values(data, ends, offsets, times, RECORDS.name)
    again = record_rows(records, np.ones(len(records), np.bool_), None).cast(RECORDS.schema)
    for name in _READ_AGAIN:
        at = rows.schema.get_field_index(name)
        column = rows[name].combine_chunks().to_pylist()
        for row, value in zip(np.flatnonzero(mask.to_numpy()).tolist(), again[name].to_pylist(), strict=True):
            column[row] = value
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column, rows.schema.field(at).type))
    return rows


def _number(name: str) -> int | None:
    """The api key in ``UNKNOWN_35``; None for a control record."""
    number = name.removeprefix(UNKNOWN)
    return int(number) if number.isdigit() else None
