"""A step of a shard as rows of the history tables (pipelines.lake.tables), ids as dictionaries of base64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.fold import offline as o
from pipelines.fold import tables as c
from pipelines.fold.changes import change_rows
from pipelines.fold.events import SliceIds
from pipelines.fold.shard import Step, untouched
from pipelines.fold.state import ShardState
from pipelines.fold.tables import ENDED_BY
from pipelines.formats import arrow_arrays as arrow
from pipelines.formats.kernels import columns_of, take_lists
from pipelines.formats.partitions import (
    ADDING,
    DIRECTORIES,
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
from pipelines.formats.records import Records, type_names
from pipelines.lake import tables


def record_rows(records: Records, kept: np.ndarray, snapshot: int | None, named: SliceIds | None = None) -> pa.Table:
    """Rows of the records that count. ``snapshot``: the last contained offset if they are those of a snapshot."""
    named = named or SliceIds.of(records)
    rows = np.flatnonzero(kept)
    # Usually every record counts, and the columns need no selection.
    pick = slice(None) if len(rows) == len(records) else rows
    n = len(rows)
    headers, batch = records.headers, records.batch[pick]
    topics, part_row = named.topic_of[pick], named.part_row[pick]
    # The appended entry is for row -1, "none".
    partitions = np.append(records.partitions.partitions, np.int32(-1))[part_row]
    offsets, brokers = records.offsets[pick], records.broker_ids[pick]
    return pa.table(
        [
            arrow.column(offsets if snapshot is None else np.full(n, snapshot, np.int64)),
            arrow.column(headers["epoch"][batch]),
            arrow.column(headers["timestamp"][batch] * 1000).view(tables.TIME),
            arrow.column(headers["base_offset"][batch]),
            type_names(records.types[pick]),
            arrow.column(records.versions[pick]),
            arrow.column(np.full(n, snapshot is not None)),
            pa.nulls(n, pa.int64()) if snapshot is None else arrow.column(offsets),
            pa.DictionaryArray.from_arrays(arrow.nullable(topics), arrow.id_texts(named.topics)),
            arrow.column(partitions, part_row >= 0),
            arrow.nullable(brokers),
            values_of(records, rows),
        ],
        names=tables.RECORDS.schema.names,
    )


def values_of(records: Records, rows: np.ndarray) -> pa.Array:
    """Record values of some rows: binary[n]."""
    sizes = records.value_ends - records.value_starts
    return arrow.pieces(*take_lists(records.data, records.value_starts, sizes, rows))


# Indexed by the numbers of the fold.
KINDS = ("migrating", "unassigned", "lost", "assigned")
RECOVERIES = ("RECOVERED", "RECOVERING")


_Moment = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Offsets int64, times int64 (microseconds UTC), and whether they are known only from a snapshot."""


@dataclass(frozen=True)
class TableRows:
    """Rows of one table: the closed rows, which are final, and the open rows, which replace the previous open ones.

    If ``keeps_open``, the previous open rows stay, and ``open`` has no row.
    """

    closed: pa.Table
    open: pa.Table
    keeps_open: bool = False


