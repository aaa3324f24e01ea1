"""A lake as of one offset, read without a JVM: delta-rs finds the files, DuckDB reads them.

The newest row of the ledger says which version of every table belongs together, so a reader sees all of a published
batch or nothing of it, also while another one is being written.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from jbod_model.errors import UsageError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SQL_TYPES = {
    "string": "VARCHAR",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "binary": "BLOB",
}
_BOUNDS = (
    "min.from_offset",
    "max.to_offset",
    "null_count.to_offset",
    "min.log_offset",
)


def time_of(micros: int) -> datetime:
    """A time in UTC from microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


@dataclass(frozen=True)
class Published:
    """A row of the ledger."""

    start_offset: int
    end_offset: int
    end_time: datetime
    published_time: datetime
    profile: str
    ids: str
    cluster_id: str
    from_snapshot: int | None
    versions: Mapping[str, int]


_PUBLISHED = (
    "start_offset, end_offset, epoch_us(end_time), epoch_us(published_time), profile, ids, cluster_id, "
    "from_snapshot, versions"
)


@dataclass(frozen=True)
class Lake:
    """A lake as of ``offset``: every query sees what was true after the record at that offset."""

    path: str
    published: Published
    """The newest publication."""
    first: int
    """The oldest offset that can be asked about."""
    offset: int
    time: datetime
    """When the newest record at or before ``offset`` was appended."""
    tables: Mapping[str, DeltaTable]
    connection: duckdb.DuckDBPyConnection

    @classmethod
    def open(cls, path: str | os.PathLike[str], at_offset: int | None = None, at_time: datetime | None = None) -> Lake:
        """The lake at ``path`` after the record at ``at_offset``, or after the last one appended by ``at_time``.

        Without either, after the newest published record. UsageError where there is no lake, or where it does not
        know that offset or time.
        """
        root = _local(os.fspath(path)).rstrip("/")
        connection = duckdb.connect()
        ledger = _table(root, "ledger", None)
        newest, ranges = _read_ledger(root, ledger, connection)
        if newest is None:
            raise UsageError(f"{root}: nothing was published into this lake yet: run jbod replay LOG_DIR --lake {root}")
        tables = {name: _table(root, name, version) for name, version in newest.versions.items()}
        lake = cls(root, newest, ranges[0][0], newest.end_offset - 1, newest.end_time, tables, connection)
        if at_time is not None:
            at_offset = lake._offset_at(at_time)
        if at_offset is None:
            return lake
        _check_known(root, ranges, at_offset)
        return lake._at(at_offset)

    def at(self, table: str) -> str:
        """SQL for the rows of a history table that are true at this offset."""
        files = [
            file["path"]
            for file in _files(self.tables[table])
            if _at_most(file["min.from_offset"], self.offset)
            and (file["null_count.to_offset"] != 0 or _more(file["max.to_offset"], self.offset))
        ]
        return (
            f"(SELECT * FROM {self._read(table, files)} "
            f"WHERE from_offset <= {self.offset} AND (to_offset IS NULL OR to_offset > {self.offset}))"
        )

    def until(self, table: str) -> str:
        """SQL for the rows of a history table that began by this offset; ends that came later are not known yet."""
        files = [file["path"] for file in _files(self.tables[table]) if _at_most(file["min.from_offset"], self.offset)]
        ends = ["to_offset", "to_time"]
        if any(field.name == "ended_by" for field in self.tables[table].schema().fields):
            ends.append("ended_by")
        hidden = ", ".join(f"CASE WHEN to_offset <= {self.offset} THEN {end} END AS {end}" for end in ends)
        return f"(SELECT * REPLACE ({hidden}) FROM {self._read(table, files)} WHERE from_offset <= {self.offset})"

    def records(self) -> str:
        """SQL for the records up to this offset."""
        files = [
            file["path"] for file in _files(self.tables["records"]) if _at_most(file["min.log_offset"], self.offset)
        ]
        return f"(SELECT * FROM {self._read('records', files)} WHERE log_offset <= {self.offset})"

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return _run(self.path, self.connection, sql, parameters)

    def _read(self, table: str, files: Sequence[str]) -> str:
        return _read_parquet(self.path, table, self.tables[table], files)

    def _at(self, offset: int) -> Lake:
        lake = Lake(self.path, self.published, self.first, offset, self.time, self.tables, self.connection)
        ((micros,),) = lake.query(f"SELECT epoch_us(arg_max(append_time, log_offset)) FROM {lake.records()}")
        time = self.time if micros is None else time_of(micros)
        return Lake(self.path, self.published, self.first, offset, time, self.tables, self.connection)

    def _offset_at(self, at_time: datetime) -> int:
        wanted = at_time if at_time.tzinfo else at_time.replace(tzinfo=UTC)
        micros = (wanted - EPOCH) // timedelta(microseconds=1)
        ((found, oldest),) = self.query(
            "SELECT max(log_offset) FILTER (append_time <= make_timestamptz($1)), epoch_us(min(append_time)) "
            f"FROM {self.records()}",
            [micros],
        )
        if found is None:
            raise UsageError(
                f"{self.path}: {wanted.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC is before the oldest record of the lake, "
                f"of {time_of(oldest or 0):%Y-%m-%d %H:%M:%S} UTC (offset {self.first})"
            )
        return int(found)


