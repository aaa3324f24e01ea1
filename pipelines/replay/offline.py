"""Which replica was offline from when to when, and why (R-OFF-*).

Replaying partitions never reads registrations, nor the other way round; only this joins them: an assignment's
interval against the timeline of its broker. Source: KRaftMetadataCache#getOfflineReplicas, DirectoryId#isOnline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from pipelines.replay.fold import (
    A_BROKER,
    A_DIRECTORY,
    A_FROM,
    A_FROM_SNAPSHOT,
    A_FROM_TIME,
    A_TO,
    A_TO_TIME,
    DIR_LOST,
    DIR_MIGRATING,
    DIR_UNASSIGNED,
    OPEN,
)
from pipelines.replay.grow import wider

REASONS = ("broker missing", "broker fenced", "directory offline", "directory lost")
ONLINE, MISSING, FENCED, DIRECTORY_OFFLINE, DIRECTORY_LOST = range(5)
# Columns of an offline interval (int64): the assignment's row, then what the interval says.
O_SLOT, O_REASON, O_FROM, O_FROM_TIME, O_FROM_SNAPSHOT, O_TO, O_TO_TIME = range(7)
# The offline interval that is open for an assignment (int64 columns), REASON 0 where it is online.
H_REASON, H_FROM, H_FROM_TIME, H_FROM_SNAPSHOT = range(4)
BROKER_MISSING, BROKER_FENCED, BROKER_ACTIVE = range(3)


@dataclass(frozen=True)
class Timeline:
    """The registrations of every broker over a batch, as steps in log order.

    ``brokers`` int32[b] ascending; broker i has the steps ``step_ends[i]:step_ends[i + 1]``. Of each step: ``offsets``
    and ``times`` int64 it begins at, ``states`` int8 (BROKER_*), ``snapshot`` bool, and its directory numbers
    ``directories[dir_ends[s]:dir_ends[s + 1]]``. The first step of each broker is its state before the batch.
    """

    brokers: np.ndarray
    step_ends: np.ndarray
    offsets: np.ndarray
    times: np.ndarray
    states: np.ndarray
    snapshot: np.ndarray
    directories: np.ndarray
    dir_ends: np.ndarray


@njit(inline="always")
def _reason(state: int, directory: int, directories: Any, start: int, end: int, literal: bool) -> int:
    """Why a replica is offline, ONLINE if it is not. ``literal``: by the KIP's text (R-OFF-8), else as Kafka does."""
    if state == BROKER_MISSING:
        return MISSING
    if state == BROKER_FENCED:
        return FENCED
    if not literal and directory in (DIR_UNASSIGNED, DIR_MIGRATING):
        return ONLINE
    if literal:
        for k in range(start, end):
            if directories[k] == directory:
                return ONLINE
        if directory == DIR_LOST:
            return DIRECTORY_LOST
        return DIRECTORY_OFFLINE if end - start > 1 else ONLINE
    if directory == DIR_LOST:
        return DIRECTORY_LOST
    if end == start:
        return ONLINE
    for k in range(start, end):
        if directories[k] == directory:
            return ONLINE
    return DIRECTORY_OFFLINE


@njit(cache=True, nogil=True)
def offline_intervals(
    slots: Any,
    slot_count: int,
    held: Any,
    brokers: Any,
    step_ends: Any,
    offsets: Any,
    times: Any,
    states: Any,
    from_snapshot: Any,
    directories: Any,
    dir_ends: Any,
    literal: bool,
) -> Any:
    """Offline intervals of all assignments: (intervals, how many, what is still open int64[slot_count, 4]).

    ``held`` int64[n, 4] is what was open before, for the first n assignments, which were there before the batch;
    the others begin in it.
    """
    intervals = np.empty((64, 7), np.int64)
    count = 0
    after = np.zeros((slot_count, 4), np.int64)
    for s in range(slot_count):
        old = s < len(held)
        broker = slots[s, A_BROKER]
        b = np.int64(np.searchsorted(brokers, broker))
        first, last = np.int64(0), np.int64(0)
        if b < len(brokers) and brokers[b] == broker:
            first, last = np.int64(step_ends[b]), np.int64(step_ends[b + 1])
        reason = np.int64(ONLINE)
        start, start_time, start_snapshot = np.int64(0), np.int64(0), np.int64(0)
        end = slots[s, A_TO]
        if old:
            reason = held[s, H_REASON]
            start, start_time, start_snapshot = held[s, H_FROM], held[s, H_FROM_TIME], held[s, H_FROM_SNAPSHOT]
            step = first + 1
        else:
            # The step that is true where the assignment begins.
            begin = slots[s, A_FROM]
            step = first
            while step + 1 < last and offsets[step + 1] <= begin:
                step += 1
            reason = np.int64(MISSING)
            if step < last:
                reason = np.int64(
                    _reason(
                        states[step], slots[s, A_DIRECTORY], directories, dir_ends[step], dir_ends[step + 1], literal
                    )
                )
            start, start_time, start_snapshot = begin, slots[s, A_FROM_TIME], slots[s, A_FROM_SNAPSHOT]
            step += 1
        while step < last and (end == OPEN or offsets[step] < end):
            # Records of one snapshot share an offset: only the last of them counts.
            if step + 1 < last and offsets[step + 1] == offsets[step]:
                step += 1
                continue
            now = np.int64(
                _reason(states[step], slots[s, A_DIRECTORY], directories, dir_ends[step], dir_ends[step + 1], literal)
            )
            if now != reason:
                if reason != ONLINE:
                    intervals = wider(intervals, count + 1)
                    intervals[count, O_SLOT] = s
                    intervals[count, O_REASON] = reason
                    intervals[count, O_FROM] = start
                    intervals[count, O_FROM_TIME] = start_time
                    intervals[count, O_FROM_SNAPSHOT] = start_snapshot
                    intervals[count, O_TO] = offsets[step]
                    intervals[count, O_TO_TIME] = times[step]
                    count += 1
                reason = now
                start, start_time, start_snapshot = offsets[step], times[step], np.int64(from_snapshot[step])
            step += 1
        if reason == ONLINE:
            continue
        if end == OPEN:
            after[s, H_REASON] = reason
            after[s, H_FROM] = start
            after[s, H_FROM_TIME] = start_time
            after[s, H_FROM_SNAPSHOT] = start_snapshot
        intervals = wider(intervals, count + 1)
        intervals[count, O_SLOT] = s
        intervals[count, O_REASON] = reason
        intervals[count, O_FROM] = start
        intervals[count, O_FROM_TIME] = start_time
        intervals[count, O_FROM_SNAPSHOT] = start_snapshot
        intervals[count, O_TO] = end
        intervals[count, O_TO_TIME] = slots[s, A_TO_TIME]
        count += 1
    return intervals, count, after
