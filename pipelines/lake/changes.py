"""The table ``changes``: the rows in force, and how a rollback retracts rows and removes none (docs/spec/changes.md).

A stream reads this table, so a row that was committed stays. Where tables are rolled back, restored after a dead run
or rebuilt, rows are appended that retract what no longer holds (R-EVENT-7), in a new generation (R-EVENT-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from pipelines.lake import files
from pipelines.lake.delta import RowHash, connect, delta_at, read_parquet, reading, row_hash, run_query
from pipelines.lake.files import DataFile
from pipelines.lake.foreign import REBUILT, REWRITTEN, commit_info
from pipelines.lake.tables import CHANGES
from pipelines.lake.uris import LakeUri
from pipelines.lake.written_lake import APPEND_ONLY, LiveFile, WrittenLake, live_files
from pipelines.storage.filesystem import filesystem_of

EPOCH = datetime.fromtimestamp(0, UTC)
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


def settled(lake: LakeUri, delta: DeltaTable, version: int | None, at: datetime, end_offset: int) -> list[DataFile]:
    """Writes rows so that the rows in force are those of ``version`` (None: no rows). Writes none if they are already.

    A run that died between its commit to this table and its row of the ledger leaves rows that do not count.
    """
    now = live_files(delta)
    then = [] if version is None else live_files(delta_at(delta.table_uri, version))
    known = {file.path for file in then}
    new = [file for file in now if file.path not in known]
    old = _all(lake, delta, then)
    late = _all(lake, delta, new)
    # Only keys that the new files name can differ.
    touched = f"(SELECT DISTINCT {', '.join(KEY)} FROM {late} WHERE what <> '{HISTORY}')"
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in KEY)
    before = f"(SELECT a.* FROM {old} a SEMI JOIN {touched} b ON {same})"
    return _difference(
        lake, delta, f"(SELECT * FROM {before} UNION ALL BY NAME SELECT * FROM {late})", before, end_offset,
        "not published", at,
    )  # fmt: skip


def rebuilt(
    lake: LakeUri, delta: DeltaTable, wanted: Sequence[DataFile], at: datetime, end_offset: int
) -> list[DataFile]:
    """Writes rows so that exactly the rows of the files ``wanted`` are in force, and one row about the rollback."""
    listed = read_parquet(lake, CHANGES.name, delta, [file.path for file in wanted])
    have = _all(lake, delta, live_files(delta))
    return _difference(lake, delta, have, listed, end_offset, "rebuilt", at, always=True)


def next_generation(lake: WrittenLake) -> int | None:
    """The generation of new rows, None for a lake without them."""
    return generation_of(lake.path, lake.tables[CHANGES.name]) if lake.keeps_changes else None


def settle_changes(lake: WrittenLake) -> None:
    """Retracts the rows that a dead run left. It appends rows for this, because a stream may have read the others."""
    if lake.half is None:
        version = None if lake.ledger is None else lake.ledger["versions"].get(CHANGES.name)
        added = settled(lake.path, lake.tables[CHANGES.name], version, *_end(lake))
        lake.commit(CHANGES, added, (), *2 * (_end(lake)[1],))


def rebuild_changes(lake: WrittenLake, wanted: Sequence[DataFile]) -> None:
    """Appends rows so that the rows of ``wanted`` are in force, and deletes these files."""
    delta = lake.tables[CHANGES.name]
    if lake.keeps_changes:
        added = rebuilt(lake.path, delta, wanted, *_end(lake))
        if delta.metadata().configuration.get("delta.appendOnly") != "true":
            # Another engine changed it.
            info = commit_info({REWRITTEN: "true"}, "made the table append-only")
            delta.alter.set_table_properties(APPEND_ONLY, commit_properties=CommitProperties(info))
            lake.tables.refresh(CHANGES.name)
        lake.commit_marked(CHANGES, added, (), {REBUILT: "true"})
    fs, root = filesystem_of(lake.path)
    for file in wanted:
        fs.delete_file(f"{root}/{CHANGES.name}/{file.path}")


def _end(lake: WrittenLake) -> tuple[datetime, int]:
    """Time of the lake's last record, and its end offset."""
    return (EPOCH, 0) if lake.ledger is None else (lake.ledger["end_time"], lake.end_offset)


def _difference(
    lake: LakeUri, delta: DeltaTable, have: str, wanted: str, end: int, why: str, at: datetime, *, always: bool = False
) -> list[DataFile]:
    generation = generation_of(lake, delta) + 1
    columns = ", ".join(CONTENT)
    with reading(lake), connect(lake) as connection:
        if same_changes(lake, connection, have, row_hash(lake, connection, CONTENT, wanted)):
            return [_write(lake, [_rollback_row(end, end, end, why, at, generation)])] if always else []
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
    return [_write(lake, [_rollback_row(min(firsts, default=end), end, end, why, at, generation), gone, made])]


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