def _run(
    root: str, connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql, list(parameters)).fetchall()
    except (duckdb.IOException, duckdb.InvalidInputException) as problem:
        what = str(problem).splitlines()[0]
        raise UsageError(
            f"{root}: a file of the lake is damaged or gone ({what}): ask again; if it stays, rebuild the lake"
        ) from None


def _local(path: str) -> str:
    """``path`` without a file:// in front, which not every reader understands."""
    return unquote(urlsplit(path).path) if path.startswith("file://") else path


def _uri(path: str) -> str:
    """A local path as a URI, in which delta-rs takes characters that it refuses in a path."""
    return path if "://" in path else Path(path).absolute().as_uri()


def _table(root: str, name: str, version: int | None) -> DeltaTable:
    try:
        return DeltaTable(_uri(f"{root}/{name}"), version=version)
    except (TableNotFoundError, DeltaError, OSError) as problem:
        if name == "ledger":
            raise UsageError(f"{root}: no lake there: make one with jbod replay LOG_DIR --lake {root}") from None
        what = str(problem).splitlines()[0]
        raise UsageError(f"{root}/{name}: cannot be opened at version {version} ({what})") from None


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    """Path and statistics of every data file; a statistic that is not there is None."""
    actions = table.get_add_actions(flatten=True)
    names = set(actions.schema.names)
    columns = {name: actions.column(name).to_pylist() if name in names else None for name in ("path", *_BOUNDS)}
    return [
        {name: None if column is None else column[row] for name, column in columns.items()}
        for row in range(actions.num_rows)
    ]


def _at_most(bound: int | None, offset: int) -> bool:
    return bound is None or bound <= offset


def _more(bound: int | None, offset: int) -> bool:
    return bound is None or bound > offset


def _read_parquet(root: str, name: str, table: DeltaTable, files: Sequence[str]) -> str:
    if not files:
        columns = (f"NULL::{_sql_type(field.type)} AS {field.name}" for field in table.schema().fields)
        return f"(SELECT {', '.join(columns)} WHERE false)"
    quoted = ", ".join(_quoted(f"{root}/{name}/{file}") for file in files)
    return f"read_parquet([{quoted}])"


def _quoted(path: str) -> str:
    """A path as an SQL text, none of its characters a wildcard."""
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in path)
    return "'" + plain.replace("'", "''") + "'"


def _sql_type(kind: Any) -> str:
    if kind.type == "array":
        return _sql_type(kind.element_type) + "[]"
    if kind.type == "map":
        return f"MAP({_sql_type(kind.key_type)}, {_sql_type(kind.value_type)})"
    return _SQL_TYPES[kind.type]


def _read_ledger(
    root: str, ledger: DeltaTable, connection: duckdb.DuckDBPyConnection
) -> tuple[Published | None, list[tuple[int, int]]]:
    """The newest publication and the ranges [first, end) of offsets the lake knows.

    A snapshot begins a range: what the log said between the range before and its last offset was gone by then.
    """
    files = [file["path"] for file in _files(ledger)]
    source = _read_parquet(root, "ledger", ledger, files)
    rows = _run(root, connection, f"SELECT {_PUBLISHED} FROM {source} ORDER BY end_offset")
    found = [
        Published(start, end, time_of(ended), time_of(written), *rest) for start, end, ended, written, *rest in rows
    ]
    if not found:
        return None, []
    ranges: list[tuple[int, int]] = []
    for row in found:
        if row.from_snapshot is not None:
            ranges.append((row.from_snapshot - 1, row.end_offset))
        elif not ranges:
            ranges.append((row.start_offset, row.end_offset))
        else:
            ranges[-1] = (ranges[-1][0], row.end_offset)
    return found[-1], ranges


def _check_known(root: str, ranges: Sequence[tuple[int, int]], offset: int) -> None:
    first, newest = ranges[0][0], ranges[-1][1] - 1
    if offset < first:
        raise UsageError(f"{root}: offset {offset} is before the first this lake knows, {first}")
    if offset > newest:
        raise UsageError(f"{root}: offset {offset} is after the newest published one, {newest}")
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        if end <= offset < begin:
            raise UsageError(
                f"{root}: offset {offset} was never read: the log went from {end - 1} to the snapshot at {begin}; "
                "ask for either of them"
            )
