"""Requests when a lake is taken back: those that records beyond the cut had made true wait for the log again."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.lake import files
from pipelines.lake.files import DataFile, lake_filesystem, open_prefix
from pipelines.lake.publish import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS

_NAME = ASSIGNMENT_REQUESTS.name
_OPEN_SHARD = 0


def reopen_requests(lake: Lake, offset: int, time: datetime) -> dict[str, int]:
    """Commit ``assignment_requests`` without what records at or after ``offset`` made true. Rows written, if any.

    ``time`` is of the record before the cut: what was missed in the log since then may be in the new one. The ledger
    is left to the caller, who holds the lock.
    """
    if lake.ledger is None or _NAME not in lake.ledger["versions"]:
        return {}
    lake.open_requests()
    fs, root = lake_filesystem(lake.location)
    added: list[DataFile] = []
    gone: list[str] = []
    waiting: list[pa.Table] = []
    opened: list[str] = []
    for name in (uri.rsplit("/", 1)[1] for uri in lake.tables[_NAME].file_uris()):
        if name.startswith(open_prefix(_OPEN_SHARD)):
            opened.append(name)
            continue
        with fs.open_input_file(f"{root}/{_NAME}/{name}") as source:
            rows = pq.ParquetFile(source).read().cast(ASSIGNMENT_REQUESTS.schema)
        beyond = pc.fill_null(pc.greater_equal(rows["realised_offset"], offset), False)
        missed = pc.and_(pc.equal(rows["outcome"], "not in the log"), pc.greater(rows["answered_time"], time))
        again = pc.or_(beyond, missed)
        if not pc.any(again).as_py():
            continue
        gone.append(name)
        waiting.append(_pending(rows.filter(again)))
        kept = rows.filter(pc.invert(again))
        if kept.num_rows:
            added.append(files.write(lake.location, _NAME, kept))
    if not gone:
        return {}
    for name in opened:
        with fs.open_input_file(f"{root}/{_NAME}/{name}") as source:
            waiting.append(pq.ParquetFile(source).read().cast(ASSIGNMENT_REQUESTS.schema))
    added.append(files.write(lake.location, _NAME, pa.concat_tables(waiting), shard=_OPEN_SHARD))
    lake.commit(ASSIGNMENT_REQUESTS, added, [*gone, *opened], offset, offset)
    return {_NAME: sum(file.rows for file in added)}


def _pending(rows: pa.Table) -> pa.Table:
    for name in ("why", "realised_offset", "realised_time", "latency_ms"):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
    at = rows.schema.get_field_index("outcome")
    return rows.set_column(at, rows.schema.field(at), pa.array(["pending"] * rows.num_rows, pa.string()))
