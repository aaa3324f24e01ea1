"""The open rows of a shard: from its state into the tables of a step, and back into the state after the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.formats.kernels import njit
from pipelines.formats.lists import columns_of, take_lists
from pipelines.formats.partitions import DIRECTORIES, INT_LISTS, REPLICAS
from pipelines.replay import fold_columns as c
from pipelines.replay.events import starts_of
from pipelines.replay.fold_columns import Lists
from pipelines.replay.offline import H_SLOT
from pipelines.replay.state import Moments, ShardState
from pipelines.replay.step import Step, fill_absent


def open_versions(state: ShardState, versions: np.ndarray) -> None:
    """Writes the versions that are open in ``state`` to the first rows, each with references to its own lists."""
    old = len(state.part_topic)
    rows = np.arange(old)
    versions[:old, c.V_PARTITION] = rows
    versions[:old, c.V_FROM] = state.since
    versions[:old, c.V_TO] = c.OPEN
    given = np.vstack([state.int_sizes, state.directory_sizes]).T >= 0
    versions[:old, c.V_LISTS : c.V_SCALARS] = np.where(given, rows[:, None], c.EMPTY)
    versions[:old, c.V_LISTS + DIRECTORIES][state.directory_sizes < 0] = c.ABSENT
    versions[:old, c.V_SCALARS :] = state.scalars


def open_slots(state: ShardState, sizes: np.ndarray, absent_directory: int) -> np.ndarray:
    """A row for each replica of each partition (``sizes`` per partition). Replicas are the first column of lists."""
    count = len(state.slot_since)
    rows = np.arange(len(sizes), dtype=np.int32)
    given = np.where(state.directory_sizes >= 0, rows, np.int32(-1))
    numbers, starts = state.directories, starts_of(state.directory_sizes)
    slots = np.empty((count, 7), np.int32)
    slots[:, c.A_PARTITION] = np.repeat(rows, sizes)
    slots[:, c.A_INDEX] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    slots[:, c.A_BROKER] = state.int_values[:count]
    slots[:, c.A_DIRECTORY], _ = fill_absent(numbers, starts, state.directory_sizes, given, sizes, absent_directory)
    slots[:, c.A_FROM] = state.slot_since
    slots[:, c.A_TO] = c.OPEN
    slots[:, c.A_ENDED] = c.OPEN
    return slots


@njit(cache=True, nogil=True)
def _order_slots(slots: Any, still: Any, part_of: Any, parts: int) -> Any:
    """The slots that are ``still`` open, ordered by their new partition number and index."""
    sizes = np.zeros(parts, np.int32)
    for s in still:
        sizes[part_of[slots[s, c.A_PARTITION]]] += 1
    at = np.zeros(parts + 1, np.int64)
    for p in range(parts):
        at[p + 1] = at[p] + sizes[p]
    order = np.empty(at[parts], np.int64)
    for s in still:
        order[at[part_of[slots[s, c.A_PARTITION]]] + slots[s, c.A_INDEX]] = s
    return order


def open_state(done: Step, held: np.ndarray) -> ShardState:
    """The open rows after the step, in the step's numbers of topics, directories and moments."""
    _, rows = done.version_rows
    version = columns_of(done.versions, rows)
    parts = version[c.V_PARTITION]
    new_part = np.full(len(done.parts), -1, np.int64)
    new_part[parts] = np.arange(len(rows))
    order = _order_slots(done.slots, done.slot_rows[1], new_part, len(rows))
    given = version[c.V_LISTS + DIRECTORIES]
    lists = done.lists
    directories, directory_ends = take_lists(lists.directories, lists.directory_starts, lists.directory_sizes, given)
    new_slot = np.empty(len(done.slots), np.int64)
    new_slot[order] = np.arange(len(order))
    held[:, H_SLOT] = new_slot[held[:, H_SLOT]]
    int_lists = [done.int_lists(at, version[c.V_LISTS + at]) for at in range(INT_LISTS)]
    return ShardState(
        topics=done.topics,
        names=np.frombuffer(b"".join(done.topic_names), np.uint8),
        name_ends=np.cumsum([0, *map(len, done.topic_names)], dtype=np.int32),
        directory_ids=done.directory_ids,
        part_topic=done.parts[parts, c.P_TOPIC],
        part_number=done.parts[parts, c.P_NUMBER],
        scalars=np.stack(version[c.V_SCALARS :], axis=1),
        since=version[c.V_FROM],
        int_values=np.concatenate([values for values, _ in int_lists]),
        int_sizes=np.stack([np.diff(ends) for _, ends in int_lists]),
        directories=directories,
        directory_sizes=np.where(given < 0, np.int32(-1), np.diff(directory_ends)),
        slot_since=done.slots[order, c.A_FROM],
        when_offsets=done.moments.offsets,
        when_times=done.moments.times,
        when_snapshot=done.moments.snapshot,
        held=held[np.argsort(held[:, H_SLOT])],
    )


def untouched(rest: ShardState, done: Step) -> Step:
    """The partitions that a step left out, as a step in which nothing happened, in the numbers of ``done``."""
    parts = np.empty((len(rest.part_topic), c.PARTITION_COLUMNS), np.int32)
    parts[:, c.P_TOPIC], parts[:, c.P_NUMBER] = rest.part_topic, rest.part_number
    versions = np.empty((len(parts), c.VERSION_COLUMNS), np.int32)
    open_versions(rest, versions)
    slots = open_slots(rest, np.maximum(rest.int_sizes[REPLICAS], 0), done.absent_directory)
    none = np.empty(0, np.intp)
    return replace(
        done,
        state=rest,
        parts=parts,
        versions=versions,
        version_rows=(none, np.arange(len(versions))),
        slots=slots,
        slot_rows=(none, np.arange(len(slots))),
        intervals=np.concatenate([rest.held, np.full((len(rest.held), 2), c.OPEN, np.int64)], axis=1),
        moments=Moments(rest.when_offsets, rest.when_times, rest.when_snapshot),
        lists=Lists(
            rest.int_values,
            starts_of(rest.int_sizes),
            rest.int_sizes,
            rest.directories,
            starts_of(rest.directory_sizes),
            rest.directory_sizes,
        ),
        old=len(versions),
        old_slots=len(slots),
    )
