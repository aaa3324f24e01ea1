"""The records of a slice as events: which of them touch partitions, in which shards, and the ids that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.fold.events import (
    CHANGE,
    CLEAR_ELR,
    NO_IDS,
    PARTITION,
    REMOVE_TOPIC,
    TOPIC,
    Events,
    starts_of,
)
from pipelines.formats.kernels import njit
from pipelines.formats.lists import mix, number_ids, renumber, take_lists
from pipelines.formats.partitions import INT_LISTS
from pipelines.formats.records import Records


@dataclass(frozen=True)
class SliceIds:
    """For each of ``n`` records: ``part_row`` int64[n], its row among the partition records (-1: not one of them), and
    ``topic_of`` int32[n], its topic's number in ``topics`` uint64[t, 2] (-1: no topic). ``directories`` int32[*]: the
    directories of partitions in the order of the records, as numbers in ``directory_ids`` uint64[d, 2]."""

    part_row: np.ndarray
    topic_of: np.ndarray
    topics: np.ndarray
    directories: np.ndarray
    directory_ids: np.ndarray

    @classmethod
    def of(cls, records: Records) -> SliceIds:
        """Numbers the ids in all records of a slice."""
        part_row = np.full(len(records), -1, np.int64)
        part_row[records.partition_at] = np.arange(len(records.partition_at))
        of_part, topics = number_ids(records.partitions.topics, NO_IDS)
        topic_of = np.full(len(records), -1, np.int32)
        topic_of[records.partition_at] = of_part
        others = np.flatnonzero(records.topic_at >= 0)
        if len(others):
            at = records.topic_at[others][:, None] + np.arange(16)
            topic_of[others], topics = number_ids(records.data[at].view(np.uint64), topics)
        part = records.partitions
        return cls(part_row, topic_of, topics, *number_ids(part.directory_ids[: part.directory_ends[-1]], NO_IDS))


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


def rows_of_events(records: Records, kept: np.ndarray | None = None) -> np.ndarray:
    """Rows of the records that touch topics and partitions. ``kept`` bool[n]: false for those that do not count."""
    wanted = _OF_PARTITIONS[np.minimum(records.types, _MOST_TYPES)] & records.known
    if kept is not None:
        wanted &= kept
    return np.flatnonzero(wanted)


def events_of(
    records: Records, rows: np.ndarray, *, snapshot: int | None = None, named: SliceIds | None = None
) -> Events:
    """Events of the records at ``rows``, in that order.

    ``snapshot``: the last contained offset if the records are those of a snapshot. All of them apply at that offset.
    """
    named = named or SliceIds.of(records)
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
        taken, sizes = _lists(part.ints[slot], part.int_ends[slot], part.present[slot], at)
        int_sizes[slot, hits] = sizes
        values.append(taken)
    directory_sizes = np.full(m, -1, np.int32)
    directories, directory_sizes[hits] = _lists(named.directories, part.directory_ends, part.present[INT_LISTS], at)
    names, name_ends = take_lists(records.data, records.name_at, records.name_sizes, rows)
    topic_of, topics = renumber(named.topic_of[rows], named.topics)
    offsets = records.offsets[rows] if snapshot is None else np.full(m, snapshot, np.int64)
    return Events(
        offsets=offsets,
        batches=records.headers["base_offset"][records.batch[rows]] if snapshot is None else offsets,
        times=records.headers["timestamp"][records.batch[rows]] * 1000,
        kinds=records.types[rows].astype(np.uint8),
        snapshot=np.full(m, snapshot is not None, np.bool_),
        topic_of=topic_of,
        topics=topics,
        partitions=partitions,
        scalars=scalars,
        int_values=np.concatenate(values),
        int_starts=starts_of(int_sizes),
        int_sizes=int_sizes,
        directories=directories,
        directory_ids=named.directory_ids,
        directory_starts=starts_of(directory_sizes),
        directory_sizes=directory_sizes,
        names=names,
        name_ends=name_ends,
    )


def _lists(
    values: np.ndarray, ends: np.ndarray, present: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The lists at ``rows``: (values of all lists, concatenated; sizes, -1 for null)."""
    sizes = np.where(present, np.diff(ends), np.int32(-1))
    # Most kinds of lists are empty in most clusters.
    taken = take_lists(values, ends[:-1], sizes, rows)[0] if ends[-1] else values[:0]
    return taken, sizes[rows]


def by_shard(rows: np.ndarray, named: SliceIds, shards: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorts ``rows`` by shard, and by log order within a shard. Events without a topic id go to every shard.

    Returns the rows and the bounds of the shards among them: int64[shards + 1].
    """
    topics = named.topic_of[rows]
    owner = np.append(shards_of(named.topics, shards), np.int32(0))[topics].astype(np.uint8)
    everywhere = topics < 0
    if everywhere.any():
        wide, own = rows[everywhere], rows[~everywhere]
        rows = np.concatenate([own, np.tile(wide, shards)])
        owner = np.concatenate([owner[~everywhere], np.repeat(np.arange(shards, dtype=np.uint8), len(wide))])
        order = np.lexsort((rows, owner))
    else:
        order = np.argsort(owner, kind="stable")
    return rows[order], np.searchsorted(owner[order], np.arange(shards + 1))
