"""Decoded records as rows for people: typed columns for what replay reads, JSON for the fields of everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jbod_model import codec
from jbod_model.text import record_as_json
from pipelines.formats.partitions import (
    DIRECTORIES,
    INT_LISTS,
    LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERY,
    PartitionRows,
)
from pipelines.formats.programs import programs
from pipelines.formats.records import CONTROL_BASE, Records
from pipelines.lake.tables import IDS, INTS, TIME
from pipelines.replay.blocks import partition_rows, topic_ids
from pipelines.replay.events import NO_IDS
from pipelines.replay.lists import number_ids, take_lists
from pipelines.replay.record_rows import type_names
from pipelines.replay.rows import id_texts

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
# TopicRecord, RemoveTopicRecord, NoOpRecord, ClearElrRecord: columns say all there is.
_IN_COLUMNS = (2, 9, 20, 28)
# Records of one Arrow batch: a few megabytes, which stay in the processor's cache on the way to the JVM.
BATCH_ROWS = 1 << 15


def typed_batches(records: Records, kept: np.ndarray, snapshot: int | None) -> Iterator[pa.RecordBatch]:
    """Rows of the records that count, columns of TYPED_SCHEMA.

    ``snapshot``: last contained offset where they are those of a snapshot. A list or scalar that a change record
    leaves as it was is null.
    """
    counted = np.flatnonzero(kept)
    ids = _Ids.of(records, counted, partition_rows(records)[counted])
    for start in range(0, len(counted), BATCH_ROWS):
        yield _batch(records, counted[start : start + BATCH_ROWS], ids.cut(start, start + BATCH_ROWS), snapshot)


@dataclass(frozen=True)
class _Ids:
    """Ids of some records as numbers into their texts: those of topics (-1: none), and of all directories."""

    part_row: np.ndarray
    topic_of: np.ndarray
    topics: pa.Array
    directory_of: np.ndarray
    directories: pa.Array

    @classmethod
    def of(cls, records: Records, rows: np.ndarray, part_row: np.ndarray) -> _Ids:
        topic_of, topics = topic_ids(records, rows, part_row)
        part = records.partitions
        directory_of, directories = number_ids(part.ids[: part.id_ends[-1]], NO_IDS)
        return cls(part_row, topic_of, id_texts(topics), directory_of, id_texts(directories))

    def cut(self, start: int, end: int) -> _Ids:
        return replace(self, part_row=self.part_row[start:end], topic_of=self.topic_of[start:end])


def _batch(records: Records, rows: np.ndarray, ids: _Ids, snapshot: int | None) -> pa.RecordBatch:
    n = len(rows)
    headers = records.headers[records.batch[rows]]
    part, part_row = records.partitions, ids.part_row
    hits = part_row >= 0
    at = np.where(hits, part_row, 0)
    whole = hits & (records.types[rows] == 3)
    offsets = records.offsets[rows]
    brokers = records.broker_ids[rows]

    def scalar(slot: int, mask: np.ndarray) -> pa.Array:
        values = part.scalars[slot, at] if len(part.partitions) else np.zeros(n, np.int32)
        return pa.array(values, mask=~mask)

    leader = part.scalars[LEADER, at] if len(part.partitions) else np.zeros(n, np.int32)
    recovery = part.scalars[RECOVERY, at] if len(part.partitions) else np.zeros(n, np.int32)
    return pa.record_batch(
        [
            pa.array(offsets if snapshot is None else np.full(n, snapshot, np.int64)),
            pa.array(np.ascontiguousarray(headers["epoch"])),
            pa.array(headers["timestamp"] * 1000, pa.int64()).cast(TIME),
            pa.array(np.ascontiguousarray(headers["base_offset"])),
            type_names(records.types[rows]).cast(pa.string()),
            pa.array(records.versions[rows]),
            pa.array(np.full(n, snapshot is not None)),
            _texts(ids.topic_of, ids.topics, ids.topic_of < 0),
            _names(records, rows),
            pa.array(part.partitions[at] if len(part.partitions) else np.zeros(n, np.int32), mask=~hits),
            pa.array(brokers, mask=brokers < 0),
            scalar(LEADER, hits & (whole | (leader != NO_LEADER_CHANGE))),
            scalar(1, whole),
            scalar(2, whole),
            scalar(RECOVERY, hits & (whole | (recovery != NO_RECOVERY_CHANGE))),
            *(_ints(part, slot, part_row) for slot in range(INT_LISTS)),
            _directories(part, ids),
            _fields(records, rows, hits),
        ],
        schema=TYPED_SCHEMA,
    )


def _names(records: Records, rows: np.ndarray) -> pa.Array:
    """Topic names, of the few records that have one."""
    given = records.name_at[rows] >= 0
    if not given.any():
        return pa.nulls(len(rows), pa.string())
    names, ends = take_lists(records.data, records.name_at, records.name_sizes, rows)
    raw = pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(names)])
    return pc.if_else(pa.array(given), raw, pa.scalar(None, pa.string()))


def _texts(numbers: np.ndarray, dictionary: pa.Array, mask: np.ndarray | None = None) -> pa.Array:
    return dictionary.take(pa.array(numbers, mask=mask))


def _ints(part: PartitionRows, slot: int, part_row: np.ndarray) -> pa.Array:
    given = _given(part, slot, part_row)
    if not given.any():
        return pa.nulls(len(part_row), INTS)
    starts, sizes = part.int_ends[slot, :-1], np.diff(part.int_ends[slot])
    values, ends = take_lists(part.ints[slot], starts, sizes, np.where(given, part_row, -1))
    return _list(ends, pa.array(values), given, INTS)


def _directories(part: PartitionRows, ids: _Ids) -> pa.Array:
    given = _given(part, DIRECTORIES, ids.part_row)
    if not given.any():
        return pa.nulls(len(given), IDS)
    asked = np.where(given, ids.part_row, -1)
    taken, ends = take_lists(ids.directory_of, part.id_ends[:-1], np.diff(part.id_ends), asked)
    return _list(ends, _texts(taken, ids.directories), given, IDS)


def _given(part: PartitionRows, slot: int, part_row: np.ndarray) -> np.ndarray:
    given = np.zeros(len(part_row), np.bool_)
    hits = part_row >= 0
    given[hits] = part.present[slot, part_row[hits]]
    return given


def _list(ends: np.ndarray, values: pa.Array, given: np.ndarray, kind: pa.DataType) -> pa.Array:
    mask = None if given.all() else pa.array(~given)
    return pa.ListArray.from_arrays(pa.array(ends), values, type=kind, mask=mask)


def _fields(records: Records, rows: np.ndarray, partition: np.ndarray) -> pa.Array:
    """The fields of the records that have no columns, as kafka-dump-log prints them."""
    types = records.types[rows]
    said = np.isin(types, _IN_COLUMNS) & (programs().entries_of(types, records.versions[rows]) >= 0)
    asked = np.flatnonzero(~partition & ~said & (types < CONTROL_BASE)).tolist()
    if not asked:
        return pa.nulls(len(rows), pa.string())
    texts: list[str | None] = [None] * len(rows)
    for row in asked:
        read = codec.decode(records.value(int(rows[row])), keep_unknown=True)
        texts[row] = json.dumps(record_as_json(read)["data"])
    return pa.array(texts, pa.string())
