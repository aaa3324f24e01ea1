"""Rolls a lake back to its state at an earlier offset: tables first, the ledger last, in one version each.

A history row says when it began and when it ended, so the rows themselves hold the state at every offset. Rows that
began later are removed, and ends that came later are cleared. Only files with such rows are rewritten.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake import files
from pipelines.lake.changes import taken_back
from pipelines.lake.files import DataFile
from pipelines.lake.publish import LakeWriter, read_ledger
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, CHANGES, DERIVED, HISTORY, LEDGER, RECORDS, REQUESTS, Table
from pipelines.lake.written_lake import LiveFile, live_files

_REQUESTS = ASSIGNMENT_REQUESTS.name
_OPEN_SHARD = 0
"""The shard of requests that wait for the log."""


@dataclass(frozen=True)
class Cut:
    """The target of a rollback: offset, epoch and fingerprint of the batch before it, level of metadata.version.

    ``fingerprint`` is -1 if the log no longer has that batch.
    """

    offset: int
    epoch: int
    fingerprint: int
    metadata_version: int


ShardsOf = Callable[[np.ndarray, int], np.ndarray]
"""Shard of each topic id (uint64[n, 2]), given the number of shards: int32[n]."""


def take_back(lake: LakeWriter, cut: Cut, shards_of: ShardsOf) -> None:
    """Restores every table to its state before the record at ``cut.offset``. Readers see it after the last commit."""
    if lake.ledger is None or lake.end_offset <= cut.offset:
        return
    with lake.writing():
        before = lake.end_offset
        rows: dict[str, int] = {}
        for table in (RECORDS, *HISTORY):
            if table is RECORDS:
                added, gone = _cut_records(lake, cut.offset)
            else:
                added, gone = _cut_history(lake, table, cut.offset, shards_of)
            lake.commit(table, added, gone, cut.offset, cut.offset)
            rows[table.name] = sum(file.rows for file in added)
        change_files = []
        if lake.keeps_changes:
            change_files = taken_back(lake.path, lake.tables[CHANGES.name], cut.offset, before, _last_time(lake))
        lake.commit(CHANGES, change_files, (), cut.offset, cut.offset)
        rows[CHANGES.name] = sum(file.rows for file in change_files)
        rows |= _reopen_requests(lake, cut.offset, _last_time(lake))
        _cut_ledger(lake, cut, before, rows)


def _cut_records(lake: LakeWriter, offset: int) -> tuple[list[DataFile], list[LiveFile]]:
    added, gone = [], []
    for file in live_files(lake.tables[RECORDS.name]):
        if file.is_less("max.log_offset", offset):
            continue
        gone.append(file)
        kept = _read(lake, RECORDS, [file]).filter(pc.field("log_offset") < offset)
        if kept.num_rows:
            added.append(files.write(lake.path, RECORDS.name, kept))
    return added, gone


def _cut_history(
    lake: LakeWriter, table: Table, offset: int, shards_of: ShardsOf
) -> tuple[list[DataFile], list[LiveFile]]:
    history_files = live_files(lake.tables[table.name])
    opened = [file for file in history_files if file.shard >= 0]
    gone = [file for file in history_files if file.shard < 0 and not file.is_less("max.to_offset", offset)]
    closed = _read(lake, table, gone).filter(pc.field("from_offset") < offset)
    again = closed.filter(pc.field("to_offset") >= offset)
    closed = closed.filter(pc.field("to_offset") < offset)
    owners = shards_of_rows(lake.identity.shards, table, again, shards_of)
    touched = {file.shard for file in opened if not file.is_less("max.from_offset", offset)}
    touched |= set(owners.tolist())
    parts: dict[int, list[pa.Table]] = defaultdict(list)
    for shard in sorted(touched):
        mine = [file for file in opened if file.shard == shard]
        gone += mine
        parts[shard].append(_read(lake, table, mine).filter(pc.field("from_offset") < offset))
        parts[shard].append(_without(again.filter(pa.array(owners == shard)), "to_offset", "to_time", "ended_by"))
    added = [files.write(lake.path, table.name, closed)] if closed.num_rows else []
    for shard, tables in parts.items():
        rows = pa.concat_tables(tables)
        if rows.num_rows:
            added.append(files.write(lake.path, table.name, rows, shard=shard))
    return added, gone


def _without(rows: pa.Table, *names: str) -> pa.Table:
    """Rows with nulls in these columns, as far as they have them."""
    for name in names:
        if name in rows.schema.names:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
    return rows


def shards_of_rows(shards: int, table: Table, rows: pa.Table, shards_of: ShardsOf) -> np.ndarray:
    """Shard of each row: that of its topic, or the broker shard for tables about brokers."""
    if "topic_id" not in table.schema.names:
        return np.full(rows.num_rows, shards, np.int32)
    topics = rows["topic_id"].combine_chunks().dictionary_encode()
    texts = topics.dictionary.to_pylist()
    raw = b"".join(base64.urlsafe_b64decode(text + "==") for text in texts)
    owners = shards_of(np.frombuffer(raw, np.uint64).reshape(len(texts), 2), shards)
    row_shards: np.ndarray = np.take(owners, topics.indices.to_numpy())
    return row_shards


def _cut_ledger(lake: LakeWriter, cut: Cut, before: int, written: dict[str, int]) -> None:
    """Commits one version: removes the publications after the offset, and ends the one that contains it there."""
    gone = [file for file in live_files(lake.tables[LEDGER.name]) if not file.is_less("max.end_offset", cut.offset)]
    rows = sorted(_read(lake, LEDGER, gone).to_pylist(), key=lambda row: row["end_offset"])
    kept = [row for row in rows if row["end_offset"] < cut.offset]
    covering = next((row for row in rows if row["start_offset"] < cut.offset <= row["end_offset"]), None)
    if covering is not None:
        unknown = {kind: offset for kind, offset in lake.unknown.items() if offset < cut.offset}
        versions = {**(lake.ledger or {})["versions"], **_versions(lake)}
        kept.append(
            covering
            | {
                "end_offset": cut.offset,
                "epoch": cut.epoch,
                "fingerprint": cut.fingerprint,
                "end_time": _last_time(lake),
                "published_time": datetime.now(UTC),
                "metadata_version": cut.metadata_version,
                "dropped": 0,
                "rolled_back_from": before,
                "log_end": None,
                "unknown_from": min(unknown.values(), default=None),
                "unknown_types": unknown or None,
                "versions": versions,
                "rows": written,
            }
        )
    added = []
    if kept:
        added.append(files.write(lake.path, LEDGER.name, pa.Table.from_pylist(kept, schema=LEDGER.schema)))
    lake.commit(LEDGER, added, gone, cut.offset, cut.offset)
    read_ledger(lake)


def _versions(lake: LakeWriter) -> dict[str, int]:
    known = [table for table in (RECORDS, *DERIVED, *REQUESTS) if table.name in lake.tables]
    return {table.name: lake.tables.versions[table.name] for table in known}


def _last_time(lake: LakeWriter) -> datetime:
    """Append time of the last remaining record, 1970 if none remains."""
    record_files = live_files(lake.tables[RECORDS.name])
    if not record_files:
        return datetime.fromtimestamp(0, UTC)
    # A file of another engine may have no upper bound in its statistics. It may be the last one.
    last = [file for file in record_files if file.statistics.get("max.log_offset") is None]
    last.append(max(record_files, key=lambda file: file.statistics.get("max.log_offset") or 0))
    rows = _read(lake, RECORDS, last, ["log_offset", "append_time"]).sort_by("log_offset")
    time: datetime = rows["append_time"][rows.num_rows - 1].as_py()
    return time


def _read(
    lake: LakeWriter, table: Table, table_files: Sequence[LiveFile], columns: Sequence[str] | None = None
) -> pa.Table:
    return files.read(lake.path, table, [file.path for file in table_files], columns)


def _reopen_requests(lake: LakeWriter, offset: int, time: datetime) -> dict[str, int]:
    """Commits ``assignment_requests`` with the requests reopened that records from ``offset`` on carried out.

    Returns the number of rows written, if any. ``time`` is that of the record before the cut: requests after it that
    were not in the log may be in the new one. The caller holds the lock and commits the ledger.
    """
    if lake.ledger is None or _REQUESTS not in lake.ledger["versions"]:
        return {}
    request_files = live_files(lake.tables[_REQUESTS])
    opened = [file for file in request_files if file.shard >= 0]
    added: list[DataFile] = []
    gone: list[LiveFile] = []
    waiting: list[pa.Table] = []
    for file in request_files:
        if file in opened:
            continue
        rows = files.read(lake.path, ASSIGNMENT_REQUESTS, [file.path])
        beyond = pc.fill_null(pc.greater_equal(rows["realised_offset"], offset), False)
        missed = pc.and_(pc.equal(rows["outcome"], "not in the log"), pc.greater(rows["answered_time"], time))
        again = pc.or_(beyond, missed)
        if not pc.any(again).as_py():
            continue
        gone.append(file)
        waiting.append(_pending(rows.filter(again)))
        kept = rows.filter(pc.invert(again))
        if kept.num_rows:
            added.append(files.write(lake.path, _REQUESTS, kept))
    if not gone:
        return {}
    waiting.append(files.read(lake.path, ASSIGNMENT_REQUESTS, [file.path for file in opened]))
    added.append(files.write(lake.path, _REQUESTS, pa.concat_tables(waiting), shard=_OPEN_SHARD))
    lake.commit(ASSIGNMENT_REQUESTS, added, [*gone, *opened], offset, offset)
    return {_REQUESTS: sum(file.rows for file in added)}


def _pending(rows: pa.Table) -> pa.Table:
    rows = _without(rows, "why", "realised_offset", "realised_time", "latency_ms")
    at = rows.schema.get_field_index("outcome")
    return rows.set_column(at, rows.schema.field(at), pa.array(["pending"] * rows.num_rows, pa.string()))
