"""A log that answers questions like a lake: it is replayed in this process, without Spark and without a file.

The stages are those of the main job, in one micro-batch. DuckDB reads the tables in memory, without a copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, UsageError
from jbod_model.formats.records import NoOpRecord
from jbod_model.formats.schema import API_KEY_OF
from pipelines.fold.events import CHANGE, PARTITION, TOPIC, Part, SliceIds
from pipelines.fold.machine import Row, fold_rows
from pipelines.fold.rows import TableRows, record_rows
from pipelines.fold.rules import rules
from pipelines.formats.records import first_of
from pipelines.lake.delta import connect, use_threads
from pipelines.lake.ledger import Published, check_known, time_of
from pipelines.lake.names import Statement
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME
from pipelines.run.errors import Attempts
from pipelines.run.micro_batches import micro_batches
from pipelines.run.stage_options import Job
from pipelines.run.stages import SliceRead, other_rows, report_of, shard_events
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import LogOptions
from pipelines.source.plan import Planner, lines_of_end
from pipelines.source.positions import Slice
from pipelines.source.slices import read_slice
from pipelines.start.process import cores

HELD = "held"
"""The kind of a row that says that a slice has events for the shard, which the sink holds (pipelines.run.stages)."""
SHARD_BYTES = 16 << 20
"""Bytes of the log for each shard."""
# Frequent record types that hold no setting: TopicRecord, both partition records, NoOpRecord.
_MANY = (TOPIC, PARTITION, CHANGE, API_KEY_OF[NoOpRecord])


@dataclass
class ReplayedLog:
    """All history tables of a log as Arrow tables, and the offsets where the log began and ended."""

    pieces: Sequence[Slice]
    cluster_id: str
    start_offset: int
    end_offset: int
    end_time: datetime
    snapshot: int | None
    """The end offset of the snapshot that the log begins with, None if it begins with its first record."""
    batches: tuple[np.ndarray, np.ndarray]
    """First offset and append time (microseconds) of every batch of the log, or of a slice of a snapshot."""
    refusal: JbodError | None
    """Why the log was not read to its end (R-READ-1), None if it was."""
    history: dict[str, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    settings: list[pa.Table] = field(default_factory=list)
    """Rows of ``records`` without the frequent types."""
    notices: Sequence[str] = ()
    """A line for what waits at the end of the log: a batch that is not complete, an empty segment."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """The kinds of records that are not known, each with the offset of the first (R-REC-4)."""

    @property
    def records_read(self) -> int:
        """About the number of records."""
        return sum(piece.last - piece.first for piece in self.pieces)

    def of_batches(self, offsets: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Each offset, with the base offset and the append time of the batch with its record."""
        at = np.searchsorted(self.batches[0], np.asarray(offsets, np.int64), "right") - 1
        return zip(offsets, *(column[at].tolist() for column in self.batches), strict=True)

    def records(self) -> pa.Table:
        """All rows of ``records``. The log is read once more."""
        with ThreadPoolExecutor(cores()) as pool:
            return pa.concat_tables(pool.map(_records, self.pieces))


def replay_log(
    options: LogOptions, at_offset: int | None = None, *, profile: str = "kafka", ids: str = "kafka"
) -> ReplayedLog:
    """Replays the log that ``options`` names to its end, or to the first error. If it ends before its newest snapshot,
    it replays that alone, or without it for the state at an offset before.

    Raises that error if nothing before it can be read, and UsageError if the log has no record yet.
    """
    chosen = rules(profile, ids)
    attempts = Attempts()
    while True:
        try:
            limited = options if attempts.limit is None else replace(options, limit=attempts.limit)
            plan = _plan(limited, attempts.refusal, at_offset)
            return _replay(options, plan, Job("", _shards(plan.pieces), chosen))
        except (MalformedLog, ReplayViolation) as problem:
            attempts.failed(problem)


class _LogPlan(NamedTuple):
    """The slices up to the end of what may be read, the error that stops the reader there, and what waits there."""

    pieces: Sequence[Slice]
    refusal: JbodError | None
    notices: Sequence[str] = ()


