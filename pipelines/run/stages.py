"""The two stages that run on the executors: decode slices, and fold shards. Between them Spark only moves bytes.

Rows between the stages: ``key`` int32 (the shard, -1 for the driver), ``sequence`` int64 (the slice's place in the
batch), ``kind``, ``payload``.

Both stages write Parquet files on the executors and send their names to the driver, which commits them. What they
report is a class for each kind of report, and crosses Spark pickled: the driver and the executors run the same jbod.

Bytes that cross Spark are copied eight times. So the events of a large slice go to one file beside the tables, and the
file's name goes through Spark. Each shard maps its part into memory. Small slices, and those of a lake on object
storage, go through Spark.
"""

from __future__ import annotations

import contextlib
import mmap
import pickle
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jbod_model.errors import JbodError
from jbod_model.formats.records import FeatureLevelRecord
from jbod_model.formats.schema import API_KEY_OF
from pipelines.fold.broker_shard import QUORUM_TYPES
from pipelines.fold.brokers import BROKER_TYPES
from pipelines.fold.events import (
    CLEAR_ELR,
    REMOVE_TOPIC,
    TOPIC,
    Events,
    Part,
    SliceIds,
    by_shard,
    end_of_snapshot,
    events_of,
    rows_of_events,
)
from pipelines.fold.machine import BROKERS, END, EVENTS, FEATURES, QUORUM, TOPICS, Row, fold_rows, packed_values
from pipelines.fold.rows import TableRows, record_rows
from pipelines.formats.records import Records, unknown_kinds
from pipelines.lake.tables import BY_NAME
from pipelines.lake.uris import LakeUri
from pipelines.run.stage_options import Job
from pipelines.source.positions import Slice
from pipelines.source.slices import read_slice

if TYPE_CHECKING:
    from pipelines.lake.files import DataFile


@dataclass(frozen=True)
class SliceRead:
    """A slice that was decoded: offsets ``[start, end)``, and the last batch: append time (microseconds), epoch, CRC.

    ``snapshot``: the end offset of the snapshot that it is part of, -1 for the log. ``dropped``: records that do not
    count. ``unknown``: kinds of records that are not known, each with the offset of the first.
    """

    start: int
    end: int
    snapshot: int
    dropped: int
    time: int
    epoch: int
    crc: int
    unknown: Mapping[str, int]


@dataclass(frozen=True)
class FileWritten:
    """A data file that a stage wrote."""

    file: DataFile


@dataclass(frozen=True)
class ClosedRows:
    """Closed rows of a table, too few for a file of their own."""

    table: str
    rows: pa.Table


@dataclass(frozen=True)
class OpenRowsReplaced:
    """The open rows of a shard in a table are those of the file that it reports, or none if it reports none."""

    table: str
    shard: int


@dataclass(frozen=True)
class MetadataVersion:
    """The feature level ``metadata.version`` after the micro-batch."""

    level: int


@dataclass(frozen=True)
class Refusal:
    """The error of a stage, to raise on the driver."""

    error: JbodError


Report = SliceRead | FileWritten | ClosedRows | OpenRowsReplaced | MetadataVersion | Refusal


def plain(table: pa.Table) -> pa.Table:
    """The same rows with their texts as they are: the dictionaries have those of the whole shard."""
    return pa.table(
        [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else _plain_lists(c) for c in table.columns],
        names=table.schema.names,
    )


def _plain_lists(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type) and pa.types.is_dictionary(column.type.value_type):
        return column.cast(pa.list_(column.type.value_type.value_type))
    return column


STAGE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
REPORT = "report"
"""The kind of a row for the driver."""
STAGED = "staged"
"""The kind of a row with the name of the file that holds the events of a slice. Others: pipelines.fold.machine."""
FEATURE_LEVEL = API_KEY_OF[FeatureLevelRecord]
# Closed rows of a shard below this number travel to the driver, which writes one file for all shards.
SMALL = 20_000


def report_row(report: Report, shard: int = -1, sequence: int = -1) -> Row:
    """A report as a row for the driver."""
    return shard, sequence, REPORT, pickle.dumps(report)


