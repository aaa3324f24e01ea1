"""The table ``findings``: every finding of every run, and how long it lasted.

A row is one period of a finding: first seen, last seen, and cleared when a run no longer finds it. A finding that comes
back gets a new row. Offsets and times are the log's, so a run at the same offset changes nothing. Only runs at the
newest offset are written, because findings about the past are not new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from jbod_model.errors import Retriable, UsageError, first_line_of
from pipelines.check.definition import SEVERITIES, Check, Finding
from pipelines.lake.delta import data_files, delta_at, read_parquet, uri_of
from pipelines.lake.foreign import commit_info
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.lake.tables import TIME, Table, column
from pipelines.lake.uris import LakeUri
from pipelines.storage.objects import storage_options

FINDINGS = Table(
    "findings",
    "What checks found, and how long it lasted.",
    pa.schema(
        [
            column("key", pa.string(), "check and subject: the same as long as the same is wrong with the same"),
            column("check_id", pa.string(), "id of the check, B-01 and so on"),
            column("name", pa.string(), "name of the check"),
            column("severity", pa.string(), "critical, warning or info"),
            column("broker_id", pa.int32(), "broker it is about", null=True),
            column("directory_id", pa.string(), "directory it is about", null=True),
            column("topic_id", pa.string(), "id of the topic it is about", null=True),
            column("topic", pa.string(), "name of that topic", null=True),
            column("partition", pa.int32(), "partition it is about", null=True),
            column("replica_index", pa.int32(), "position in the partition's replicas", null=True),
            column("from_offset", pa.int64(), "offset of the record that caused it"),
            column("from_time", TIME, "append time of that record"),
            column("finding", pa.string(), "what is wrong"),
            column("advice", pa.string(), "what to do next"),
            column("source", pa.string(), "where the rule comes from"),
            column("cluster_id", pa.string(), "cluster.id, empty if unknown"),
            column("profile", pa.string(), "rules: kafka or kip858"),
            column("first_seen_offset", pa.int64(), "newest offset when a run first found it"),
            column("first_seen_time", TIME, "time of that offset"),
            column("last_seen_offset", pa.int64(), "newest offset when a run last found it"),
            column("last_seen_time", TIME, "time of that offset"),
            column(
                "cleared_offset", pa.int64(), "newest offset when a run found it no more; null till then", null=True
            ),
            column("cleared_time", TIME, "time of that offset; null till then", null=True),
        ]
    ),
    key=("key", "first_seen_offset"),
    checks={
        "severity_is_known": f"severity IN {SEVERITIES}",
        "life_is_ordered": "last_seen_offset >= first_seen_offset AND "
        "(cleared_offset IS NULL OR cleared_offset >= last_seen_offset)",
    },
)


@dataclass(frozen=True)
class Recorded:
    """The changes by a run."""

    new: int
    lasting: int
    cleared: int


def record(lake: Lake, ran: Iterable[Check], findings: Sequence[Finding]) -> Recorded | None:
    """Writes the findings of the checks that ``ran`` at the newest offset of ``lake``. It keeps those of other checks.

    Writes nothing and returns None if the lake ends before the kept findings: it was rolled back or created again, and
    findings are written again after it has grown. Raises UsageError if the lake is not at its newest offset or cannot
    be written, and Retriable if another run wrote first.
    """
    if lake.offset != lake.published.end_offset - 1:
        raise UsageError("findings are recorded at the newest offset only")
    location = f"{lake.path}/{FINDINGS.name}"
    table = _open_or_create(location)
    newest, before = _kept(lake, location, table)
    if newest > lake.offset:
        return None
    now = {one.key: _row(lake, one) for one in findings}
    checked = {check.id for check in ran}
    changed = []
    for key, row in now.items():
        if key in before:
            row |= {name: before[key][name] for name in ("first_seen_offset", "first_seen_time")}
        if row != before.get(key):
            changed.append(row)
    gone = [row for key, row in before.items() if key not in now and row["check_id"] in checked]
    changed += [row | {"cleared_offset": lake.offset, "cleared_time": lake.time} for row in gone]
    if changed:
        _merge(location, table, changed)
    lasting = len(now.keys() & before.keys())
    return Recorded(len(now) - lasting, lasting, len(gone))


def findings(lake: LakeUri, *, only_open: bool = False) -> list[dict[str, Any]]:
    """The rows of the table in the order of first seen. Empty if no check ran yet."""
    try:
        table = delta_at(uri_of(f"{lake}/{FINDINGS.name}"))
    except TableNotFoundError:
        return []
    wanted = pc.field("cleared_offset").is_null() if only_open else None
    kept = table.to_pyarrow_dataset().to_table(filter=wanted)
    rows: list[dict[str, Any]] = kept.sort_by(
        [(name, "ascending") for name in ("first_seen_offset", "key")]
    ).to_pylist()
    return rows


def _row(lake: Lake, one: Finding) -> dict[str, Any]:
    return {
        "key": one.key,
        "check_id": one.check.id,
        "name": one.check.name,
        "severity": one.severity,
        "broker_id": one.broker_id,
        "directory_id": one.directory_id,
        "topic_id": one.topic_id,
        "topic": one.topic,
        "partition": one.partition,
        "replica_index": one.replica_index,
        "from_offset": one.from_offset,
        "from_time": one.from_time,
        "finding": one.finding,
        "advice": one.advice,
        "source": one.check.source,
        "cluster_id": lake.published.cluster_id,
        "profile": lake.published.profile,
        "first_seen_offset": lake.offset,
        "first_seen_time": lake.time,
        "last_seen_offset": lake.offset,
        "last_seen_time": lake.time,
        "cleared_offset": None,
        "cleared_time": None,
    }


def _kept(lake: Lake, location: str, table: DeltaTable) -> tuple[int, dict[str, dict[str, Any]]]:
    """The newest offset of the rows, -1 without any, and the rows that are not cleared, by key."""
    rows = read_parquet(lake.path, FINDINGS.name, table, [file["path"] for file in data_files(table)])
    times = [field.name for field in FINDINGS.schema if field.type == TIME]
    values = ", ".join(f"epoch_us({name})" if name in times else name for name in FINDINGS.schema.names)
    try:
        # As DuckDB's rows: Arrow makes an object of each value first, which takes five times as long.
        newest = lake.connection.execute(f"SELECT max(greatest(last_seen_offset, cleared_offset)) FROM {rows}")
        ((known,),) = newest.fetchall()
        found = lake.connection.execute(f"SELECT {values} FROM {rows} WHERE cleared_offset IS NULL").fetchall()
    except duckdb.Error as problem:
        raise UsageError(
            f"{location}: cannot be read ({first_line_of(problem)}): --no-keep checks without writing findings"
        ) from None
    dicts = [dict(zip(FINDINGS.schema.names, row, strict=True)) for row in found]
    before = {one["key"]: one | {name: time_of(one[name]) for name in times if one[name] is not None} for one in dicts}
    return -1 if known is None else known, before


def _open_or_create(location: str) -> DeltaTable:
    try:
        table = delta_at(uri_of(location))
    except TableNotFoundError:
        return _create(location)
    except (DeltaError, OSError) as problem:
        raise UsageError(f"{location}: cannot be opened ({first_line_of(problem)})") from None
    if [field.name for field in table.schema().fields] != FINDINGS.schema.names:
        raise UsageError(f"{location}: findings of another version of jbod: move that folder away, and check again")
    return table


def _create(location: str) -> DeltaTable:
    try:
        table = DeltaTable.create(
            uri_of(location),
            FINDINGS.schema,
            name=FINDINGS.name,
            description=FINDINGS.comment,
            configuration={"delta.enableDeletionVectors": "false"},
            storage_options=storage_options(location),
        )
        for name, expression in FINDINGS.checks.items():
            table.alter.add_constraint({name: expression})
    except (DeltaError, OSError) as problem:
        raise UsageError(
            f"{location}: cannot be created ({first_line_of(problem)}): --no-keep checks without writing findings"
        ) from None
    return table


def _merge(location: str, table: DeltaTable, rows: list[dict[str, Any]]) -> None:
    """Merges rows in one commit: a row replaces the open row of the same finding, otherwise it is added."""
    try:
        (
            table.merge(
                pa.Table.from_pylist(rows, schema=FINDINGS.schema),
                "kept.cleared_offset IS NULL AND kept.key = now.key",
                source_alias="now",
                target_alias="kept",
                commit_properties=CommitProperties(commit_info({}, "compared findings"), max_commit_retries=0),
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
    except CommitFailedError:
        raise Retriable(f"{location}: another check was written at the same time: run again") from None
    except (DeltaError, OSError) as problem:
        raise UsageError(
            f"{location}: cannot be written ({first_line_of(problem)}): --no-keep checks without writing findings"
        ) from None
