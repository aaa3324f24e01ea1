"""A step of a shard as rows of the history tables (pipelines.lake.tables), ids as dictionaries of base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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
from pipelines.replay.shard import Step

# By number, as the fold counts them.
ENDED_BY = ("assigned", "moved", "unassigned", "lost", "reassigned", "reordered", "removed", "resync")
KINDS = ("migrating", "unassigned", "lost", "assigned")
RECOVERIES = ("RECOVERED", "RECOVERING")


@dataclass(frozen=True)
class Rows:
    """Rows of one table: those whose end is known for good, and those that are open and replace the open ones."""

    closed: pa.Table
    open: pa.Table


def id_texts(ids: np.ndarray) -> pa.Array:
    """Kafka's 22 characters for ids (uint64[n, 2], bytes as in memory)."""
    raw = ids.tobytes()
    return pa.array(
        [base64.urlsafe_b64encode(raw[at : at + 16])[:22].decode() for at in range(0, len(raw), 16)], pa.string()
    )


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
        numbers = pa.array(self.step.part_topic[parts])
        return [
            pa.DictionaryArray.from_arrays(numbers, self.topic_ids),
            pa.DictionaryArray.from_arrays(numbers, self.names),
            pa.array(self.step.part_number[parts]),
        ]


def _times(values: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
    return pa.array(values, pa.int64(), mask=mask).cast(tables.TIME)


def _interval(table: np.ndarray, at: int, to: int) -> list[pa.Array]:
    """The five interval columns: ``at`` is the column of from_offset, ``to`` that of to_offset."""
    still = table[:, to] == f.OPEN
    return [
        pa.array(np.ascontiguousarray(table[:, at])),
        _times(np.ascontiguousarray(table[:, at + 1])),
        pa.array(np.ascontiguousarray(table[:, to]), mask=still),
        _times(np.ascontiguousarray(table[:, to + 1]), still),
        pa.array(table[:, at + 2] != 0),
    ]


def _coded(numbers: np.ndarray, names: tuple[str, ...], mask: np.ndarray | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int8), mask=mask), pa.array(names))


def _partition_rows(build: _Columns, rows: np.ndarray) -> pa.Table:
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
        *_interval(versions, f.V_FROM, f.V_TO),
    ]
    return pa.table(columns, names=tables.PARTITIONS.schema.names)


def _assignment_rows(build: _Columns, slots: np.ndarray) -> pa.Table:
    directory = slots[:, f.A_DIRECTORY].astype(np.int32)
    still = slots[:, f.A_TO] == f.OPEN
    columns = [
        *build.topic(slots[:, f.A_PARTITION]),
        pa.array(slots[:, f.A_INDEX].astype(np.int32)),
        pa.array(slots[:, f.A_BROKER].astype(np.int32)),
        pa.DictionaryArray.from_arrays(pa.array(directory), build.directories),
        _coded(np.minimum(directory, 3), KINDS),
        *_interval(slots, f.A_FROM, f.A_TO),
        _coded(slots[:, f.A_ENDED], ENDED_BY, still),
    ]
    return pa.table(columns, names=tables.ASSIGNMENTS.schema.names)


def _offline_rows(build: _Columns, intervals: np.ndarray) -> pa.Table:
    slots = build.step.slots[intervals[:, o.O_SLOT]]
    columns = [
        *build.topic(slots[:, f.A_PARTITION]),
        pa.array(slots[:, f.A_INDEX].astype(np.int32)),
        pa.array(slots[:, f.A_BROKER].astype(np.int32)),
        pa.DictionaryArray.from_arrays(pa.array(slots[:, f.A_DIRECTORY].astype(np.int32)), build.directories),
        _coded(intervals[:, o.O_REASON] - 1, o.REASONS),
        *_interval(intervals, o.O_FROM, o.O_TO),
    ]
    return pa.table(columns, names=tables.OFFLINE_REPLICAS.schema.names)


def rows_of(step: Step) -> dict[str, Rows]:
    """Rows of ``partitions``, ``assignments`` and ``offline_replicas``, by table name."""
    build = _Columns(step)
    # What a snapshot says twice was true at no offset.
    still = step.versions[:, f.V_TO] == f.OPEN
    done = ~still & (step.versions[:, f.V_TO] != step.versions[:, f.V_FROM])
    slot_open = step.slots[:, f.A_TO] == f.OPEN
    slot_done = ~slot_open & (step.slots[:, f.A_TO] != step.slots[:, f.A_FROM])
    interval_open = step.intervals[:, o.O_TO] == f.OPEN
    interval_done = ~interval_open & (step.intervals[:, o.O_TO] != step.intervals[:, o.O_FROM])
    return {
        "partitions": Rows(_partition_rows(build, np.flatnonzero(done)), _partition_rows(build, np.flatnonzero(still))),
        "assignments": Rows(
            _assignment_rows(build, step.slots[slot_done]), _assignment_rows(build, step.slots[slot_open])
        ),
        "offline_replicas": Rows(
            _offline_rows(build, step.intervals[interval_done]), _offline_rows(build, step.intervals[interval_open])
        ),
    }