def row_table(table: tables.Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table, from dicts with times in microseconds. For tables of few rows."""
    columns = [
        arrow.array([row[name] for row in rows], pa.int64()).view(tables.TIME)
        if kind == tables.TIME
        else arrow.array([row[name] for row in rows], kind)
        for name, kind in zip(table.schema.names, table.schema.types, strict=True)
    ]
    return pa.table(columns, schema=table.schema)


class _Columns:
    """Column builders that share the dictionaries of one step."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.topic_ids = arrow.id_texts(step.topics)
        self.names = arrow.texts([name.decode("utf-8", "replace") for name in step.topic_names])
        self.directories = arrow.id_texts(step.directory_ids)
        # 0..2 are the reserved ids, all others are real.
        self.kinds = arrow.texts(KINDS)
        self._parts = np.ascontiguousarray(step.parts[:, : c.P_NUMBER + 1].T)

    def topic(self, parts: np.ndarray) -> list[pa.Array]:
        topics, numbers = (arrow.column(self._parts[column].take(parts)) for column in (c.P_TOPIC, c.P_NUMBER))
        return [
            pa.DictionaryArray.from_arrays(topics, self.topic_ids),
            pa.DictionaryArray.from_arrays(topics, self.names),
            numbers,
        ]


def _interval(begin: _Moment, end: _Moment | None) -> list[pa.Array]:
    """The five interval columns; without ``end`` the rows are open."""
    offsets, times, snapshot = begin
    none = len(offsets)
    return [
        arrow.column(offsets),
        arrow.column(times).view(tables.TIME),
        arrow.nulls(none, pa.int64()) if end is None else arrow.column(end[0]),
        arrow.nulls(none, tables.TIME) if end is None else arrow.column(end[1]).view(tables.TIME),
        arrow.column(snapshot),
    ]


def _coded(numbers: np.ndarray, names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(arrow.column(numbers.astype(np.int8)), arrow.texts(names))


def _partition_rows(build: _Columns, rows: np.ndarray, still: bool) -> pa.Table:
    step = build.step
    version = columns_of(step.versions, rows)
    references, scalars = version[c.V_LISTS : c.V_SCALARS], version[c.V_SCALARS : c.V_LOSS]

    def lists(slot: int) -> tuple[np.ndarray, np.ndarray]:
        return step.int_lists(slot, references[slot])

    def ints(values: np.ndarray, ends: np.ndarray) -> pa.ListArray:
        return pa.ListArray.from_arrays(arrow.column(ends), arrow.column(values))

    numbers, ends = step.directory_lists(references[DIRECTORIES], references[REPLICAS])
    directories = pa.DictionaryArray.from_arrays(arrow.column(numbers), build.directories)
    columns = [
        *build.topic(version[c.V_PARTITION]),
        ints(*lists(REPLICAS)),
        ints(*lists(ISR)),
        ints(*lists(ELR)),
        ints(*lists(LAST_KNOWN_ELR)),
        ints(*lists(ADDING)),
        ints(*lists(REMOVING)),
        arrow.column(scalars[LEADER]),
        arrow.column(scalars[LEADER_EPOCH]),
        arrow.column(scalars[PARTITION_EPOCH]),
        _coded(scalars[RECOVERY], RECOVERIES),
        pa.ListArray.from_arrays(arrow.column(ends), directories),
        arrow.column(version[c.V_LOSS] != 0),
        *_interval(step.moments.at(version[c.V_FROM]), None if still else step.moments.at(version[c.V_TO])),
    ]
    return pa.table(columns, names=tables.PARTITIONS.schema.names)


def _assignment_rows(build: _Columns, rows: np.ndarray, still: bool) -> pa.Table:
    moments = build.step.moments
    slot = columns_of(build.step.slots, rows)
    directory = slot[c.A_DIRECTORY]
    columns = [
        *build.topic(slot[c.A_PARTITION]),
        arrow.column(slot[c.A_INDEX]),
        arrow.column(slot[c.A_BROKER]),
        pa.DictionaryArray.from_arrays(arrow.column(directory), build.directories),
        _coded(np.minimum(directory, 3), KINDS),
        *_interval(moments.at(slot[c.A_FROM]), None if still else moments.at(slot[c.A_TO])),
        arrow.nulls(len(rows), _coded(directory[:0], ENDED_BY).type) if still else _coded(slot[c.A_ENDED], ENDED_BY),
    ]
    return pa.table(columns, names=tables.ASSIGNMENTS.schema.names)


def _offline_rows(build: _Columns, intervals: np.ndarray, still: bool) -> pa.Table:
    slot = columns_of(build.step.slots, intervals[:, o.O_SLOT])
    columns = [
        *build.topic(slot[c.A_PARTITION]),
        arrow.column(slot[c.A_INDEX]),
        arrow.column(slot[c.A_BROKER]),
        pa.DictionaryArray.from_arrays(arrow.column(slot[c.A_DIRECTORY]), build.directories),
        _coded(intervals[:, o.O_REASON] - 1, o.REASONS),
        *_interval(
            (intervals[:, o.O_FROM], intervals[:, o.O_FROM_TIME], intervals[:, o.O_FROM_SNAPSHOT] != 0),
            None if still else (intervals[:, o.O_TO], intervals[:, o.O_TO_TIME], intervals[:, o.O_TO]),
        ),
    ]
    return pa.table(columns, names=tables.OFFLINE_REPLICAS.schema.names)


def rows_of(step: Step, generation: int | None = None, rest: ShardState | None = None) -> dict[str, TableRows]:
    """Rows of ``partitions``, ``assignments``, ``offline_replicas`` and ``changes``, by table name.

    ``generation`` of the rows of ``changes``; there are none without it. ``rest``: the partitions of the shard that the
    step left out because the batch does not touch them.
    """
    build = _Columns(step)
    intervals = step.intervals
    still = intervals[:, o.O_TO] == c.OPEN
    done = ~still & (intervals[:, o.O_TO] != intervals[:, o.O_FROM])
    ended_versions, open_versions = step.version_rows
    ended_slots, open_slots = step.slot_rows
    changed = {}
    if generation is not None:
        happened = change_rows(step, build.topic_ids, build.names, build.directories, generation)
        changed["changes"] = TableRows(happened, happened.slice(0, 0))
    made = {
        "partitions": TableRows(
            _partition_rows(build, ended_versions, False), _partition_rows(build, open_versions, True)
        ),
        "assignments": TableRows(
            _assignment_rows(build, ended_slots, False), _assignment_rows(build, open_slots, True)
        ),
        "offline_replicas": TableRows(
            _offline_rows(build, intervals[done], False), _offline_rows(build, intervals[still], True)
        ),
    }
    return changed | (made if rest is None else _with_rest(made, step, untouched(rest, step)))


def _with_rest(made: dict[str, TableRows], step: Step, rest: Step) -> dict[str, TableRows]:
    """The rows with the open rows of the partitions that the step left out, where any open row changed."""
    build = _Columns(rest)
    intervals = step.intervals
    changed = {
        "partitions": len(step.versions) > step.old,
        "assignments": len(step.slots) > step.old_slots or bool((step.slots[:, c.A_TO] != c.OPEN).any()),
        "offline_replicas": bool(
            ((intervals[:, o.O_FROM] >= step.first_offset) | (intervals[:, o.O_TO] != c.OPEN)).any()
        ),
    }
    others = {
        "partitions": lambda: _partition_rows(build, rest.version_rows[1], True),
        "assignments": lambda: _assignment_rows(build, rest.slot_rows[1], True),
        "offline_replicas": lambda: _offline_rows(build, rest.intervals, True),
    }
    return {
        name: replace(rows, open=pa.concat_tables([others[name](), rows.open]))
        if changed[name]
        else replace(rows, open=rows.open.slice(0, 0), keeps_open=True)
        for name, rows in made.items()
    }
