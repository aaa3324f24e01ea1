"""A log that answers questions like a lake: its tables are in memory and are filled when a question needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa

from pipelines.lake.delta import connect
from pipelines.lake.ledger import Published, check_known
from pipelines.lake.names import Statement
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME
from pipelines.replay.in_process import ReplayedLog, replay_log
from pipelines.source.log_options import Options

SETTINGS = "settings"
"""The table of records that hold settings: all except those of partitions and topics."""


@dataclass(frozen=True)
class LogLake(Lake):
    """The tables of a replayed log in DuckDB's memory. Each table is filled at its first use."""

    log: ReplayedLog = field(kw_only=True)
    filled: set[str] = field(default_factory=set, kw_only=True)
    number: int = field(default_factory=count().__next__, kw_only=True)
    """Keeps the tables of several logs apart where connections share a database."""

    @classmethod
    def of(
        cls,
        options: Options,
        at_offset: int | None = None,
        at_time: datetime | None = None,
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
        found = cls(options.path, published, first, newest, log.end_time, {}, connect(), log=log)
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

    def setting_records(self) -> str:
        """SQL for the records that hold settings, up to this offset."""
        return f"(SELECT * FROM {self._table(SETTINGS)} WHERE log_offset <= {self.offset})"

    def _rows(self, table: str, wanted: Callable[[dict[str, Any]], bool]) -> str:  # noqa: ARG002
        return self._table(table)

    def _columns(self, table: str) -> list[str]:
        return list(BY_NAME[table].schema.names)

    def _table(self, name: str) -> str:
        """Returns the name of the table in DuckDB. Fills the table first if it is not filled yet."""
        table = f"log{self.number}_{name}"
        if name not in self.filled:
            for number, part in enumerate(self._parts(name)):
                self.connection.register("part", part)
                verb = f"CREATE TABLE {table} AS" if number == 0 else f"INSERT INTO {table}"
                self.connection.execute(f"{verb} SELECT * FROM part")
                self.connection.unregister("part")
            self.filled.add(name)
        return table

    def _parts(self, name: str) -> list[pa.Table]:
        """Arrow tables with the rows of a table; the first may be empty."""
        if name == SETTINGS:
            return self.log.settings
        if name == "records":
            return [self.log.records()]
        schema = BY_NAME[name].schema
        return [schema.empty_table(), *(part for part in self.log.history.get(name, []) if part.num_rows)]
