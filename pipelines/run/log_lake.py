"""A log that answers questions like a lake: DuckDB reads its tables in memory, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa

from pipelines.lake.delta import connect, use_threads
from pipelines.lake.ledger import Published, check_known
from pipelines.lake.names import Statement
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME
from pipelines.run.log_in_memory import ReplayedLog, replay_log
from pipelines.source.log_options import Options

SETTINGS = "settings"
"""The table of records that hold settings: all except those of partitions and topics."""


@dataclass(frozen=True)
class LogLake(Lake):
    """The tables of a replayed log, which DuckDB reads where they are."""

    log: ReplayedLog = field(kw_only=True)
    shown: dict[str, list[pa.Table]] = field(default_factory=dict, kw_only=True)
    """The tables that a question has used."""
    number: int = field(default_factory=count().__next__, kw_only=True)
    """Keeps the tables of several logs apart where connections share a database."""
    cursors: list[duckdb.DuckDBPyConnection] = field(default_factory=list, kw_only=True)

    @classmethod
    def of(
        cls,
        options: Options,
        at_offset: int | None = None,
        at_time: datetime | str | None = None,
        *,
        profile: str = "kafka",
        ids: str = "kafka",
    ) -> LogLake:
        """Opens the log at ``options.path`` as of an offset or a time, as ``Lake.open`` opens a lake."""
        log = replay_log(options, profile=profile, ids=ids)
        published = Published(
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            end_time=log.end_time,
            published_time=datetime.now(UTC),
            profile=profile,
            ids=ids,
            cluster_id=log.cluster_id,
            from_snapshot=log.snapshot,
            versions={},
            unknown=log.unknown,
        )
        first = log.start_offset if log.snapshot is None else log.snapshot - 1
        newest = log.end_offset - 1
        connection = connect()
        use_threads(connection, log.records_read)
        found = cls(options.path, published, first, newest, log.end_time, {}, connection, log=log)
        if at_time is not None:
            at_offset = found._offset_at(at_time)
        if at_offset is None:
            return found
        check_known(options.path, [(first, log.end_offset)], at_offset)
        return found._at(at_offset)

    def kept_names(self) -> Sequence[Statement]:
        """None: a log has only ids."""
        return ()

    def check_files(self) -> None:
        """Nothing is stored."""

    def log_end(self) -> int | None:
        """None: nothing of the log was read before, so it cannot end earlier."""
        return None

    def ledger_rows(self, *columns: str) -> list[dict[str, Any]]:  # noqa: ARG002
        """A log has no ledger."""
        return []

    def times(self, offsets: Sequence[int]) -> dict[int, datetime]:
        """When the records at these offsets were appended."""
        return self.log.times(offsets)

    def batches(self, offsets: Sequence[int]) -> dict[int, int]:
        """The base offsets of the batches with the records at these offsets."""
        return self.log.base_offsets(offsets)

    def setting_records(self) -> str:
        """SQL for the records that hold settings, up to this offset."""
        return f"(SELECT * FROM {self._table(SETTINGS)} WHERE log_offset <= {self.offset})"

    def _rows(self, table: str, wanted: Callable[[dict[str, Any]], bool]) -> str:  # noqa: ARG002
        return self._table(table)

    def _ends_later(self, table: str) -> bool:  # noqa: ARG002
        """True: the tables in memory have no statistics."""
        return True

    def _columns(self, table: str) -> list[str]:
        return list(BY_NAME[table].schema.names)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Another connection that sees the same tables."""
        found = super().cursor()
        for name in self.shown:
            self._show(name, found)
        self.cursors.append(found)
        return found

    def _show(self, name: str, connection: duckdb.DuckDBPyConnection) -> None:
        """Creates a view of a table: of all its parts, whose types may differ in their dictionaries."""
        table = self._name(name)
        for number, part in enumerate(self.shown[name]):
            connection.register(f"{table}_{number}", part)
        queries = (f"SELECT * FROM {table}_{number}" for number in range(len(self.shown[name])))
        connection.execute(f"CREATE TEMP VIEW {table} AS {' UNION ALL '.join(queries)}")

    def _name(self, table: str) -> str:
        return f"log{self.number}_{table}"

    def _table(self, name: str) -> str:
        """Returns the name of the table in DuckDB. Shows it to every connection at its first use."""
        if name not in self.shown:
            self.shown[name] = self._parts(name)
            for connection in (self.connection, *self.cursors):
                self._show(name, connection)
        return self._name(name)

    def _parts(self, name: str) -> list[pa.Table]:
        """Arrow tables with the rows of a table; the first may be empty."""
        if name == SETTINGS:
            return self.log.settings
        if name == "records":
            return [self.log.records()]
        schema = BY_NAME[name].schema
        return [schema.empty_table(), *(part for part in self.log.history.get(name, []) if part.num_rows)]
