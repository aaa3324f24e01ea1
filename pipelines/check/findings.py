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
from pipelines.lake.delta import delta_at, read_parquet, uri_of
from pipelines.lake.foreign import commit_info
from pipelines.lake.reader import Lake
from pipelines.lake.tables import SQL_TYPES, TIME, Table, column
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import add_checks
from pipelines.storage.objects import fault_of_disk, storage_options

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
    rows = read_parquet(lake.path, FINDINGS.name, table)
    findings_by_key = {finding.key: finding for finding in findings}
    lake.make("now", _FIELDS, (_row(*finding) for finding in findings_by_key.items()))
    try:
        ((newest, lasting),) = lake.connection.execute(_LASTING.format(rows=rows)).fetchall()
        if newest > lake.offset:
            return None
        of_lake = lake.published
        parameters = [lake.offset, lake.time, sorted({check.id for check in ran}), of_lake.cluster_id, of_lake.profile]
        changed = lake.connection.sql(_CHANGED.format(rows=rows), params=parameters).to_arrow_table()
    except duckdb.Error as problem:
        raise UsageError(
            f"{location}: cannot be read ({first_line_of(problem)}): --no-keep checks without writing findings"
        ) from None
    if changed.num_rows:
        _merge(location, table, changed.cast(FINDINGS.schema))
    cleared = changed.num_rows - changed["cleared_offset"].null_count
    return Recorded(len(findings_by_key) - lasting, lasting, cleared)


_LASTING = """
    SELECT coalesce(max(greatest(last_seen_offset, cleared_offset)), -1),
           count(*) FILTER (cleared_offset IS NULL AND key IN (SELECT key FROM now))
    FROM {rows}
"""
_CHANGED = f"""
    WITH kept AS (SELECT {", ".join(FINDINGS.schema.names)} FROM {{rows}} WHERE cleared_offset IS NULL),
    lasting AS (
        SELECT now.*, $4 AS cluster_id, $5 AS profile,
               coalesce(first_seen_offset, $1) AS first_seen_offset, coalesce(first_seen_time, $2) AS first_seen_time,
               $1 AS last_seen_offset, $2 AS last_seen_time, NULL AS cleared_offset, NULL AS cleared_time
        FROM now LEFT JOIN kept USING (key)
    ),
    cleared AS (
        SELECT * REPLACE ($1 AS cleared_offset, $2 AS cleared_time) FROM kept ANTI JOIN now USING (key)
        WHERE list_contains($3, check_id)
    )
    (FROM lasting EXCEPT FROM kept) UNION ALL FROM cleared
"""


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


_SOURCE = FINDINGS.schema.get_field_index("source")
_FIELDS = ", ".join(f"{field.name} {SQL_TYPES[field.type]}" for field in list(FINDINGS.schema)[: _SOURCE + 1])


def _row(key: str, finding: Finding) -> tuple[object, ...]:
    """The columns of a finding up to ``source``: those that tell nothing of the lake, nor how long it lasted."""
    subject = (finding.broker_id, finding.directory_id, finding.topic_id, finding.topic, finding.partition)
    cause = (finding.replica_index, finding.from_offset, finding.from_time, finding.finding, finding.advice)
    return (key, finding.check.id, finding.check.name, finding.severity, *subject, *cause, finding.check.source)


def _open_or_create(location: str) -> DeltaTable:
    try:
        table = delta_at(uri_of(location))
    except TableNotFoundError:
        return _create(location)
    except (DeltaError, OSError) as problem:
        raise UsageError(
            f"{location}: cannot be opened ({first_line_of(problem)}): --no-keep checks without writing findings"
        ) from None
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
        add_checks(table, FINDINGS)
    except (DeltaError, OSError) as problem:
        raise _cannot_write(location, problem) from None
    return table


def _merge(location: str, table: DeltaTable, rows: pa.Table) -> None:
    """Merges rows in one commit: a row replaces the open row of the same finding, otherwise it is added."""
    try:
        (
            table.merge(
                rows,
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
        raise _cannot_write(location, problem) from None


def _cannot_write(location: str, problem: Exception) -> UsageError:
    reason = fault_of_disk(location, problem) or f"{location}: cannot be written ({first_line_of(problem)})"
    return UsageError(f"{reason}: --no-keep checks without writing findings")
