"""The state of a shard between batches, in columns. A column that follows from others is not kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from pipelines.fold.events import CHANGE, PARTITION, TOPIC, Events, starts_of
from pipelines.fold.offline import H_SLOT
from pipelines.fold.pack import narrow
from pipelines.formats.kernels import number_ids, take_lists
from pipelines.formats.partitions import INT_LISTS, REPLICAS

_OF_ONE_PARTITION = (TOPIC, PARTITION, CHANGE)
"""Kinds of events that touch at most the partition that they name. A snapshot ends with another kind."""


def split(state: ShardState, events: Events, brokers: Collection[int]) -> tuple[ShardState, ShardState | None]:
    """Divides ``state`` into the partitions that the batch touches and the rest, in the same numbers.

    ``brokers``: those whose registration changes in the batch. The rest is None if the batch may touch all partitions,
    or touches most of them.
    """
    if not np.isin(events.kinds, _OF_ONE_PARTITION).all():
        return state, None
    chosen = _named(state, events) | _on_brokers(state, brokers)
    if 2 * np.count_nonzero(chosen) >= len(chosen):
        return state, None
    return state.take(chosen), state.take(~chosen)


def _named(state: ShardState, events: Events) -> np.ndarray:
    """The partitions that an event names: bool[P]."""
    numbers, topics = number_ids(events.topics, state.topics)
    of_partitions = np.flatnonzero(events.kinds != TOPIC)
    named = numbers[events.topic_of[of_partitions]]
    in_topic = np.zeros(len(topics), np.bool_)
    in_topic[named] = True
    # Most topics are not named, so few keys are compared.
    near = np.flatnonzero(in_topic[state.part_topic])
    chosen = np.zeros(len(state.part_topic), np.bool_)
    keys = _keys(state.part_topic[near], state.part_number[near])
    chosen[near[np.isin(keys, _keys(named, events.partitions[of_partitions]))]] = True
    return chosen


def _keys(topics: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (topics.astype(np.int64) << 32) + numbers
    return keys


def _on_brokers(state: ShardState, brokers: Collection[int]) -> np.ndarray:
    """The partitions with a replica on one of the brokers: bool[P]."""
    chosen = np.zeros(len(state.part_topic), np.bool_)
    if brokers:
        sizes = np.maximum(state.int_sizes[REPLICAS], 0)
        replicas = state.int_values[: len(state.slot_since)]
        chosen[np.repeat(np.arange(len(sizes)), sizes)[np.isin(replicas, list(brokers))]] = True
    return chosen


_RISING = {"since": np.int32, "slot_since": np.int32, "when_offsets": np.int64, "when_times": np.int64}
"""Columns whose values mostly rise, and their types. They are kept as differences: plain, they were 2/3 of a state."""
_ORIGIN = "first_"


@dataclass(frozen=True)
class ShardState:
    """The state of a shard between batches. P partitions, T topics, D directories, S replica slots.

    ``topics`` uint64[T, 2] with ``names`` uint8[*], ``name_ends`` int32[T + 1]; ``directory_ids`` uint64[D, 2],
    the reserved ids first; ``part_topic``, ``part_number``, ``may_follow_loss`` int32[P]; ``scalars`` int32[P, 4];
    ``int_values`` int32 with ``int_sizes`` int32[6, P] as in Events, ``directories`` with ``directory_sizes`` int32[P]
    (-1: never given); ``since`` int32[P] and ``slot_since`` int32[S], the slots by partition and index: rows of the
    moments, ``when_offsets``, ``when_times`` int64, ``when_snapshot`` bool; ``held`` int64[*, 5]: the open offline
    intervals, by slot.
    """

    topics: np.ndarray
    names: np.ndarray
    name_ends: np.ndarray
    directory_ids: np.ndarray
    part_topic: np.ndarray
    part_number: np.ndarray
    scalars: np.ndarray
    may_follow_loss: np.ndarray
    since: np.ndarray
    int_values: np.ndarray
    int_sizes: np.ndarray
    directories: np.ndarray
    directory_sizes: np.ndarray
    slot_since: np.ndarray
    when_offsets: np.ndarray
    when_times: np.ndarray
    when_snapshot: np.ndarray
    held: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns by name, for ``pack``, each in its narrowest type. Rising columns are stored as differences."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in _RISING:
            first = columns[name][:1]
            columns[_ORIGIN + name] = first.astype(np.int64)
            columns[name] = np.diff(columns[name], prepend=first)
        narrowed = {name for name, column in columns.items() if column.dtype == np.int32} | set(_RISING)
        return {name: narrow(column) if name in narrowed else column for name, column in columns.items()}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> ShardState:
        """Undo ``arrays``."""
        small = (np.dtype(np.int8), np.dtype(np.int16))
        columns = {field.name: arrays[field.name] for field in fields(cls)}
        for name, dtype in _RISING.items():
            columns[name] = (np.cumsum(columns[name], dtype=np.int64) + arrays[_ORIGIN + name]).astype(dtype)
        return cls(
            **{name: column.astype(np.int32) if column.dtype in small else column for name, column in columns.items()}
        )

    def take(self, chosen: np.ndarray) -> ShardState:
        """The partitions in ``chosen`` (bool[P]), in the numbers of this state: its topics, directories and moments."""
        rows = np.flatnonzero(chosen)
        starts, directory_starts = starts_of(self.int_sizes), starts_of(self.directory_sizes)
        lists = [take_lists(self.int_values, starts[at], self.int_sizes[at], rows)[0] for at in range(INT_LISTS)]
        of_slot = np.repeat(chosen, np.maximum(self.int_sizes[REPLICAS], 0))
        held = self.held[of_slot[self.held[:, H_SLOT]]]
        held[:, H_SLOT] = (np.cumsum(of_slot) - 1)[held[:, H_SLOT]]
        return replace(
            self,
            part_topic=self.part_topic[rows],
            part_number=self.part_number[rows],
            scalars=self.scalars[rows],
            may_follow_loss=self.may_follow_loss[rows],
            since=self.since[rows],
            int_values=np.concatenate(lists),
            int_sizes=self.int_sizes.take(rows, axis=1),  # in the layout that kernels are compiled for
            directories=take_lists(self.directories, directory_starts, self.directory_sizes, rows)[0],
            directory_sizes=self.directory_sizes[rows],
            slot_since=self.slot_since[of_slot],
            held=held,
        )

    def join(self, other: ShardState) -> ShardState:
        """These partitions and those of ``other``, in the numbers of ``other``, which continue those of this state."""
        held = other.held.copy()
        held[:, H_SLOT] += len(self.slot_since)
        lists = [values for columns in zip(_int_columns(self), _int_columns(other), strict=True) for values in columns]
        return replace(
            other,
            part_topic=np.concatenate([self.part_topic, other.part_topic]),
            part_number=np.concatenate([self.part_number, other.part_number]),
            scalars=np.concatenate([self.scalars, other.scalars]),
            may_follow_loss=np.concatenate([self.may_follow_loss, other.may_follow_loss]),
            since=np.concatenate([self.since, other.since]),
            int_values=np.concatenate(lists),
            int_sizes=np.concatenate([self.int_sizes, other.int_sizes], axis=1),
            directories=np.concatenate([self.directories, other.directories]),
            directory_sizes=np.concatenate([self.directory_sizes, other.directory_sizes]),
            slot_since=np.concatenate([self.slot_since, other.slot_since]),
            held=np.concatenate([self.held, held]),
        )

    def without_unused(self, alive: np.ndarray) -> ShardState:
        """The same partitions, in numbers of only the ``alive`` topics, and of directories and moments in use."""
        new_topic = np.cumsum(alive, dtype=np.int32) - np.int32(1)
        in_use = np.zeros(len(self.directory_ids), np.bool_)
        in_use[:3] = in_use[self.directories] = True
        new_directory = np.cumsum(in_use, dtype=np.int32) - np.int32(1)
        remembered = np.zeros(len(self.when_offsets), np.bool_)
        remembered[self.since] = remembered[self.slot_since] = True
        new_moment = np.cumsum(remembered, dtype=np.int32) - np.int32(1)
        names, name_ends = take_lists(self.names, self.name_ends[:-1], np.diff(self.name_ends), np.flatnonzero(alive))
        return replace(
            self,
            topics=self.topics[alive],
            names=names,
            name_ends=name_ends,
            directory_ids=self.directory_ids[in_use],
            part_topic=new_topic[self.part_topic],
            since=new_moment[self.since],
            directories=new_directory[self.directories],
            slot_since=new_moment[self.slot_since],
            when_offsets=self.when_offsets[remembered],
            when_times=self.when_times[remembered],
            when_snapshot=self.when_snapshot[remembered],
        )


def _int_columns(state: ShardState) -> list[np.ndarray]:
    """The values of each int list column."""
    ends = np.cumsum(np.maximum(state.int_sizes, 0).sum(axis=1, dtype=np.int64))
    return np.split(state.int_values, ends[:-1])


def empty_state(reserved: np.ndarray) -> ShardState:
    """A shard before the first record; ``reserved`` uint64[3, 2]: ids of MIGRATING, UNASSIGNED, LOST."""
    none = np.empty(0, np.int32)
    return ShardState(
        topics=np.empty((0, 2), np.uint64),
        names=np.empty(0, np.uint8),
        name_ends=np.zeros(1, np.int32),
        directory_ids=reserved,
        part_topic=none,
        part_number=none,
        scalars=np.empty((0, 4), np.int32),
        may_follow_loss=none,
        since=none,
        int_values=none,
        int_sizes=np.empty((INT_LISTS, 0), np.int32),
        directories=none,
        directory_sizes=none,
        slot_since=none,
        when_offsets=np.empty(0, np.int64),
        when_times=np.empty(0, np.int64),
        when_snapshot=np.empty(0, np.bool_),
        held=np.empty((0, 5), np.int64),
    )


class Moments(NamedTuple):
    """Moments: ``offsets``, ``times`` int64, ``snapshot`` bool. Those of the state come first, then those of events."""

    offsets: Any
    times: Any
    snapshot: Any

    def at(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets, times and snapshot flags of the moments at ``rows``."""
        at = rows.astype(np.intp)  # once for all three columns
        return self.offsets.take(at), self.times.take(at), self.snapshot.take(at)
