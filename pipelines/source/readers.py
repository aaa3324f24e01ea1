"""Readers of the data source ``kraft_metadata``: they plan slices and read their records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from jbod_model.errors import LogChanged, crossing
from pipelines.source.first_batch import FirstBatch
from pipelines.source.log_options import SLICES, Options
from pipelines.source.planners import planner_of
from pipelines.source.positions import Position, Slice

if TYPE_CHECKING:
    from pipelines.source.planning import Planning


class Part(InputPartition):
    """Consecutive slices for one task, numbered from ``first``."""

    def __init__(self, first: int, slices: Sequence[Slice]) -> None:
        self.first = first
        self.slices = tuple(slices)


def _parts(slices: Sequence[Slice], tasks: int) -> list[Part]:
    size = max(-(-len(slices) // tasks), 1)
    return [Part(at, slices[at : at + size]) for at in range(0, len(slices), size)]


def _read(options: Options, part: Part) -> Iterator[pa.RecordBatch]:
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


class BatchReader(DataSourceReader):
    """Reads from the beginning (or the newest snapshot) to the present agreed end."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @crossing()
    def partitions(self) -> Sequence[InputPartition]:
        """The slices, divided among tasks in log order."""
        planner = planner_of(self._options)
        start = planner.begin(self._options.start)
        return _parts(list(planner.slices(start, planner.advance(start))), self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, Part)
        with crossing():
            yield from _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log. Its offsets are positions with the fingerprint of the last batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ahead = FirstBatch.read(options.ahead)
        self._planner: Planning | None = None
        self._ends = False

    def _plan(self) -> Planning:
        if self._planner is None:
            self._planner = planner_of(self._options)
            if self._ends:
                self._planner.freeze()
        return self._planner

    @crossing()
    def initialOffset(self) -> dict[str, int]:
        """Where the first batch begins."""
        if self._options.begin_at:
            return dict(json.loads(self._options.begin_at))
        if self._ahead is not None:
            return asdict(self._ahead.start)
        return asdict(self._plan().begin(self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option maxRecords."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records > 0 else ReadAllAvailable()

    @crossing()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Returns the end of the next micro-batch: whole batches, whole transactions.

        An idle controller writes a NoOpRecord every half second. A continuous stream reads them once a minute.
        """
        # Spark counts rows, which are records here.
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        position = Position(**start)
        if self._ahead is not None and (position, max_records) == (self._ahead.start, self._ahead.max_records):
            return asdict(self._ahead.end)
        if self._ahead is not None and self._ends and self._ahead.is_all and position == self._ahead.end:
            return start
        planner = self._plan()
        end = planner.advance(position, max_records)
        # Publish what comes before damage at once: no later record would end the wait.
        idle = not self._ends and planner.problem is None and planner.is_quiet(position, end)
        if idle and 0 <= planner.time(end.offset) - planner.time(position.offset) < self._options.idle_seconds * 1000:
            return start
        return asdict(end)

    @crossing()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the end of this run at the present agreed end. A batch planned ahead fixes it already."""
        self._ends = True
        if self._planner is not None:
            self._planner.freeze()
        elif self._ahead is None:
            self._plan()

    @crossing()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The slices between two positions, divided among tasks in log order."""
        first, last = Position(**start), Position(**end)
        if first == last:
            return []
        if self._ahead is not None and (first, last) == (self._ahead.start, self._ahead.end):
            return _parts(self._ahead.slices, self._options.partitions)
        planner = self._plan()
        if not planner.covers(first, last):
            planner.advance(first)
        if not planner.holds(last):
            raise LogChanged(self._options.path, last.base, "history changed after the batch was planned")
        return _parts(list(planner.slices(first, last)), self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, Part)
        with crossing():
            yield from _read(self._options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing on disk: the source keeps no state in Kafka's directory."""
