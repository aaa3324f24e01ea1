"""From decoded records to the events of each shard: what leaves the decode stage for the state machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipelines.formats.partitions import INT_LISTS
from pipelines.formats.records import Records
from pipelines.replay.events import (
    CHANGE,
    CLEAR_ELR,
    NO_IDS,
    PARTITION,
    REMOVE_TOPIC,
    SNAPSHOT_END,
    TOPIC,
    Events,
    starts_of,
)
from pipelines.replay.lists import mix, number_ids, take_lists


@njit(cache=True, nogil=True)
def _shards(topics: Any, shards: int, out: Any) -> None:
    for i in range(len(topics)):
        out[i] = mix(topics[i, 0], topics[i, 1]) % np.uint64(shards)


def shards_of(topics: np.ndarray, shards: int) -> np.ndarray:
    """Shard of each topic id (uint64[n, 2]): int32[n]."""
    out = np.empty(len(topics), np.int32)
    _shards(topics, shards, out)
    return out


def topic_ids(records: Records, rows: np.ndarray, part_row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Topic of some records: (number int32[n], -1 where they name none; ids uint64[t, 2]).

    ``part_row`` int64[n]: their rows among the partition records, -1 for the others.
    """
    ids = np.zeros((len(rows), 2), np.uint64)
    hits = part_row >= 0
    ids[hits] = records.partitions.topics[part_row[hits]]
    at = records.topic_at[rows]
    for row in np.flatnonzero(at >= 0).tolist():
        ids[row] = np.frombuffer(records.data[at[row] : at[row] + 16].tobytes(), np.uint64)
    named = hits | (at >= 0)
    numbers = np.full(len(rows), -1, np.int32)
    numbers[named], distinct = number_ids(ids[named], NO_IDS)
    return numbers, distinct


def partition_rows(records: Records) -> np.ndarray:
    """Row of every record among the partition records, -1 for the others: int64[n]."""
    rows = np.full(len(records), -1, np.int64)
    rows[records.partition_at] = np.arange(len(records.partition_at))
    return rows


def events_of(records: Records, kept: np.ndarray | None = None, *, snapshot: int | None = None) -> Events:
    """Events of the records that touch topics and partitions, in log order.

    ``kept`` bool[n]: false for records that do not count. ``snapshot``: the last contained offset, where the
    records are those of a snapshot and all hold at that offset.
    """
    types = records.types
    wanted = np.isin(types, (TOPIC, PARTITION, CHANGE, REMOVE_TOPIC, CLEAR_ELR)) & records.known
    if kept is not None:
        wanted &= kept
    rows = np.flatnonzero(wanted)
    m = len(rows)
    part = records.partitions
    part_row = partition_rows(records)[rows]
    hits, at = np.flatnonzero(part_row >= 0), part_row[part_row >= 0]
    topic_of, topics = topic_ids(records, rows, part_row)
    partitions, scalars = np.full(m, -1, np.int32), np.zeros((4, m), np.int32)
    partitions[hits] = part.partitions[at]
    scalars[:, hits] = part.scalars[:, at]
    values: list[np.ndarray] = []
    int_sizes = np.full((INT_LISTS, m), -1, np.int32)
    for slot in range(INT_LISTS):
        sizes = np.diff(part.int_ends[slot])
        int_sizes[slot, hits] = np.where(part.present[slot, at], sizes[at], -1)
        values.append(take_lists(part.ints[slot], part.int_ends[slot, :-1], sizes, at)[0])
    id_of, ids = number_ids(part.ids[: part.id_ends[-1]], NO_IDS)
    widths = np.diff(part.id_ends)
    id_sizes = np.full(m, -1, np.int32)
    id_sizes[hits] = np.where(part.present[INT_LISTS, at], widths[at], -1)
    names, name_ends = take_lists(records.data, records.name_at, records.name_sizes, rows)
    return Events(
        offsets=records.offsets[rows] if snapshot is None else np.full(m, snapshot, np.int64),
        times=records.headers["timestamp"][records.batch[rows]] * 1000,
        kinds=types[rows].astype(np.uint8),
        snapshot=np.full(m, snapshot is not None, np.bool_),
        topic_of=topic_of,
        topics=topics,
        partitions=partitions,
        scalars=scalars,
        int_values=np.concatenate(values),
        int_starts=starts_of(int_sizes),
        int_sizes=int_sizes,
        id_of=take_lists(id_of, part.id_ends[:-1], widths, at)[0],
        ids=ids,
        id_starts=starts_of(id_sizes),
        id_sizes=id_sizes,
        names=names,
        name_ends=name_ends,
    )


def split(events: Events, shards: int) -> list[Events]:
    """The events of every shard, in log order; what concerns all topics goes to each."""
    everywhere = (events.kinds == CLEAR_ELR) | (events.kinds == SNAPSHOT_END)
    owner = np.append(shards_of(events.topics, shards), np.int32(0))[events.topic_of].astype(np.uint8)
    own = np.flatnonzero(~everywhere)
    if len(own) < len(events):
        wide = np.flatnonzero(everywhere)
        rows = np.concatenate([own, np.tile(wide, shards)])
        owners = np.concatenate([owner[own], np.repeat(np.arange(shards, dtype=np.uint8), len(wide))])
        order = np.lexsort((rows, owners))
    else:
        rows, owners = own, owner
        order = np.argsort(owner, kind="stable")
    rows, owners = rows[order], owners[order]
    ends = np.searchsorted(owners, np.arange(shards + 1))
    return [events.take(rows[ends[k] : ends[k + 1]]) for k in range(shards)]