def report_of(payload: bytes) -> Report:
    """The report of such a row."""
    report: Report = pickle.loads(payload)  # noqa: S301  a stage of this run wrote it
    return report


def error_row(problem: JbodError) -> Row:
    """An error as a row for the driver, which raises it there."""
    return report_row(Refusal(problem))


def rows_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows (at least one) as a batch of STAGE_SCHEMA."""
    return pa.record_batch([*zip(*rows, strict=True)], schema=STAGE_SCHEMA)


# -- decode -----------------------------------------------------------------------------------------------------------


def decode_slice(job: Job, sequence: int, piece: Slice) -> Iterator[Row]:
    """Rows of one slice: events for each shard, broker records for all, and the file of its ``records``."""
    from pipelines.lake import files  # not for a question to a log: it loads slowly

    records, kept = read_slice(piece)
    named = SliceIds.of(records)
    rows = record_rows(records, kept, piece.snapshot_offset, named)
    written = files.write(job.lake, "records", rows)
    yield report_row(FileWritten(written), sequence=sequence)
    yield from shard_rows(job, sequence, piece, records, kept, named)


def shard_rows(
    job: Job, sequence: int, piece: Slice, records: Records, kept: np.ndarray, named: SliceIds | None = None
) -> Iterator[Row]:
    """The rows of a slice for the state machine."""
    named = named or SliceIds.of(records)
    yield from _event_rows(job, sequence, *shard_events(job, piece, records, kept, named))
    yield from other_rows(job, sequence, piece, records, kept, named)


def shard_events(
    job: Job, piece: Slice, records: Records, kept: np.ndarray, named: SliceIds
) -> tuple[Events, np.ndarray]:
    """The events of a slice, and the bounds of the shards among them: int64[shards + 1]."""
    rows = rows_of_events(records, kept)
    order, bounds = by_shard(rows, named, job.shards)
    return events_of(records, order, snapshot=piece.snapshot_offset, named=named), bounds


def other_rows(
    job: Job, sequence: int, piece: Slice, records: Records, kept: np.ndarray, named: SliceIds
) -> Iterator[Row]:
    """The rows of a slice for the state machine, without those of its events."""
    snapshot = piece.snapshot_offset
    of_topics = np.flatnonzero(kept & records.known & np.isin(records.types, (TOPIC, REMOVE_TOPIC, CLEAR_ELR)))
    if len(of_topics):
        topic_events = events_of(records, of_topics, snapshot=snapshot, named=named)
        yield job.broker_shard, sequence, TOPICS, topic_events.to_bytes()
    if piece.closes:
        end = end_of_snapshot(piece.snapshot - 1, int(records.headers["timestamp"][-1]) * 1000).to_bytes()
        for shard in range(job.shards + 1):
            yield shard, sequence, END, end
    known = kept & records.known
    of_brokers = _values(records, known & np.isin(records.types, BROKER_TYPES), snapshot, piece.closes)
    if of_brokers is not None:
        for shard in range(job.shards + 1):
            yield shard, sequence, BROKERS, of_brokers
    features = _values(records, known & (records.types == FEATURE_LEVEL), snapshot, False)
    if features is not None:
        yield job.broker_shard, sequence, FEATURES, features
    of_quorum = _values(records, known & np.isin(records.types, QUORUM_TYPES), snapshot, piece.closes)
    if of_quorum is not None:
        yield job.broker_shard, sequence, QUORUM, of_quorum
    yield report_row(_slice_read(records, kept, piece, snapshot), sequence=sequence)


def _event_rows(job: Job, sequence: int, events: Events, bounds: np.ndarray) -> Iterator[Row]:
    """For each shard its events, or the name of the file that holds the events of all shards."""
    staged = stage(job.lake, events, bounds)
    for shard in np.flatnonzero(np.diff(bounds)).tolist():
        if staged is None:
            part = events.take(np.arange(bounds[shard], bounds[shard + 1]))
            yield shard, sequence, EVENTS, part.to_bytes()
        else:
            yield shard, sequence, STAGED, staged.encode()


def _values(records: Records, mask: np.ndarray, snapshot: int | None, closes: bool) -> bytes | None:
    """The raw values of the records in ``mask`` with their offsets and times, None if there are none."""
    rows = np.flatnonzero(mask)
    if not len(rows) and not closes:
        return None
    offsets = records.offsets[rows] if snapshot is None else np.full(len(rows), snapshot, np.int64)
    return packed_values(
        offsets=offsets,
        batches=records.headers["base_offset"][records.batch[rows]] if snapshot is None else offsets,
        types=records.types[rows],
        times=records.headers["timestamp"][records.batch[rows]] * 1000,
        values=[records.value(row) for row in rows.tolist()],
        snapshot=snapshot,
        end_time=int(records.headers["timestamp"][-1]) * 1000 if closes else None,
    )


def _slice_read(records: Records, kept: np.ndarray, piece: Slice, snapshot: int | None) -> SliceRead:
    last = records.headers[-1]
    of_log = piece.snapshot < 0
    return SliceRead(
        start=piece.first if of_log else 0,
        end=piece.last if of_log else piece.snapshot,
        snapshot=piece.snapshot,
        dropped=piece.last - piece.first - int(kept.sum()),
        time=int(last["timestamp"]) * 1000,
        epoch=int(last["epoch"]),
        crc=int(last["crc"]),
        unknown=unknown_kinds(records, kept, snapshot),
    )


# -- fold -------------------------------------------------------------------------------------------------------------


def fold_shard(job: Job, shard: int, state: bytes | None, rows: Iterable[Row]) -> tuple[bytes, list[Row]]:
    """Folds one batch of a shard: (next state, rows for the driver). ``rows`` may have any order. Writes its tables."""
    rows = list(rows)
    in_files = [
        (sequence, read_staged(job.lake, payload.decode(), shard))
        for _, sequence, kind, payload in rows
        if kind == STAGED
    ]
    after, tables, level = fold_rows(job, shard, state, rows, events=in_files, keeps_open=True)
    reports = _write(job, shard, tables)
    return after, reports if level is None else [*reports, report_row(MetadataVersion(level), shard)]


def _write(job: Job, shard: int, tables: dict[str, TableRows]) -> list[Row]:
    """Writes a shard's rows: open ones to a new file that replaces the old one, closed ones to a file if many."""
    from pipelines.lake import files

    reports: list[Report] = []
    for name, rows in tables.items():
        if rows.open.num_rows:
            reports.append(FileWritten(files.write(job.lake, name, rows.open, shard=shard)))
        if BY_NAME[name].has_open_rows and not rows.keeps_open:
            reports.append(OpenRowsReplaced(name, shard))
        if rows.closed.num_rows >= SMALL:
            reports.append(FileWritten(files.write(job.lake, name, rows.closed)))
        elif rows.closed.num_rows:
            reports.append(ClosedRows(name, plain(rows.closed)))
    return [report_row(report, shard) for report in reports]


FOLDER = "_staged"
MANY = 4096
"""The number of events in a slice from which on a file is faster."""


def stage(lake: LakeUri, events: Events, bounds: np.ndarray) -> str | None:
    """Writes a slice's events (those of shard k between ``bounds`` k and k + 1) and returns the file's name.

    Returns None if they must go through Spark.
    """
    if not lake or "://" in lake or len(events) < MANY:
        return None
    path = Path(lake, FOLDER, uuid.uuid4().hex)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(events.to_bytes(bounds))
    return path.name


def read_staged(lake: LakeUri, name: str, shard: int) -> Part:
    """The events of one shard in a file that ``stage`` wrote."""
    try:
        with Path(lake, FOLDER, name).open("rb") as file:
            return Part.of(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), shard)
    except FileNotFoundError:
        raise JbodError(f"{lake}/{FOLDER}/{name}: was deleted during the run: run again") from None


def clear_staged(lake: LakeUri) -> None:
    """Removes staged files: after each publication, and those that a dead run left."""
    if "://" not in lake:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(Path(lake, FOLDER))
