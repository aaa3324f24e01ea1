"""Replays a log in this process, without Spark and without writing a file: the same stages, one micro-batch."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, UsageError
from jbod_model.formats.records import NoOpRecord
from pipelines.fold.events import CHANGE, PARTITION, TOPIC, Part
from pipelines.fold.rows import Rows, record_rows
from pipelines.fold.rules import rules
from pipelines.fold.slices import SliceIds
from pipelines.formats.api_keys import KEY_OF
from pipelines.formats.record_names import first_of
from pipelines.lake.ledger import time_of
from pipelines.run.errors import refused_at
from pipelines.run.reports import SliceRead, decode
from pipelines.run.stage_options import Job
from pipelines.run.stages import Row, fold_rows, other_rows, shard_events
from pipelines.source.log_dir import LogDir
from pipelines.source.log_options import Options
from pipelines.source.plan import Planner, lines_of_end
from pipelines.source.positions import Slice
from pipelines.source.slices import read_slice

ATTEMPTS = 3
"""How often a log is read if it changes while it is read."""
SHARD_BYTES = 16 << 20
"""Bytes of the log for each shard."""
# Frequent record types that hold no setting: TopicRecord, both partition records, NoOpRecord.
_MANY = (TOPIC, PARTITION, CHANGE, KEY_OF[NoOpRecord])
_A = TypeVar("_A")
_B = TypeVar("_B")


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

    def times(self, offsets: Sequence[int]) -> dict[int, datetime]:
        """When the records at these offsets were appended."""
        times = self.batches[1]
        return {offset: time_of(int(times[at])) for offset, at in zip(offsets, self._batches_of(offsets), strict=True)}

    def base_offsets(self, offsets: Sequence[int]) -> dict[int, int]:
        """The base offsets of the batches with the records at these offsets."""
        starts = self.batches[0]
        return {offset: int(starts[at]) for offset, at in zip(offsets, self._batches_of(offsets), strict=True)}

    def _batches_of(self, offsets: Sequence[int]) -> list[int]:
        found: list[int] = (np.searchsorted(self.batches[0], np.asarray(offsets, np.int64), "right") - 1).tolist()
        return found

    def records(self) -> pa.Table:
        """All rows of ``records``. The log is read once more."""
        return pa.concat_tables(_parallel(_records, self.pieces))


def replay_log(options: Options, *, profile: str = "kafka", ids: str = "kafka") -> ReplayedLog:
    """Replays the log that ``options`` names to its end, or to the first error.

    Raises that error if nothing before it can be read, and UsageError if the log has no record yet.
    """
    chosen = rules(profile, ids)
    limit: int | None = None
    refusal: JbodError | None = None
    changed = 0
    while True:
        try:
            plan = _plan(options if limit is None else replace(options, limit=limit), refusal)
            return _replay(options, plan, Job("", _shards(plan.pieces), chosen))
        except LogChanged:
            changed += 1
            if changed > ATTEMPTS:
                raise
        except (MalformedLog, ReplayViolation) as problem:
            offset = refused_at(problem)
            if offset is None or (limit is not None and offset >= limit):
                raise
            limit, refusal = offset, problem


class _Plan(NamedTuple):
    """The slices up to the end of what may be read, the error that stops the reader there, and what waits there."""

    pieces: Sequence[Slice]
    refusal: JbodError | None
    notices: Sequence[str] = ()


def _plan(options: Options, refusal: JbodError | None) -> _Plan:
    """Plans the whole log."""
    planner = Planner.of(options)
    planner.freeze()
    position = planner.begin(options.start)
    pieces: list[Slice] = []
    while True:
        try:
            end = planner.advance(position)
        except LogChanged:
            raise
        except (MalformedLog, ReplayViolation) as problem:
            if not pieces:
                raise
            return _Plan(pieces, refusal or problem)
        if end == position:
            break
        pieces += planner.slices(position, end)
        position = end
    if pieces:
        if refusal is not None:
            return _Plan(pieces, refusal)
        return _Plan(pieces, None, lines_of_end(planner)[1])
    if refusal is not None:
        raise refusal
    raise UsageError(f"{options.path}: no record of this log may be read yet")


def _replay(options: Options, plan: _Plan, job: Job) -> ReplayedLog:
    pieces = plan.pieces
    decoded = _parallel(lambda item: _decoded(job, *item), list(enumerate(pieces)))
    rows = [row for one in decoded for row in one.rows]
    reports = [decode(kind, payload) for shard, _, kind, payload in rows if shard < 0]
    last = pieces[-1]
    snapshot = next((piece.snapshot for piece in pieces if piece.snapshot >= 0), None)
    found = ReplayedLog(
        pieces=pieces,
        cluster_id=LogDir(options.path).cluster_id(),
        start_offset=pieces[0].first if snapshot is None else 0,
        end_offset=last.last if last.snapshot < 0 else last.snapshot,
        end_time=time_of(int(decoded[-1].times[-1])),
        snapshot=snapshot,
        batches=(np.concatenate([one.offsets for one in decoded]), np.concatenate([one.times for one in decoded])),
        refusal=plan.refusal,
        notices=plan.notices,
        settings=[one.settings for one in decoded],
        unknown=first_of(report.unknown for report in reports if isinstance(report, SliceRead)),
    )
    of_shard: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        of_shard[row[0]].append(row)
    packed = [one.packed for one in decoded]
    del rows, decoded

    def fold(shard: int) -> dict[str, Rows]:
        events = [(number, Part(columns, shard)) for number, columns in enumerate(packed)] if shard < job.shards else []
        return fold_rows(job, shard, None, of_shard.pop(shard, ()), events=events, is_last=True)[1]

    folded = _parallel(fold, range(job.shards + 1))
    for name in {name for tables in folded for name in tables}:
        parts = [tables[name] for tables in folded if name in tables]
        found.history[name] = [
            pa.concat_tables(one.closed for one in parts),
            pa.concat_tables(one.open for one in parts),
        ]
    return found


def _shards(pieces: Sequence[Slice]) -> int:
    """The number of shards: the memory that one takes while it is folded can be used again for the next."""
    return 1 + sum(piece.end - piece.start for piece in pieces) // SHARD_BYTES


class _Decoded(NamedTuple):
    """A slice: its events, packed by shard; its other rows for the fold; its rows of settings; and of each of its
    batches the first offset and the append time (microseconds)."""

    packed: Mapping[str, np.ndarray]
    rows: list[Row]
    settings: pa.Table
    offsets: np.ndarray
    times: np.ndarray


def _decoded(job: Job, number: int, piece: Slice) -> _Decoded:
    records, kept = read_slice(piece)
    named = SliceIds.of(records)
    few = record_rows(records, kept & ~np.isin(records.types, _MANY), piece.snapshot_offset, named)
    events, bounds = shard_events(job, piece, records, kept, named)
    rows = list(other_rows(job, number, piece, records, kept, named))
    offsets, times = records.headers["base_offset"], records.headers["timestamp"] * 1000
    if piece.snapshot_offset is not None:
        offsets, times = np.full(1, piece.snapshot_offset), times[-1:]
    return _Decoded(events.columns(bounds), rows, few, offsets.copy(), times.copy())


def _records(piece: Slice) -> pa.Table:
    records, kept = read_slice(piece)
    return record_rows(records, kept, piece.snapshot_offset)


def _parallel(work: Callable[[_A], _B], items: Sequence[_A]) -> list[_B]:
    """Runs ``work`` on each item in threads and returns the results in order. The kernels release the GIL."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, items))
