"""Take a lake back to what it said at an earlier offset: tables first, the ledger last, in one version each.

A history row says when it began and when it ended, so what was true at an offset is in the rows themselves: those
that began later go, ends that came later are taken back. Only files with such rows are written anew.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.lake import files
from pipelines.lake.files import DataFile, lake_filesystem
from pipelines.lake.publish import Lake
from pipelines.lake.reopen import reopen_requests
from pipelines.lake.tables import BROKERS, DIRECTORIES, HISTORY, LEDGER, RECORDS, REQUESTS, Table


@dataclass(frozen=True)
class Cut:
    """Where a lake is taken back to: offset, epoch and fingerprint of the batch before it, level of metadata.version.

    ``fingerprint`` is -1 where the log no longer has that batch.
    """

    offset: int
    epoch: int
    fingerprint: int
    metadata_version: int


ShardsOf = Callable[[np.ndarray, int], np.ndarray]
"""Shard of each topic id (uint64[n, 2]), given the number of shards: int32[n]."""


def take_back(lake: Lake, cut: Cut, shards_of: ShardsOf) -> None:
    """Make every table what it was before the record at ``cut.offset``; readers see it once the ledger says so."""
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
        rows |= reopen_requests(lake, cut.offset, _last_time(lake))
        _cut_ledger(lake, cut, before, rows)


def _cut_records(lake: Lake, offset: int) -> tuple[list[DataFile], list[str]]:
    added, gone = [], []
    for name, statistics in _files(lake, RECORDS).items():
        if _less(statistics["max.log_offset"], offset):
            continue
        gone.append(name)
        kept = _read(lake, RECORDS, [name]).filter(pc.field("log_offset") < offset)
        if kept.num_rows:
            added.append(files.write(lake.location, RECORDS.name, kept))
    return added, gone


def _cut_history(lake: Lake, table: Table, offset: int, shards_of: ShardsOf) -> tuple[list[DataFile], list[str]]:
    found = _files(lake, table)
    opened = {name: int(name.split("-")[1]) for name in found if name.startswith("open-")}
    gone = [name for name in found if name not in opened and not _less(found[name]["max.to_offset"], offset)]
    closed = _read(lake, table, gone).filter(pc.field("from_offset") < offset)
    again = closed.filter(pc.field("to_offset") >= offset)
    closed = closed.filter(pc.field("to_offset") < offset)
    owners = _shards(lake, table, again, shards_of)
    touched = {opened[name] for name in opened if not _less(found[name]["max.from_offset"], offset)}
    touched |= set(owners.tolist())
    parts: dict[int, list[pa.Table]] = defaultdict(list)
    for shard in sorted(touched):
        mine = [name for name in opened if opened[name] == shard]
        gone += mine
        parts[shard].append(_read(lake, table, mine).filter(pc.field("from_offset") < offset))
        parts[shard].append(_reopened(again.filter(pa.array(owners == shard))))
    added = [files.write(lake.location, table.name, closed)] if closed.num_rows else []
    for shard, tables in parts.items():
        rows = pa.concat_tables(tables)
        if rows.num_rows:
            added.append(files.write(lake.location, table.name, rows, shard=shard))
    return added, gone


def _reopened(rows: pa.Table) -> pa.Table:
    """Rows with their ends taken away."""
    for name in ("to_offset", "to_time", "ended_by"):
        if name in rows.schema.names:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
    return rows


def _shards(lake: Lake, table: Table, rows: pa.Table, shards_of: ShardsOf) -> np.ndarray:
    """Shard of each row: of its topic, or the control shard, which writes what is about brokers."""
    if table in (BROKERS, DIRECTORIES):
        return np.full(rows.num_rows, lake.identity.shards, np.int32)
    topics = rows["topic_id"].combine_chunks().dictionary_encode()
    texts = topics.dictionary.to_pylist()
    raw = b"".join(base64.urlsafe_b64decode(text + "==") for text in texts)
    owners = shards_of(np.frombuffer(raw, np.uint64).reshape(len(texts), 2), lake.identity.shards)
    found: np.ndarray = np.take(owners, topics.indices.to_numpy())
    return found


def _cut_ledger(lake: Lake, cut: Cut, before: int, written: dict[str, int]) -> None:
    """In one version: what was published from the offset on is gone, what led there ends there."""
    delta = lake.tables[LEDGER.name]
    missing = [field for field in LEDGER.schema if field.name not in {known.name for known in delta.schema().fields}]
    if missing:
        from deltalake import Field, Schema

        wanted = {field.name for field in missing}
        fields: list[Field] = [f for f in Schema.from_arrow(LEDGER.schema).fields if f.name in wanted]
        delta.alter.add_columns(fields)
        delta.update_incremental()
    found = _files(lake, LEDGER)
    gone = [name for name in found if not _less(found[name]["max.end_offset"], cut.offset)]
    rows = sorted(_read(lake, LEDGER, gone).to_pylist(), key=lambda row: row["end_offset"])
    kept = [row for row in rows if row["end_offset"] < cut.offset]
    covering = next((row for row in rows if row["start_offset"] < cut.offset <= row["end_offset"]), None)
    if covering is not None:
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
                "versions": versions,
                "rows": written,
            }
        )
    added = []
    if kept:
        added.append(files.write(lake.location, LEDGER.name, pa.Table.from_pylist(kept, schema=LEDGER.schema)))
    lake.commit(LEDGER, added, gone, cut.offset, cut.offset)
    lake.read_ledger()


def _versions(lake: Lake) -> dict[str, int]:
    known = [table for table in (RECORDS, *HISTORY, *REQUESTS) if table.name in lake.tables]
    return {table.name: lake.tables[table.name].version() for table in known}


def _last_time(lake: Lake) -> datetime:
    """Append time of the last record that is left; 1970 where none is."""
    names = _files(lake, RECORDS)
    if not names:
        return datetime.fromtimestamp(0, UTC)
    last = max(names, key=lambda name: names[name]["max.log_offset"] or 0)
    rows = _read(lake, RECORDS, [last], ["log_offset", "append_time"]).sort_by("log_offset")
    time: datetime = rows["append_time"][rows.num_rows - 1].as_py()
    return time


def _files(lake: Lake, table: Table) -> dict[str, dict[str, Any]]:
    """Statistics of the table's files by name; a statistic that is not there is None."""
    names = ("max.log_offset", "max.from_offset", "max.to_offset", "max.end_offset")
    actions = pa.table(lake.tables[table.name].get_add_actions(flatten=True))
    there = set(actions.column_names)
    return {row["path"]: {name: row[name] if name in there else None for name in names} for row in actions.to_pylist()}


def _read(lake: Lake, table: Table, names: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of some files in the table's schema, columns that an old file lacks as nulls."""
    fs, root = lake_filesystem(lake.location)
    schema = pa.schema([field for field in table.schema if columns is None or field.name in columns])
    parts = []
    for name in names:
        with fs.open_input_file(f"{root}/{table.name}/{name}") as source:
            rows = pq.ParquetFile(source).read(columns=[field.name for field in schema])
        there = set(rows.column_names)
        columns_of = [
            rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        parts.append(pa.table(columns_of, schema=schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _less(bound: int | None, offset: int) -> bool:
    return bound is not None and bound < offset
