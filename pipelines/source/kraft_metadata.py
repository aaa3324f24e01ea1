"""The Spark data source ``kraft_metadata``: a metadata log as rows, in batch and streaming.

``spark.read.format("kraft_metadata").load(dir)`` gives every record with its typed columns.

Options: ``path`` (a metadata.log.dir or its ``__cluster_metadata-0``, or a URI of pyarrow.fs); ``start`` (auto, log,
snapshot); ``maxRecords`` of a micro-batch (0: no limit); ``cutTail`` (wait, fail: what a cut-off last batch means);
``keepUnknown`` (true: keep records of unknown types, unread); ``partitions`` (tasks of a read); ``layout`` (records,
or slices: where the records are instead of what they say); ``boundary`` (an offset at which a micro-batch ends).

Nothing past the last complete batch or inside an open transaction is read, nor any record of an aborted one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jbod_model.errors import UsageError
from pipelines.source.log_dir import LogDir
from pipelines.source.plan import Planner, Position, Slice

RECORDS, SLICES = "records", "slices"
SLICES_SCHEMA = "sequence long, slice string"


@dataclass(frozen=True)
class Options:
    """The source's options, read and checked."""

    path: str
    layout: str = RECORDS
    start: str = "auto"
    max_records: int = 0
    cut_tail: str = "wait"
    keep_unknown: bool = False
    partitions: int = 4
    boundary: int = -1

    @classmethod
    def read(cls, raw: Mapping[str, str]) -> Options:
        """From Spark's options, whose names have no case; UsageError names the one that is wrong."""
        if not raw.get("path"):
            raise UsageError("kraft_metadata: no path: load(DIR) or option path")
        return cls(
            path=raw["path"],
            layout=_one_of(raw, "layout", RECORDS, SLICES),
            start=_one_of(raw, "start", "auto", "log", "snapshot"),
            max_records=_number(raw, "maxRecords", 0),
            cut_tail=_one_of(raw, "cutTail", "wait", "fail"),
            keep_unknown=_one_of(raw, "keepUnknown", "false", "true") == "true",
            partitions=max(_number(raw, "partitions", 4), 1),
            boundary=_number(raw, "boundary", -1),
        )


def _one_of(raw: Mapping[str, str], name: str, *values: str) -> str:
    value = raw.get(name, values[0])
    if value not in values:
        raise UsageError(f"kraft_metadata: option {name} is {value!r}, not one of {', '.join(values)}")
    return value


def _number(raw: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(raw.get(name, default))
    except ValueError:
        raise UsageError(f"kraft_metadata: option {name} is {raw[name]!r}, not a number") from None


class KraftMetadata(DataSource):
    """The data source; register it with ``spark.dataSource.register(KraftMetadata)``."""

    @classmethod
    def name(cls) -> str:
        """The short name for ``format``."""
        return "kraft_metadata"

    def schema(self) -> StructType | str:
        """Columns of the layout."""
        if Options.read(self.options).layout == SLICES:
            return SLICES_SCHEMA
        from pyspark.sql.pandas.types import from_arrow_schema

        from pipelines.source.typed import TYPED_SCHEMA

        return from_arrow_schema(TYPED_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """A read of all there is."""
        return BatchReader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """A read that goes on."""
        return StreamReader(Options.read(self.options))


class Part(InputPartition):
    """Consecutive slices for one task, numbered from ``first``."""

    def __init__(self, first: int, slices: Sequence[Slice]) -> None:
        self.first = first
        self.slices = tuple(slices)


def _parts(slices: Sequence[Slice], most: int) -> list[Part]:
    size = max(-(-len(slices) // most), 1)
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
        yield from typed_batches(records, kept, piece.snapshot - 1 if piece.snapshot >= 0 else None)


class BatchReader(DataSourceReader):
    """Reads from the beginning (or the newest snapshot) to what is settled now."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Slices, spread over tasks in log order."""
        planner = Planner(LogDir(self._options.path), cut_tail=self._options.cut_tail)
        start = planner.begin(self._options.start)
        return _parts(list(planner.slices(start, planner.advance(start))), self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, Part)
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log. Its offsets are positions with the fingerprint of the last batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: Planner | None = None

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(LogDir(self._options.path), cut_tail=self._options.cut_tail)
        return self._planner

    def initialOffset(self) -> dict[str, int]:
        """Where the first batch begins."""
        return asdict(self._plan().begin(self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option maxRecords."""
        return ReadMaxRows(self._options.max_records) if self._options.max_records > 0 else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next batch ends: whole batches, whole transactions."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        position = Position(**start)
        end = self._plan().advance(position, most, boundary=self._options.boundary)
        return asdict(end)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run at what is settled now."""
        self._plan().freeze()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Slices between two positions, spread over tasks in log order."""
        first, last = Position(**start), Position(**end)
        if first == last:
            return []
        planner = self._plan()
        if not planner.covers(first, last):
            planner.advance(first)
        return _parts(list(planner.slices(first, last)), self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        assert isinstance(partition, Part)
        return _read(self._options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Forget what is behind; nothing is kept in Kafka's directory."""


def register(spark: Any) -> None:
    """Make ``format("kraft_metadata")`` known to a session."""
    spark.dataSource.register(KraftMetadata)