def _plan(options: LogOptions, refusal: JbodError | None, at_offset: int | None) -> _LogPlan:
    """Plans the whole log."""
    planner = Planner.of(options)
    planner.freeze()
    pieces: list[Slice] = []
    try:
        for _, slices in planner.micro_batches(planner.begin(options.start)):
            if pieces and slices and slices[0].snapshot >= 0:  # it replaces everything before it
                if at_offset is not None and at_offset < pieces[-1].last:
                    break
                pieces.clear()
            pieces += slices
    except LogChanged:
        raise
    except (MalformedLog, ReplayViolation) as problem:
        if not pieces:
            raise
        return _LogPlan(pieces, refusal or problem)
    if pieces:
        if refusal is not None:
            return _LogPlan(pieces, refusal)
        return _LogPlan(pieces, None, lines_of_end(planner)[1])
    if refusal is not None:
        raise refusal
    raise UsageError(f"{options.path}: no record of this log may be read yet")


def _replay(options: LogOptions, plan: _LogPlan, job: Job) -> ReplayedLog:
    pieces, stages = plan.pieces, _Stages(job)
    (batch,) = micro_batches([(None, pieces)], stages.decode, stages.fold, {})
    read = [stages.read[number] for number in range(len(pieces))]
    last = pieces[-1]
    snapshot = next((piece.snapshot for piece in pieces if piece.snapshot >= 0), None)
    reports = (report_of(payload) for *_, payload in batch.reports)
    log = ReplayedLog(
        pieces=pieces,
        cluster_id=LogDir(options.path).cluster_id(),
        start_offset=pieces[0].first if snapshot is None else 0,
        end_offset=last.last if last.snapshot < 0 else last.snapshot,
        end_time=time_of(int(read[-1].times[-1])),
        snapshot=snapshot,
        batches=(
            np.concatenate([slice_content.offsets for slice_content in read]),
            np.concatenate([slice_content.times for slice_content in read]),
        ),
        refusal=plan.refusal,
        notices=plan.notices,
        settings=[slice_content.settings for slice_content in read],
        unknown=first_of(report.unknown for report in reports if isinstance(report, SliceRead)),
    )
    folded = [tables for _, tables in batch.shards]
    for name in {name for tables in folded for name in tables}:
        parts = [tables[name] for tables in folded if name in tables]
        log.history[name] = [
            pa.concat_tables(part.closed for part in parts),
            pa.concat_tables(part.open for part in parts),
        ]
    return log


def _shards(pieces: Sequence[Slice]) -> int:
    """The number of shards: the memory that one takes while it is folded can be used again for the next."""
    return 1 + sum(piece.end - piece.start for piece in pieces) // SHARD_BYTES


class _Read(NamedTuple):
    """A slice: its events, packed by shard; its rows of settings; and of each of its batches the first offset and the
    append time (microseconds)."""

    packed: Mapping[str, np.ndarray]
    settings: pa.Table
    offsets: np.ndarray
    times: np.ndarray


