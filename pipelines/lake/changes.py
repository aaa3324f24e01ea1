"""The table ``changes``: the rows in force, and how a rollback retracts rows and removes none (docs/spec/changes.md).

A stream reads this table, so a row that was committed stays. Where tables are rolled back, restored after a dead run
or rebuilt, rows are appended that retract what no longer holds (R-EVENT-7), in a new generation (R-EVENT-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from pipelines.lake import files
from pipelines.lake.delta import RowHash, connect, delta_at, read_parquet, reading, row_hash, run_query
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import REBUILT, REWRITTEN, commit_info
from pipelines.lake.ledger import EPOCH
from pipelines.lake.tables import CHANGES
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import APPEND_ONLY, LiveFile, WrittenLake, live_files
from pipelines.storage.filesystem import filesystem_of

KEY = ("log_offset", "what", "topic_id", "partition", "broker_id", "directory_id")
"""What happened. The newest row of a key counts, by generation; in one generation a retraction comes first."""
CONTENT = [name for name in CHANGES.schema.names if name not in ("retraction", "generation")]
HISTORY = "history"
"""``what`` of a row about a rollback: from ``log_offset`` on, for the reason in ``why``."""


def in_force(rows: str) -> str:
    """SQL for the rows of ``changes`` that were not retracted, given SQL for all of its rows (R-EVENT-7)."""
    newest = f"row_number() OVER (PARTITION BY {', '.join(KEY)} ORDER BY generation DESC, retraction) = 1"
    return f"(FROM (FROM {rows} WHERE what <> '{HISTORY}' QUALIFY {newest}) WHERE NOT retraction)"


def same_changes(lake: LakeUri, connection: duckdb.DuckDBPyConnection, rows: str, wanted: RowHash) -> bool:
    """Whether the rows of ``changes`` have the hash ``wanted`` (columns CONTENT), and none of them was ever retracted.

    If not, the rows in force may still be the same.
    """
    ((newest, retracted),) = run_query(
        lake, connection, f"SELECT max(generation), bool_or(retraction) FROM {rows} WHERE what <> '{HISTORY}'"
    )
    if newest or retracted:
        return False
    return row_hash(lake, connection, CONTENT, f"(FROM {rows} WHERE what <> '{HISTORY}')") == wanted


def generation_of(lake: LakeUri, delta: DeltaTable) -> int:
    """The generation of the newest row, 0 for a table without rows."""
    change_files = live_files(delta)
    bounds: list[Any] = [file.statistics.get("max.generation") for file in change_files]
    if None not in bounds:
        return max(map(int, bounds), default=0)
    with reading(lake), connect(lake) as connection:
        rows = connection.execute(f"SELECT max(generation) FROM {_all(lake, delta, change_files)}").fetchall()
    return int(rows[0][0] or 0)


def taken_back(lake: LakeUri, delta: DeltaTable, offset: int, before: int, at: datetime) -> list[DataFile]:
    """Writes rows that retract everything from ``offset`` on. The lake ended at ``before``, now at ``offset``."""
    later_files = [file for file in live_files(delta) if not file.is_less("max.log_offset", offset)]
    wanted = f"(FROM {in_force(_all(lake, delta, later_files))} WHERE log_offset >= {offset})"
    generation = generation_of(lake, delta) + 1
    with reading(lake), connect(lake) as connection:
        rows = connection.sql(_retractions(wanted, generation)).to_arrow_table()
    return [_write(lake, [_rollback_row(offset, before, offset, "rolled back", at, generation), rows])]


def next_generation(lake: WrittenLake) -> int | None:
    """The generation of new rows, None for a lake without them."""
    return generation_of(lake.path, lake.tables[CHANGES.name]) if lake.keeps_changes else None


def settle_changes(lake: WrittenLake) -> None:
    """Retracts the rows of a run that died between its commit to this table and its row of the ledger. It appends rows
    for this, because a stream may have read the others."""
    if lake.half is not None:
        return
    delta, version = lake.tables[CHANGES.name], lake.versions.get(CHANGES.name)
    then = [] if version is None else live_files(delta_at(delta.table_uri, version))
    known = {file.path for file in then}
    old = _all(lake.path, delta, then)
    late = _all(lake.path, delta, [file for file in live_files(delta) if file.path not in known])
    # Only keys that the new files name can differ.
    touched = f"(SELECT DISTINCT {', '.join(KEY)} FROM {late} WHERE what <> '{HISTORY}')"
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in KEY)
    before = f"(SELECT a.* FROM {old} a SEMI JOIN {touched} b ON {same})"
    have = f"(SELECT * FROM {before} UNION ALL BY NAME SELECT * FROM {late})"
    end = max(lake.end_offset, 0)
    lake.commit(CHANGES, _difference(lake, have, before, "not published"), (), end, end)


def rebuild_changes(lake: WrittenLake, wanted: Sequence[DataFile]) -> None:
    """Appends rows so that exactly the rows of ``wanted`` are in force, and one row about the rollback. Deletes these
    files."""
    delta = lake.tables[CHANGES.name]
    if lake.keeps_changes:
        listed = read_parquet(lake.path, CHANGES.name, delta, [file.path for file in wanted])
        added = _difference(lake, _all(lake.path, delta, live_files(delta)), listed, "rebuilt", always=True)
        if delta.metadata().configuration.get("delta.appendOnly") != "true":
            # Another engine changed it.
            info = commit_info({REWRITTEN: "true"}, "made the table append-only")
            delta.alter.set_table_properties(APPEND_ONLY, commit_properties=CommitProperties(info))
            lake.tables.refresh(CHANGES.name)
        lake.commit_marked(CHANGES, added, (), {REBUILT: "true"})
    fs, root = filesystem_of(lake.path)
    for file in wanted:
        fs.delete_file(f"{root}/{CHANGES.name}/{file.path}")


def _difference(lake: WrittenLake, have: str, wanted: str, why: str, *, always: bool = False) -> list[DataFile]:
    """Writes rows so that those in force are ``wanted``, not ``have``; none if they are, unless ``always``."""
    path, end = lake.path, max(lake.end_offset, 0)
    at = EPOCH if lake.ledger is None else lake.ledger["end_time"]
    generation = generation_of(path, lake.tables[CHANGES.name]) + 1
    columns = ", ".join(CONTENT)
    with reading(path), connect(path) as connection:
        if same_changes(path, connection, have, row_hash(path, connection, CONTENT, wanted)):
            return [_write(path, [_rollback_row(end, end, end, why, at, generation)])] if always else []
        connection.execute(f"CREATE TEMP TABLE have AS SELECT {columns} FROM {in_force(have)}")
        connection.execute(f"CREATE TEMP TABLE due AS SELECT {columns} FROM {in_force(wanted)}")
        gone = connection.sql(_retractions("(FROM have EXCEPT ALL FROM due)", generation)).to_arrow_table()
        made = connection.sql(
            f"SELECT *, false AS retraction, {generation}::INTEGER AS generation FROM (FROM due EXCEPT ALL FROM have) "
            "ORDER BY log_offset"
        ).to_arrow_table()
    if not gone.num_rows and not made.num_rows and not always:
        return []
    firsts = [table["log_offset"][0].as_py() for table in (gone.slice(max(len(gone) - 1, 0)), made) if len(table)]
    return [_write(path, [_rollback_row(min(firsts, default=end), end, end, why, at, generation), gone, made])]


def _retractions(rows: str, generation: int) -> str:
    """SQL for the rows that retract ``rows``, the newest first."""
    return (
        f"SELECT * REPLACE (after AS before, before AS after), true AS retraction, {generation}::INTEGER AS generation "
        f"FROM (SELECT {', '.join(CONTENT)} FROM {rows}) ORDER BY log_offset DESC"
    )


def _rollback_row(offset: int, before: int, after: int, why: str, at: datetime, generation: int) -> pa.Table:
    """The row about a rollback from ``offset`` on."""
    row = dict.fromkeys(CHANGES.schema.names) | {
        "log_offset": offset,
        "batch_offset": offset,
        "append_time": at,
        "what": HISTORY,
        "before": str(before),
        "after": str(after),
        "why": why,
        "from_snapshot": False,
        "retraction": False,
        "generation": generation,
    }
    return pa.Table.from_pylist([row], schema=CHANGES.schema)


def _write(lake: LakeUri, parts: Sequence[pa.Table]) -> DataFile:
    names = CHANGES.schema.names
    return files.write(
        lake, CHANGES.name, pa.concat_tables([part.select(names).cast(CHANGES.schema) for part in parts])
    )


def _all(lake: LakeUri, delta: DeltaTable, change_files: Sequence[LiveFile]) -> str:
    return read_parquet(lake, CHANGES.name, delta, [file.path for file in change_files])
