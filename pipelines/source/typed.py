"""Decoded records as readable rows: typed columns for what replay reads, JSON for the fields of all other records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from jbod_model.formats import codec
from jbod_model.formats.json_values import record_as_json
from jbod_model.formats.records import ClearElrRecord, NoOpRecord, RemoveTopicRecord, TopicRecord
from jbod_model.formats.schema import API_KEY_OF
from jbod_model.replay.registrations import KEEP_RECOVERY_STATE, NO_LEADER_CHANGE
from pipelines.formats.arrow_arrays import column, id_texts
from pipelines.formats.kernels import take_lists
from pipelines.formats.partitions import (
    DIRECTORIES,
    INT_LISTS,
    LEADER,
    LEADER_EPOCH,
    PARTITION,
    PARTITION_EPOCH,
    RECOVERY,
    PartitionRows,
)
from pipelines.formats.programs import programs
from pipelines.formats.records import CONTROL_BASE, Records, type_names
from pipelines.lake.tables import IDS, INTS, TIME

_INT_COLUMNS = ("replicas", "isr", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr")
TYPED_SCHEMA = pa.schema(
    [
        pa.field("log_offset", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("append_time", TIME, nullable=False),
        pa.field("batch_offset", pa.int64(), nullable=False),
        pa.field("record_type", pa.string(), nullable=False),
        pa.field("record_version", pa.int16(), nullable=False),
        pa.field("snapshot", pa.bool_(), nullable=False),
        pa.field("topic_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("broker_id", pa.int32()),
        pa.field("leader", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("partition_epoch", pa.int32()),
        pa.field("leader_recovery_state", pa.int32()),
        *(pa.field(name, INTS) for name in _INT_COLUMNS),
        pa.field("directories", IDS),
        pa.field("fields", pa.string()),
    ]
)
# Their columns have all their fields.
_IN_COLUMNS = tuple(API_KEY_OF[kind] for kind in (TopicRecord, RemoveTopicRecord, NoOpRecord, ClearElrRecord))
# Records of one Arrow batch: a few megabytes, which stay in the CPU cache on the way to the JVM.
BATCH_ROWS = 1 << 15


def typed_batches(records: Records, kept: np.ndarray, snapshot: int | None) -> Iterator[pa.RecordBatch]:
    """Rows of the records that count, with the columns of TYPED_SCHEMA.

    ``snapshot`` is the last contained offset if the records are those of a snapshot. A list or scalar that a change
    record does not set is null.
    """
    counted = np.flatnonzero(kept)
    # Columns are slices of the records' columns, so the records of a batch must be consecutive.
    for run in np.split(counted, np.flatnonzero(np.diff(counted) != 1) + 1):
        for start in range(0, len(run), BATCH_ROWS):
            rows = slice(int(run[start]), int(run[min(start + BATCH_ROWS, len(run)) - 1]) + 1)
            yield _batch(records, rows, _PartitionRows.of(records, rows), snapshot)


@dataclass(frozen=True)
class _PartitionRows:
    """The partition records among the ``n`` records of a batch.

    They are the rows ``[first, last)`` of ``columns``. ``at`` int64[last - first] holds their rows in the batch.
    """

    n: int
    columns: PartitionRows
    first: int
    last: int
    at: np.ndarray

    @classmethod
    def of(cls, records: Records, rows: slice) -> _PartitionRows:
        first, last = np.searchsorted(records.partition_at, (rows.start, rows.stop)).tolist()
        at = records.partition_at[first:last] - rows.start
        return cls(rows.stop - rows.start, records.partitions, first, last, at)

    @cached_property
    def _before(self) -> np.ndarray:
        """Number of partition records before each row, and in all: int64[n + 1]."""
        ones = np.zeros(self.n + 1, np.int64)
        ones[self.at + 1] = 1
        return np.cumsum(ones)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of the partition records, 0 for the others."""
        if len(values) == self.n:
            return values
        wide = np.zeros((self.n, *values.shape[1:]), values.dtype)
        wide[self.at] = values
        return wide

    def scalar(self, slot: int) -> np.ndarray:
        """A scalar of the partition records."""
        values: np.ndarray = self.columns.scalars[slot, self.first : self.last]
        return values

    def list_of(
        self, slot: int, ends: np.ndarray, kind: pa.DataType, values: Callable[[int, int], pa.Array]
    ) -> pa.Array:
        """A column of lists. ``ends`` int32[*]: the ends of all records' lists; ``values(start, end)``: their items."""
        present = self.columns.present[slot, self.first : self.last]
        if not present.any():
            return pa.nulls(self.n, kind)
        own = ends[self.first : self.last + 1]
        start, end = int(own[0]), int(own[-1])
        wide = own if len(self.at) == self.n else own[self._before]
        parts = [_bits(self.spread(present)), pa.py_buffer(wide - start)]
        return pa.Array.from_buffers(kind, self.n, parts, children=[values(start, end)])