class _Stages:
    """Both stages on a micro-batch that is the last. Events stay in memory, where each shard takes its own."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.read: dict[int, _Read] = {}
        """By the number of the slice."""

    def decode(self, number: int, piece: Slice) -> Iterator[Row]:
        """The rows of a slice, its events as a row HELD for each shard that has some."""
        records, kept = read_slice(piece)
        named = SliceIds.of(records)
        few = record_rows(records, kept & ~np.isin(records.types, _MANY), piece.snapshot_offset, named)
        events, bounds = shard_events(self._job, piece, records, kept, named)
        offsets, times = records.headers["base_offset"], records.headers["timestamp"] * 1000
        if piece.snapshot_offset is not None:
            offsets, times = np.full(1, piece.snapshot_offset), times[-1:]
        self.read[number] = _Read(events.columns(bounds), few, offsets.copy(), times.copy())
        yield from ((shard, number, HELD, b"") for shard in np.flatnonzero(np.diff(bounds)).tolist())
        yield from other_rows(self._job, number, piece, records, kept, named)

    def fold(self, shard: int, state: bytes | None, rows: Sequence[Row]) -> tuple[bytes, dict[str, TableRows]]:
        """Folds a shard."""
        held = (number for _, number, kind, _ in rows if kind == HELD)
        events = [(number, Part(self.read[number].packed, shard)) for number in held]
        after, tables, _ = fold_rows(self._job, shard, state, rows, events=events, is_last=True)
        return after, tables


def _records(piece: Slice) -> pa.Table:
    records, kept = read_slice(piece)
    return record_rows(records, kept, piece.snapshot_offset)


SETTINGS = "settings"
"""The table of records that hold settings: all except those of partitions and topics."""


@dataclass(frozen=True)
class LogLake(Lake):
    """The tables of a replayed log, which DuckDB reads where they are."""

    log: ReplayedLog = field(kw_only=True)
    shown: set[str] = field(default_factory=set, kw_only=True)
    """The tables that a question has used."""

    @classmethod
    def of(
        cls,
        options: LogOptions,
        at_offset: int | None = None,
        at_time: datetime | str | None = None,
        *,
        profile: str = "kafka",
        ids: str = "kafka",
    ) -> LogLake:
        """Opens the log at ``options.path`` as of an offset or a time, as ``Lake.open`` opens a lake."""
        log = replay_log(options, at_offset, profile=profile, ids=ids)
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
        lake = cls(options.path, published, first, newest, log.end_time, {}, connection, log=log)
        if at_time is not None:
            at_offset = lake._offset_at(at_time)
        if at_offset is None:
            return lake
        if at_offset > newest:
            raise log.refusal or UsageError(
                f"{options.path}: the log ends with offset {newest}: ask for {newest} or less"
            )
        check_known(options.path, [(first, log.end_offset)], at_offset)
        return lake._at(at_offset)

    def kept_names(self) -> Sequence[Statement]:
        """None: a log has only ids."""
        return ()

    def check_files(self) -> None:
        """Nothing is stored."""

    def log_end(self) -> int | None:
        """None: nothing of the log was read before, so it cannot end earlier."""
        return None

    def rollbacks(self) -> list[tuple[int, int, datetime]]:
        """A log has no ledger."""
        return []

    def times(self, offsets: Sequence[int]) -> dict[int, datetime]:
        """When the records at these offsets were appended."""
        return {offset: time_of(micros) for offset, _, micros in self.log.of_batches(offsets)}

    def batches(self, offsets: Sequence[int]) -> dict[int, int]:
        """The base offsets of the batches with the records at these offsets."""
        return {offset: base for offset, base, _ in self.log.of_batches(offsets)}

    @property
    def append_end(self) -> int:
        """The last offset of the batch with the record at this offset."""
        first = self.log.batches[0]
        after = int(np.searchsorted(first, self.offset, "right"))
        return (int(first[after]) if after < len(first) else self.log.end_offset) - 1

    def setting_records(self) -> str:
        """SQL for the records that hold settings, up to this offset."""
        return f"(SELECT * FROM {self._table(SETTINGS)} WHERE log_offset <= {self.offset})"

    def _later_records(self) -> str:
        return self._table(SETTINGS)

    @property
    def refusal(self) -> JbodError | None:
        """The error that ended the reading of the log, None if it was read to its end."""
        return self.log.refusal

    def _rows(self, table: str, wanted: Callable[[dict[str, Any]], bool]) -> str:  # noqa: ARG002
        return self._table(table)

    def _ends_later(self, table: str) -> bool:  # noqa: ARG002
        """True: the tables in memory have no statistics."""
        return True

    def _columns(self, table: str) -> list[str]:
        return list(BY_NAME[table].schema.names)

    def _table(self, name: str) -> str:
        """Returns the name of the table in DuckDB, which sees it from its first use on."""
        table = f"log_{name}"
        if name not in self.shown:
            self.shown.add(name)
            # One for each part, as their types may differ in their dictionaries.
            parts = self._parts(name)
            for number, part in enumerate(parts):
                self.connection.register(f"{table}_{number}", part)
            queries = (f"FROM {table}_{number}" for number in range(len(parts)))
            self.query(f"CREATE TEMP VIEW {table} AS {' UNION ALL '.join(queries)}")
        return table

    def _parts(self, name: str) -> list[pa.Table]:
        """Arrow tables with the rows of a table; the first may be empty."""
        if name == SETTINGS:
            return self.log.settings
        if name == "records":
            return [self.log.records()]
        schema = BY_NAME[name].schema
        return [pa.Table.from_batches([], schema), *(part for part in self.log.history.get(name, []) if part.num_rows)]
