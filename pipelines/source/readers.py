"""The batch reader of the data source ``kraft_metadata``: it plans slices and reads their records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jbod_model.errors import crossing
from pipelines.source.log_options import SLICES, Options
from pipelines.source.positions import Slice


class Part(InputPartition):
    """Consecutive slices for one task, numbered from ``first``."""

    def __init__(self, first: int, slices: Sequence[Slice]) -> None:
        self.first = first
        self.slices = tuple(slices)


TASK_BYTES = 1 << 20
"""Bytes of the log for each task after the second: a smaller one takes longer to start than to run."""


def parts_of(slices: Sequence[Slice], tasks: int) -> list[Part]:
    """Slices divided among at most ``tasks`` tasks in log order."""
    tasks = min(tasks, 2 + sum(piece.end - piece.start for piece in slices) // TASK_BYTES)
    size = max(-(-len(slices) // tasks), 1)
    return [Part(at, slices[at : at + size]) for at in range(0, len(slices), size)]


def read_part(options: Options, part: Part) -> Iterator[pa.RecordBatch]:
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


class BatchReader(DataSourceReader):
    """Reads from the beginning (or the newest snapshot) to the present end."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @crossing()
    def partitions(self) -> Sequence[InputPartition]:
        """The slices, divided among tasks in log order."""
        from pipelines.source.plan import Planner  # not in the workers: they plan nothing

        planner = Planner.of(self._options)
        start = planner.begin(self._options.start)
        return parts_of(list(planner.slices(start, planner.advance(start))), self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, Part)
        with crossing():
            yield from read_part(self._options, partition)
