"""Requests in a rollback: those that records after the cut carried out wait for the log again."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake import files
from pipelines.lake.commit import LiveFile, live_files
from pipelines.lake.files import DataFile
from pipelines.lake.publish import LakeWriter
from pipelines.lake.tables import ASSIGNMENT_REQUESTS

_NAME = ASSIGNMENT_REQUESTS.name
_OPEN_SHARD = 0


def reopen_requests(lake: LakeWriter, offset: int, time: datetime) -> dict[str, int]:
    """Commits ``assignment_requests`` with the requests reopened that records from ``offset`` on carried out.

    Returns the number of rows written, if any. ``time`` is that of the record before the cut: requests after it that
    were not in the log may be in the new one. The caller holds the lock and commits the ledger.
    """
    if lake.ledger is None or _NAME not in lake.ledger["versions"]:
        return {}
    found = live_files(lake.tables[_NAME])
    opened = [file for file in found if file.shard >= 0]
    added: list[DataFile] = []
    gone: list[LiveFile] = []
    waiting: list[pa.Table] = []
    for file in found:
        if file in opened:
            continue
        rows = files.read(lake.location, ASSIGNMENT_REQUESTS, [file.path])
        beyond = pc.fill_null(pc.greater_equal(rows["realised_offset"], offset), False)
        missed = pc.and_(pc.equal(rows["outcome"], "not in the log"), pc.greater(rows["answered_time"], time))
        again = pc.or_(beyond, missed)
        if not pc.any(again).as_py():
            continue
        gone.append(file)
        waiting.append(_pending(rows.filter(again)))
        kept = rows.filter(pc.invert(again))
        if kept.num_rows:
            added.append(files.write(lake.location, _NAME, kept))
    if not gone:
        return {}
    waiting.append(files.read(lake.location, ASSIGNMENT_REQUESTS, [file.path for file in opened]))
    added.append(files.write(lake.location, _NAME, pa.concat_tables(waiting), shard=_OPEN_SHARD))
    lake.commit(ASSIGNMENT_REQUESTS, added, [*gone, *opened], offset, offset)
    return {_NAME: sum(file.rows for file in added)}


def _pending(rows: pa.Table) -> pa.Table:
    for name in ("why", "realised_offset", "realised_time", "latency_ms"):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
    at = rows.schema.get_field_index("outcome")
    return rows.set_column(at, rows.schema.field(at), pa.array(["pending"] * rows.num_rows, pa.string()))
