"""The readers of the data source ``kraft_metadata``, in batch and streaming: they plan slices and read their records.

Streams are as Spark 4.2 calls them (pipelines.source.limits).
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jbod_model.errors import LogChanged, crossing
from pipelines.source.limits import LimitedReader, ReadAllAvailable, ReadLimit, ReadMaxRows
from pipelines.source.log_options import SLICES, LogOptions
from pipelines.source.positions import Position, Slice
from pipelines.start.process import choose_kernels

if TYPE_CHECKING:
    from pipelines.mirror.follow import Mirror
    from pipelines.source.plan import Planner


class LogPart(InputPartition):
    """Consecutive slices for one task, numbered from ``first``."""

    def __init__(self, first: int, slices: Sequence[Slice]) -> None:
        self.first = first
        self.slices = tuple(slices)


TASK_BYTES = 1 << 20
"""Bytes of the log for each task after the second: a smaller one takes longer to start than to run."""


def parts_of(slices: Sequence[Slice], tasks: int) -> list[LogPart]:
    """Slices divided among at most ``tasks`` tasks in log order."""
    tasks = min(tasks, 2 + sum(piece.end - piece.start for piece in slices) // TASK_BYTES)
    size = max(-(-len(slices) // tasks), 1)
    return [LogPart(at, slices[at : at + size]) for at in range(0, len(slices), size)]


def read_part(options: LogOptions, part: LogPart) -> Iterator[pa.RecordBatch]:
    """The contents of a part in the columns of the layout."""
    if options.layout == SLICES:
        numbers = list(range(part.first, part.first + len(part.slices)))
        texts = [json.dumps(asdict(piece)) for piece in part.slices]
        yield pa.record_batch(
            [pa.array(numbers, pa.int64()), pa.array(texts, pa.string())], names=["sequence", "slice"]
        )
        return
    from pipelines.source.slices import read_slice
    from pipelines.source.typed import typed_batches

    for piece in part.slices:
        records, kept = read_slice(piece, keep_unknown=options.keep_unknown)
        yield from typed_batches(records, kept, piece.snapshot_offset)


@contextmanager
def mirror_of_source(options: LogOptions) -> Iterator[Mirror | None]:
    """Brings the mirror of a quorum to what is committed now, and holds it. None for a log that is written there."""
    if not options.quorum:
        yield None
        return
    from pipelines.mirror.follow import mirrored
    from pipelines.settings import load

    with mirrored(options.quorum, options.path, load().quorum.command_config, _warn) as mirror:
        yield mirror


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=2)


class _TaskReader:
    """Reads tasks, whichever reader planned them."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, LogPart)
        with crossing():
            yield from read_part(self._options, partition)


class BatchReader(_TaskReader, DataSourceReader):
    """Reads from the beginning (or the newest snapshot) to the present end."""

    @crossing()
    def partitions(self) -> Sequence[InputPartition]:
        """The slices, divided among tasks in log order."""
        from pipelines.source.plan import Planner  # not in the workers: they plan nothing

        with mirror_of_source(self._options):
            planner = Planner.of(self._options)
        start = planner.begin(self._options.start)
        return parts_of(list(planner.slices(start, planner.advance(start))), self._options.partitions)


LOOK_SECONDS = 0.1
"""Between two looks at the log while a stream waits for new records."""


class StreamReader(_TaskReader, LimitedReader):
    """Follows the log. Its offsets are positions with the fingerprint of the last batch read."""

    def __init__(self, options: LogOptions) -> None:
        super().__init__(options)
        self._planner: Planner | None = None
        self._ends = False
        self._mirror: Mirror | None = None
        self._opened: ExitStack | None = None
        """Holds the mirror as long as this process lives, which is as long as the query."""

    def _plan(self) -> Planner:
        if self._planner is None:
            if self._options.quorum:
                self._opened = ExitStack()
                self._mirror = self._opened.enter_context(mirror_of_source(self._options))
            if self._ends:
                choose_kernels([self._options.path])  # this process only plans; a log that is followed grows
            from pipelines.source.plan import Planner  # not in the workers: they plan nothing

            self._planner = Planner.of(self._options)
            if self._ends:
                self._planner.freeze()
        return self._planner

    @crossing()
    def initialOffset(self) -> dict[str, int]:
        """Where the first batch begins."""
        if self._options.begin_at:
            return dict(json.loads(self._options.begin_at))
        return asdict(self._plan().begin(self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option maxRecords."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records > 0 else ReadAllAvailable()

    @crossing()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Returns the end of the next micro-batch: whole batches, whole transactions.

        If there is nothing new, a continuous stream waits for the option waitSeconds. Then the next micro-batch begins
        when a record is appended, not when Spark asks the next time.
        """
        # Spark counts rows, which are records here.
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        position = Position(**start)
        self._catch_up()
        patience = time.monotonic() + (0 if self._ends else self._options.wait_seconds)
        while (end := self._next(position, max_records)) == position and time.monotonic() < patience:
            time.sleep(LOOK_SECONDS)
            self._catch_up()
        return asdict(end)

    def _catch_up(self) -> None:
        """Brings the mirror of a quorum to what is committed now."""
        self._plan()
        while self._mirror is not None and not self._mirror.step(0):
            pass

    def _next(self, position: Position, max_records: int | None) -> Position:
        """The end of the next micro-batch, or ``position`` if there is nothing new.

        An idle controller writes a NoOpRecord every half second. A continuous stream reads them every ``idle_seconds``.
        """
        planner = self._plan()
        end = planner.advance(position, max_records)
        # Publish what comes before damage at once: no later record would end the wait.
        idle = not self._ends and planner.problem is None and planner.scan.is_quiet(position, end)
        waited = planner.scan.time(end.offset) - planner.scan.time(position.offset) if idle else -1
        return position if 0 <= waited < self._options.idle_seconds * 1000 else end

    @crossing()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of this run at the present end."""
        self._ends = True
        self._plan().freeze()

    @crossing()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The slices between two positions, divided among tasks in log order."""
        first, last = Position(**start), Position(**end)
        if first == last:
            return []
        planner = self._plan()
        if not planner.scan.covers(first, last):
            planner.advance(first)
        if not planner.holds(last):
            raise LogChanged(self._options.path, last.base, "history changed after the batch was planned")
        return parts_of(list(planner.slices(first, last)), self._options.partitions)
