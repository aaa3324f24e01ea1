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
from pipelines.replay.named import Named

_MOST_TYPES = 255
_OF_PARTITIONS = np.zeros(_MOST_TYPES + 1, np.bool_)
_OF_PARTITIONS[[TOPIC, PARTITION, CHANGE, REMOVE_TOPIC, CLEAR_ELR]] = True


@njit(cache=True, nogil=True)
def _shards(topics: Any, shards: int, out: Any) -> None:
    for i in range(len(topics)):
        out[i] = mix(topics[i, 0], topics[i, 1]) % np.uint64(shards)


def shards_of(topics: np.ndarray, shards: int) -> np.ndarray:
    """Shard of each topic id (uint64[n, 2]): int32[n]."""
    out = np.empty(len(topics), np.int32)
    _shards(topics, shards, out)
    return out


def events_of(
    records: Records, kept: np.ndarray | None = None, *, snapshot: int | None = None, named: Named | None = None
) -> Events:
    """Events of the records that touch topics and partitions, in log order.

    ``kept`` bool[n]: false for records that do not count. ``snapshot``: the last contained offset, where the
    records are those of a snapshot and all hold at that offset.
    """
    named = named or Named.of(records)
    wanted = _OF_PARTITIONS[np.minimum(records.types, _MOST_TYPES)] & records.known
    if kept is not None:
        wanted &= kept
    rows = np.flatnonzero(wanted)
    m = len(rows)
    part = records.partitions
    part_row = named.part_row[rows]
    hits = np.flatnonzero(part_row >= 0)
    at = part_row[hits]
    partitions, scalars = np.full(m, -1, np.int32), np.zeros((4, m), np.int32)
    partitions[hits] = part.partitions[at]
    values: list[np.ndarray] = []
    int_sizes = np.full((INT_LISTS, m), -1, np.int32)
    for slot in range(len(scalars)):
        scalars[slot, hits] = part.scalars[slot, at]
    for slot in range(INT_LISTS):
        sizes = np.diff(part.int_ends[slot])
        int_sizes[slot, hits] = np.where(part.present[slot], sizes, -1)[at]
        values.append(_lists(part.ints[slot], part.int_ends[slot], sizes, at))
    id_of, ids = number_ids(part.ids[: part.id_ends[-1]], NO_IDS)
    widths = np.diff(part.id_ends)
    id_sizes = np.full(m, -1, np.int32)
    id_sizes[hits] = np.where(part.present[INT_LISTS], widths, -1)[at]
    names, name_ends = take_lists(records.data, records.name_at, records.name_sizes, rows)
    return Events(
        offsets=records.offsets[rows] if snapshot is None else np.full(m, snapshot, np.int64),
        times=records.headers["timestamp"][records.batch[rows]] * 1000,
        kinds=records.types[rows].astype(np.uint8),
        snapshot=np.full(m, snapshot is not None, np.bool_),
        topic_of=named.topic_of[rows],
        topics=named.topics,
        partitions=partitions,
        scalars=scalars,
        int_values=np.concatenate(values),
        int_starts=starts_of(int_sizes),
        int_sizes=int_sizes,
        id_of=_lists(id_of, part.id_ends, widths, at),
        ids=ids,
        id_starts=starts_of(id_sizes),
        id_sizes=id_sizes,
        names=names,
        name_ends=name_ends,
    )


def _lists(values: np.ndarray, ends: np.ndarray, sizes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values of the lists at ``rows``, ascending: where these are all of them, the values as they lie."""
    if len(rows) == len(sizes):
        return values[: ends[-1]]
    return take_lists(values, ends[:-1], sizes, rows)[0]


def by_shard(events: Events, shards: int) -> tuple[Events, np.ndarray]:
    """The events in the order of their shards, in log order within each; what concerns all topics goes to each.

    With them the rows where shards begin, and where the last ends: int64[shards + 1].
    """
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
    return events.take(rows), np.searchsorted(owners, np.arange(shards + 1))
