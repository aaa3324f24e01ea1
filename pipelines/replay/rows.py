"""A step of a shard as rows of the history tables (pipelines.lake.tables), ids as dictionaries of base64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.formats.id_texts import id_texts
from pipelines.formats.partitions import (
    ADDING,
    ELR,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    LEADER_EPOCH,
    PARTITION_EPOCH,
    RECOVERY,
    REMOVING,
    REPLICAS,
)
from pipelines.lake import tables
from pipelines.replay import fold as f
from pipelines.replay import offline as o
from pipelines.replay.lists import rows_where
from pipelines.replay.shard import Step

# By number, as the fold counts them.
ENDED_BY = ("assigned", "moved", "unassigned", "lost", "reassigned", "reordered", "removed", "resync")
KINDS = ("migrating", "unassigned", "lost", "assigned")
RECOVERIES = ("RECOVERED", "RECOVERING")


_Moment = tuple[np.ndarray, np.ndarray, np.ndarray]
"""When: offsets int64, times int64 (microseconds UTC), whether only a snapshot says so."""


@dataclass(frozen=True)
class Rows:
    """Rows of one table: those whose end is known for good, and those that are open and replace the open ones."""

    closed: pa.Table
    open: pa.Table


class _Columns:
    """Column builders that share the dictionaries of one step."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.topic_ids = id_texts(step.topics)
        self.names = pa.array([name.decode("utf-8", "replace") for name in step.topic_names], pa.string())
        self.directories = id_texts(step.directories)
        # 0..2 are the reserved ids, all others are real.
        self.kinds = pa.array(KINDS)

    def topic(self, parts: np.ndarray) -> list[pa.Array]:
        at = parts.astype(np.intp)
        numbers = pa.array(self.step.part_topic.take(at))
        return [
            pa.DictionaryArray.from_arrays(numbers, self.topic_ids),
            pa.DictionaryArray.from_arrays(numbers, self.names),
            pa.array(self.step.part_number.take(at)),
        ]


def _interval(begin: _Moment, end: _Moment | None) -> list[pa.Array]:
    """The five interval columns; without ``end`` the rows are open."""
    offsets, times, snapshot = begin
    none = len(offsets)
    return [
        pa.array(offsets),
        pa.array(times).cast(tables.TIME),
        pa.nulls(none, pa.int64()) if end is None else pa.array(end[0]),
        pa.nulls(none, tables.TIME) if end is None else pa.array(end[1]).cast(tables.TIME),
        pa.array(snapshot),
    ]


def _coded(numbers: np.ndarray, names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int8)), pa.array(names))


def _partition_rows(build: _Columns, rows: np.ndarray, still: bool) -> pa.Table:
    step = build.step
    versions = step.versions[rows]
    scalars = step.scalars[rows]

    def ints(slot: int) -> pa.Array:
        values, ends = step.int_lists(slot, rows)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(values))

    numbers, ends = step.directory_lists(rows)
    directories = pa.DictionaryArray.from_arrays(pa.array(numbers), build.directories)
    columns = [
        *build.topic(versions[:, f.V_PARTITION]),
        ints(REPLICAS),
        ints(ISR),
        ints(ELR),
        ints(LAST_KNOWN_ELR),
        ints(ADDING),
        ints(REMOVING),
        pa.array(np.ascontiguousarray(scalars[:, LEADER])),
        pa.array(np.ascontiguousarray(scalars[:, LEADER_EPOCH])),
        pa.array(np.ascontiguousarray(scalars[:, PARTITION_EPOCH])),
        _coded(scalars[:, RECOVERY], RECOVERIES),
        pa.ListArray.from_arrays(pa.array(ends), directories),
        *_interval(step.moments.at(versions[:, f.V_FROM]), None if still else step.moments.at(versions[:, f.V_TO])),
    ]
    return pa.table(columns, names=tables.PARTITIONS.schema.names)


def _assignment_rows(build: _Columns, slots: np.ndarray, still: bool) -> pa.Table:
    moments = build.step.moments
    directory = np.ascontiguousarray(slots[:, f.A_DIRECTORY])
    columns = [
        *build.topic(slots[:, f.A_PARTITION]),
        pa.array(np.ascontiguousarray(slots[:, f.A_INDEX])),
        pa.array(np.ascontiguousarray(slots[:, f.A_BROKER])),
        pa.DictionaryArray.from_arrays(pa.array(directory), build.directories),
        _coded(np.minimum(directory, 3), KINDS),
        *_interval(moments.at(slots[:, f.A_FROM]), None if still else moments.at(slots[:, f.A_TO])),
        pa.nulls(len(slots), _coded(directory[:0], ENDED_BY).type) if still else _coded(slots[:, f.A_ENDED], ENDED_BY),
    ]
    return pa.table(columns, names=tables.ASSIGNMENTS.schema.names)


def _offline_rows(build: _Columns, intervals: np.ndarray, still: bool) -> pa.Table:
    slots = build.step.slots[intervals[:, o.O_SLOT]]
    columns = [
        *build.topic(slots[:, f.A_PARTITION]),
        pa.array(np.ascontiguousarray(slots[:, f.A_INDEX])),
        pa.array(np.ascontiguousarray(slots[:, f.A_BROKER])),
        pa.DictionaryArray.from_arrays(pa.array(np.ascontiguousarray(slots[:, f.A_DIRECTORY])), build.directories),
        _coded(intervals[:, o.O_REASON] - 1, o.REASONS),
        *_interval(
            (intervals[:, o.O_FROM], intervals[:, o.O_FROM_TIME], intervals[:, o.O_FROM_SNAPSHOT] != 0),
            None if still else (intervals[:, o.O_TO], intervals[:, o.O_TO_TIME], intervals[:, o.O_TO]),
        ),
    ]
    return pa.table(columns, names=tables.OFFLINE_REPLICAS.schema.names)


def rows_of(step: Step) -> dict[str, Rows]:
    """Rows of ``partitions``, ``assignments`` and ``offline_replicas``, by table name."""
    build = _Columns(step)
    versions, slots, intervals = step.versions, step.slots, step.intervals
    version_open, slot_open = versions[:, f.V_TO] == f.OPEN, slots[:, f.A_TO] == f.OPEN
    interval_open = intervals[:, o.O_TO] == f.OPEN
    # What a snapshot says twice was true at no offset.
    offsets = step.moments.offsets
    version_done = ~version_open & (offsets[versions[:, f.V_TO]] != offsets[versions[:, f.V_FROM]])
    slot_done = ~slot_open & (offsets[slots[:, f.A_TO]] != offsets[slots[:, f.A_FROM]])
    interval_done = ~interval_open & (intervals[:, o.O_TO] != intervals[:, o.O_FROM])
    return {
        "partitions": Rows(
            _partition_rows(build, rows_where(version_done), False),
            _partition_rows(build, rows_where(version_open), True),
        ),
        "assignments": Rows(
            _assignment_rows(build, slots[rows_where(slot_done)], False),
            _assignment_rows(build, slots[rows_where(slot_open)], True),
        ),
        "offline_replicas": Rows(
            _offline_rows(build, intervals[interval_done], False), _offline_rows(build, intervals[interval_open], True)
        ),
    }
