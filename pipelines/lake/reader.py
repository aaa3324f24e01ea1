"""A lake as of one offset, read without a JVM: delta-rs finds the files, DuckDB reads them.

The newest row of the ledger names the versions of all tables that belong together. So a reader sees all of a published
batch or nothing of it, also while another batch is being written.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import duckdb

from jbod_model.errors import JbodError, UsageError
from jbod_model.formats.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from jbod_model.formats.schema import TYPE_NAMES
from jbod_model.ids import ID_TABLES
from pipelines.lake.delta import (
    DeltaTables,
    connect,
    data_files,
    file_list,
    is_among,
    local_path,
    read_parquet,
    refuse_misread,
    run_query,
    stream_query,
    unpublished,
    use_threads,
)
from pipelines.lake.ledger import (
    Published,
    check_known,
    log_end,
    micros_of,
    open_ledger,
    read_ledger,
    time_if_any,
    time_of,
)
from pipelines.lake.names import LABELS, Names, Statement
from pipelines.lake.side_tables import side_table
from pipelines.lake.times import parse_time
from pipelines.lake.uris import LakeUri

if TYPE_CHECKING:
    from deltalake import DeltaTable

Named = TypeVar("Named", bound=NamedTuple)
Made = TypeVar("Made")

ADVICE = "the record is kept as it is, and answers from there on say that they are incomplete; jbod rebuild by a later \
jbod that knows it makes them complete"
TODO = "upgrade jbod to one that knows it, then jbod rebuild"
"""What to do about a record that is not known: in a notice of a run, and in an answer."""


@dataclass(frozen=True)
class Incomplete:
    """The first record that is not known, and the kinds of all: ``record type 35``, ``ConfigRecord version 1``.

    The lake keeps such records unchanged, and every answer reports them (R-REC-4).
    """

    offset: int
    kinds: tuple[str, ...]

    @classmethod
    def at(cls, unknown: Mapping[str, int], offset: int) -> Self | None:
        """What is incomplete at an offset, given the first offset of each kind; None where nothing is."""
        known = {kind: first for kind, first in unknown.items() if first <= offset}
        return cls(min(known.values()), tuple(sorted(known, key=lambda kind: (known[kind], kind)))) if known else None

    def __str__(self) -> str:
        return f"incomplete since offset {self.offset}: {', '.join(self.kinds)}"

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {"offset": self.offset, "records": list(self.kinds)}


@dataclass(frozen=True)
class Lake:
    """A lake as of ``offset``: every query sees the state after the record at that offset."""

    path: LakeUri
    published: Published
    """The newest publication."""
    first: int
    """The oldest offset that a question may name."""
    offset: int
    time: datetime
    """When the newest record at or before ``offset`` was appended."""
    tables: Mapping[str, DeltaTable]
    connection: duckdb.DuckDBPyConnection
    named: Sequence[Statement] = ()
    """Names of directories for this answer only."""

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], at_offset: int | None = None, at_time: datetime | str | None = None
    ) -> Lake:
        """The lake at ``path`` after the record at ``at_offset``, or after the last one appended by ``at_time``.

        Without either, after the newest published record. ``at_time`` may be a text, as --at-time takes it: ``-10m``.
        Raises UsageError if there is no lake, or if it does not know that offset or time.
        """
        refuse_misread(os.fspath(path))
        uri = local_path(os.fspath(path)).rstrip("/")
        connection = connect(uri)
        ledger = open_ledger(uri)
        newest, ranges = read_ledger(uri, ledger, connection)
        if newest is None:
            raise unpublished(uri)
        use_threads(connection, newest.end_offset - ranges[0][0])
        tables = DeltaTables(uri, newest.versions, {"ledger": ledger})
        lake = cls(uri, newest, ranges[0][0], newest.end_offset - 1, newest.end_time, tables, connection)
        if at_time is not None:
            at_offset = lake._offset_at(at_time)
        if at_offset is None:
            return lake
        check_known(uri, ranges, at_offset)
        return lake._at(at_offset)

    @property
    def incomplete_since(self) -> Incomplete | None:
        """The first unknown record, which answers may lack from its offset on (R-REC-4); None if all are known."""
        return Incomplete.at(self.published.unknown, self.offset)

    @property
    def refusal(self) -> JbodError | None:
        """The error that ended the reading of a log (LogLake). None for a lake: a replay has reported it."""
        return None

    def at(self, table: str) -> str:
        """SQL for the rows of a history table that are true at this offset."""
        rows = self._rows(
            table,
            lambda file: (
                _at_most(file["min.from_offset"], self.offset)
                and (file["null_count.to_offset"] != 0 or _more(file["max.to_offset"], self.offset))
            ),
        )
        return (
            f"(SELECT * FROM {rows} "
            f"WHERE from_offset <= {self.offset} AND (to_offset IS NULL OR to_offset > {self.offset}))"
        )

    def until(self, table: str) -> str:
        """SQL for the rows of a history table that began by this offset. Ends after it are shown as open."""
        rows = self._begun(table)
        ends = [name for name in ("to_offset", "to_time", "ended_by") if name in self._columns(table)]
        hidden = ", ".join(f"CASE WHEN to_offset <= {self.offset} THEN {end} END AS {end}" for end in ends)
        return f"(SELECT * REPLACE ({hidden}) FROM {rows} WHERE from_offset <= {self.offset})"

    def scan(self, table: str) -> str:
        """As ``until``, for a query that selects few rows of a large table by their own columns.

        DuckDB decides about a plain column while it reads it, and about an expression afterwards. The ends are plain
        columns here if none is after this offset. In a query with many joins this can change their order for the worse.
        """
        if self._ends_later(table):
            return self.until(table)
        return f"(SELECT * FROM {self._begun(table)} WHERE from_offset <= {self.offset})"

    def offline_brokers(self) -> str:
        """SQL: topic_id, partition and ``down``, the brokers of its offline replicas, in the order of the replicas."""
        rows = self.at("offline_replicas")
        down = f"SELECT topic_id, partition, list(broker_id ORDER BY replica_index) AS down FROM {rows}"
        return f"({down} GROUP BY topic_id, partition)"

    def since(self, table: str, *same: str, of: str = "true") -> str:
        """SQL for the rows of ``at``, of replicas, each from where it begins if the replica's position did not count.

        A reassignment changes the position of replicas that stay, which ends their rows. ``same``: the columns that
        have to be equal in the row before. ``of``: a condition on the rows.
        """
        reordered = f"SELECT 1 FROM {self.scan('assignments')} WHERE ended_by = 'reordered' LIMIT 1"
        if not self.query(reordered):
            return f"(SELECT * FROM {self.at(table)} WHERE {of})"
        replica = ", ".join(("topic_id", "partition", "broker_id", *same))
        return f"""(
            WITH now AS (SELECT * FROM {self.at(table)} WHERE {of}),
            parts AS (
                SELECT *, from_offset IS DISTINCT FROM lag(to_offset) OVER stay AS begins
                FROM {self.until(table)} SEMI JOIN now USING ({replica})
                WINDOW stay AS (PARTITION BY {replica} ORDER BY from_offset)
            ),
            first AS (
                SELECT {replica}, max(from_offset) AS o, arg_max(from_time, from_offset) AS t,
                       arg_max(from_snapshot, from_offset) AS s
                FROM parts WHERE begins GROUP BY ALL
            )
            SELECT * EXCLUDE (o, t, s) REPLACE (o AS from_offset, t AS from_time, s AS from_snapshot)
            FROM now JOIN first USING ({replica})
        )"""

    def records(self) -> str:
        """SQL for the records up to this offset."""
        rows = self._rows("records", lambda file: _at_most(file["min.log_offset"], self.offset))
        return f"(SELECT * FROM {rows} WHERE log_offset <= {self.offset})"

    def times(self, offsets: Sequence[int]) -> dict[int, datetime]:
        """When the records at these offsets were appended. Raises UsageError if the lake lacks one of them."""
        rows = self.query(
            f"""
            SELECT log_offset, epoch_us(max(append_time)) FROM {self.records()}
            WHERE log_offset IN (SELECT unnest($1::BIGINT[])) GROUP BY log_offset
            """,
            [offsets],
        )
        times = {offset: time_of(micros) for offset, micros in rows}
        for offset in offsets:
            if offset not in times:
                raise UsageError(
                    f"{self.path}: records: the record of offset {offset} is gone, and other tables have what it did: "
                    "replay the log into a new lake"
                )
        return times

    def batches(self, offsets: Sequence[int]) -> dict[int, int]:
        """The base offsets of the batches with the records at these offsets."""
        rows = self.query(
            f"""
            SELECT log_offset, max(batch_offset) FROM {self.records()}
            WHERE NOT snapshot AND log_offset IN (SELECT unnest($1::BIGINT[])) GROUP BY log_offset
            """,
            [offsets],
        )
        return dict(rows)

    @cached_property
    def append_end(self) -> int:
        """The last offset of the batch with the record at this offset. The controller wrote all of it at once."""
        rows = self._rows("records", lambda file: _at_most(file["min.log_offset"], self.offset))
        of_batch = f"NOT snapshot AND log_offset >= {self.offset} AND batch_offset <= {self.offset}"
        ((end,),) = self.query(f"SELECT max(log_offset) FROM {rows} WHERE {of_batch}")
        return self.offset if end is None else int(end)

    @cached_property
    def transaction_end(self) -> int | None:
        """The last offset of the transaction of several batches with the record at this offset; None outside of one.

        It is this offset if the transaction was aborted: no part of it ever counts (R-TXN-3).
        """
        closing = TYPE_NAMES[EndTransactionRecord], TYPE_NAMES[AbortTransactionRecord]
        markers = self.query(
            f"""
            SELECT record_type, log_offset FROM {self._later_records()}
            WHERE {is_among("record_type", [*closing, TYPE_NAMES[BeginTransactionRecord]])}
                AND log_offset > {self.append_end} ORDER BY log_offset LIMIT 1
            """
        )
        for name, offset in markers:
            if name in closing:
                return int(offset) if name == closing[0] else self.offset
        return None

    def _later_records(self) -> str:
        """SQL for at least the markers of transactions after this offset."""
        return self._rows("records", lambda file: _more(file["max.log_offset"], self.offset))

    def of_one_append(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The pairs of offsets whose records are of one batch."""
        batch = self.batches(sorted({offset for pair in pairs for offset in pair})) if pairs else {}
        return [(first, second) for first, second in pairs if batch.get(first, -1) == batch.get(second)]

    def setting_records(self) -> str:
        """SQL for at least the records up to this offset that hold settings: features, configurations, snapshots."""
        return self.records()

    def log_end(self) -> int | None:
        """The log's end offset at the last run, if it was before the end of this lake, otherwise None."""
        return log_end(self.path, self.tables["ledger"], self.connection, self.published.end_offset)

    def rollbacks(self) -> list[tuple[int, int, datetime]]:
        """The end offset before each rollback, and the end offset and time after it, the newest end last."""
        rows = read_parquet(self.path, "ledger", self.tables["ledger"], by_name=True)
        ledger_rows = self.query(
            f"SELECT rolled_back_from, end_offset, epoch_us(end_time) FROM {rows} WHERE rolled_back_from IS NOT NULL "
            "ORDER BY end_offset, published_time"
        )
        return [(before, end, time_of(micros)) for before, end, micros in ledger_rows]

    @cached_property
    def names(self) -> Names:
        """Paths and labels of directories. They do not depend on the offset."""
        return Names.of([*self.kept_names(), *self.named])

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], Any]:
        return {}

    def once(self, key: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """What several parts of one answer need: ``make`` makes it for the first. ``key``: what it is, and of what."""
        if key not in self._kept:
            self._kept[key] = make()
        made: Made = self._kept[key]
        return made

    def keep(self, table: str, query: Callable[[], str]) -> str:
        """Makes a temporary table of a query, once for the parts of one answer. Its name ends with the offset."""
        name = f"{table}_{self.offset}"
        self.once((name,), lambda: self.query(f"CREATE OR REPLACE TEMP TABLE {name} AS {query()}"))
        return name

    @cached_property
    def snapshots(self) -> list[int]:
        """The offsets of the snapshots up to this offset, the oldest first."""
        rows = self.query(f"SELECT DISTINCT log_offset FROM {self.setting_records()} WHERE snapshot ORDER BY ALL")
        return [offset for (offset,) in rows]

    def kept_names(self) -> Sequence[Statement]:
        """What jbod label keeps in the lake."""
        return read_statements(self.path, self.connection)

    def check_files(self) -> None:
        """Raises UsageError if a data file is gone or is not Parquet. Reads only the footer of each file."""
        for name in self.tables:
            files = [file["path"] for file in self._files(name)]
            if files:
                self.query(f"SELECT count(*) FROM parquet_file_metadata({file_list(self.path, name, files)})")

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return run_query(self.path, self.connection, sql, parameters)

    @property
    def unplaced(self) -> frozenset[str]:
        """The reserved ids of the directory of a replica that no record has placed."""
        ids = ID_TABLES[self.published.ids]
        return frozenset({str(ids.unassigned), str(ids.migrating)})

    def make(self, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
        """Makes a temporary table of rows. ``columns`` are names and types: ``topic VARCHAR, partition INT``."""
        fields = [column.split() for column in columns.split(", ")]
        parts = ", ".join(f"unnest(${place}::{kind}[]) AS {name}" for place, (name, kind) in enumerate(fields, 1))
        values = [*zip(*rows, strict=True)] or [()] * len(fields)
        # As lists: DuckDB imports pandas for a table of Arrow.
        self.query(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {parts}", [[*column] for column in values])

    def named_rows(self, kind: type[Named], source: str) -> list[Named]:
        """The rows of what follows FROM in a query, as named tuples: their fields are its columns."""
        return _named(kind, self.query(f"SELECT {_columns_of(kind)} FROM {source}"))

    def named_rows_by(self, column: str, kind: type[Named], source: str) -> dict[Any, list[Named]]:
        """The same rows by the value of one more column; none for a value that no row has."""
        rows = self.query(f"SELECT {_columns_of(kind)}, {column} FROM {source}")
        rows_of: dict[Any, list[Named]] = defaultdict(list)
        for named, (*_, value) in zip(_named(kind, rows), rows, strict=True):
            rows_of[value].append(named)
        return rows_of

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query in batches, for large answers. No other query before the last batch."""
        return stream_query(self.path, self.connection, sql, parameters)

    def _rows(self, table: str, wanted: Callable[[dict[str, Any]], bool]) -> str:
        """SQL for at least the rows of those files whose statistics are ``wanted``."""
        files = [file["path"] for file in self._files(table) if wanted(file)]
        return read_parquet(self.path, table, self.tables[table], files)

    def _files(self, table: str) -> list[dict[str, Any]]:
        """Path and statistics of the files of a table: an answer asks for them tens of times."""
        return self.once(("files", table), lambda: data_files(self.tables[table]))

    def _begun(self, table: str) -> str:
        """SQL for at least the rows of a history table that began by this offset."""
        return self._rows(table, lambda file: _at_most(file["min.from_offset"], self.offset))

    def _ends_later(self, table: str) -> bool:
        """Whether a row of a history table may end after this offset."""
        return any(_ends_after(file, self.offset) for file in self._files(table))

    def _columns(self, table: str) -> list[str]:
        return [column.name for column in self.tables[table].schema().fields]

    def _at(self, offset: int) -> Self:
        lake = replace(self, offset=offset)
        ((micros,),) = lake.query(f"SELECT epoch_us(arg_max(append_time, log_offset)) FROM {lake.records()}")
        return lake if micros is None else replace(lake, time=time_of(micros))

    def _offset_at(self, at_time: datetime | str) -> int:
        at_time = parse_time(at_time) if isinstance(at_time, str) else at_time
        wanted = at_time if at_time.tzinfo else at_time.replace(tzinfo=UTC)
        if wanted > max(self.time, datetime.now(UTC)):
            raise UsageError(
                f"{self.path}: {wanted.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC is in the future: the newest record is "
                f"of {self.time:%Y-%m-%d %H:%M:%S} UTC (offset {self.offset})"
            )
        micros = micros_of(wanted)
        ((offset, oldest),) = self.query(
            "SELECT max(log_offset) FILTER (append_time <= make_timestamptz($1)), epoch_us(min(append_time)) "
            f"FROM {self.records()}",
            [micros],
        )
        if offset is None:
            raise UsageError(
                f"{self.path}: {wanted.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC is before the oldest record, "
                f"of {time_of(oldest or 0):%Y-%m-%d %H:%M:%S} UTC (offset {self.first})"
            )
        return int(offset)


def _columns_of(kind: type[NamedTuple]) -> str:
    return ", ".join(f"epoch_us({name})" if name.endswith("_time") else name for name in kind._fields)


def _named(kind: type[Named], rows: Sequence[tuple[Any, ...]]) -> list[Named]:
    """The rows of ``_columns_of``, without what stands behind them."""
    values: list[Iterable[Any]] = [*islice(zip(*rows, strict=True), len(kind._fields))]
    for place, name in enumerate(kind._fields):
        if rows and name.endswith("_time"):
            values[place] = map(time_if_any, values[place])
    return list(map(kind._make, zip(*values, strict=True)))


def _at_most(bound: int | None, offset: int) -> bool:
    return bound is None or bound <= offset


def _more(bound: int | None, offset: int) -> bool:
    return bound is None or bound > offset


def _ends_after(file: Mapping[str, Any], offset: int) -> bool:
    """Whether a row of the file may end after the offset."""
    open_rows = file["null_count.to_offset"]
    every_row_is_open = open_rows is not None and open_rows == file["num_records"]
    return not every_row_is_open and _more(file["max.to_offset"], offset)


def read_statements(lake: LakeUri, connection: duckdb.DuckDBPyConnection) -> list[Statement]:
    """The statements of a lake. Empty if jbod label never ran. Raises UsageError if the table cannot be read."""
    table = side_table(lake, LABELS, "remove it, and run jbod label again")
    if table is None:
        return []
    columns = ", ".join(name if name != "read_time" else "epoch_us(read_time)" for name in Statement._fields)
    rows = run_query(lake, connection, f"SELECT {columns} FROM {read_parquet(lake, LABELS, table)}")
    return [Statement._make([*row[:-1], time_of(row[-1])]) for row in rows]