def _batch(records: Records, rows: slice, part: _PartitionRows, snapshot: int | None) -> pa.RecordBatch:
    n, columns = part.n, part.columns
    batch, types, brokers = records.batch[rows], records.types[rows], records.broker_ids[rows]
    headers = records.headers[batch[0] : batch[-1] + 1]
    sizes = np.diff(np.searchsorted(batch, np.arange(batch[0], batch[-1] + 2)))
    hits = part.spread(np.ones(len(part.at), np.bool_))
    whole = hits & (types == PARTITION)
    leader, recovery = part.spread(part.scalar(LEADER)), part.spread(part.scalar(RECOVERY))
    return pa.record_batch(
        [
            column(records.offsets[rows] if snapshot is None else np.full(n, snapshot, np.int64)),
            column(headers["epoch"].repeat(sizes)),
            column((headers["timestamp"] * 1000).repeat(sizes)).view(TIME),
            column(headers["base_offset"].repeat(sizes)),
            type_names(types).dictionary_decode(),
            column(records.versions[rows]),
            pa.repeat(pa.scalar(snapshot is not None), n),
            _topic_ids(records, rows, part, hits),
            _names(records, rows),
            column(part.spread(columns.partitions[part.first : part.last]), hits),
            column(brokers, brokers >= 0),
            column(leader, hits & (whole | (leader != NO_LEADER_CHANGE))),
            column(part.spread(part.scalar(LEADER_EPOCH)), whole),
            column(part.spread(part.scalar(PARTITION_EPOCH)), whole),
            column(recovery, hits & (whole | (recovery != KEEP_RECOVERY_STATE))),
            *(_ints(part, slot) for slot in range(INT_LISTS)),
            part.list_of(
                DIRECTORIES, columns.directory_ends, IDS, lambda start, end: id_texts(columns.directory_ids[start:end])
            ),
            _fields(records, rows, hits),
        ],
        schema=TYPED_SCHEMA,
    )


def _bits(given: np.ndarray) -> pa.Buffer | None:
    return None if given.all() else pa.py_buffer(np.packbits(given, bitorder="little"))


def _ints(part: _PartitionRows, slot: int) -> pa.Array:
    values = part.columns.ints[slot]
    return part.list_of(slot, part.columns.int_ends[slot], INTS, lambda start, end: column(values[start:end]))


def _topic_ids(records: Records, rows: slice, part: _PartitionRows, hits: np.ndarray) -> pa.Array:
    ids, named = part.spread(part.columns.topics[part.first : part.last]), records.topic_at[rows]
    others = np.flatnonzero(named >= 0)
    if len(others):
        ids[others] = records.data[named[others][:, None] + np.arange(16)].view(np.uint64)
    return id_texts(ids, _bits(hits | (named >= 0)))


def _names(records: Records, rows: slice) -> pa.Array:
    """Topic names. Few records have one."""
    given = records.name_at[rows] >= 0
    at = np.flatnonzero(given)
    if not len(at):
        return pa.nulls(len(given), pa.string())
    names, _ = take_lists(records.data, records.name_at, records.name_sizes, rows.start + at)
    ends = np.zeros(len(given) + 1, np.int32)
    ends[at + 1] = records.name_sizes[rows.start + at]
    ends = np.cumsum(ends, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(given), [_bits(given), pa.py_buffer(ends), pa.py_buffer(names)])


def _fields(records: Records, rows: slice, hits: np.ndarray) -> pa.Array:
    """The fields of records that have no columns of their own, as kafka-dump-log prints them."""
    others = rows.start + np.flatnonzero(~hits)
    types = records.types[others]
    in_columns = np.isin(types, _IN_COLUMNS) & (programs().entries_of(types, records.versions[others]) >= 0)
    text_rows = others[~in_columns & (types < CONTROL_BASE)].tolist()
    if not text_rows:
        return pa.nulls(len(hits), pa.string())
    texts: list[str | None] = [None] * len(hits)
    for row in text_rows:
        read = codec.decode(records.value(row), keep_unknown=True)
        texts[row - rows.start] = json.dumps(record_as_json(read)["data"])
    return pa.array(texts, pa.string())
