"""Which replica was offline from when to when, and why (docs/spec/replay.md).

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
    A_TO,
    DIR_LOST,
    DIR_MIGRATING,
    DIR_UNASSIGNED,
    OPEN,
)
from pipelines.replay.kernel_tables import wider

REASONS = ("broker missing", "broker fenced", "directory offline", "directory lost")
ONLINE, MISSING, FENCED, DIRECTORY_OFFLINE, DIRECTORY_LOST = range(5)
# Columns of an offline interval (int64): the assignment's row, then what the interval says.
O_SLOT, O_REASON, O_FROM, O_FROM_TIME, O_FROM_SNAPSHOT, O_TO, O_TO_TIME = range(7)
# An offline interval that is open (int64 columns): the assignment's row, then what is known of it.
H_SLOT, H_REASON, H_FROM, H_FROM_TIME, H_FROM_SNAPSHOT = range(5)
BROKER_MISSING, BROKER_FENCED, BROKER_ACTIVE = range(3)
_MOST_QUICK = 1 << 12


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
    if state == BROKER_MISSING:  # R-OFF-1: in this order; R-OFF-2
        return MISSING
    if state == BROKER_FENCED:  # R-OFF-3
        return FENCED
    if not literal and directory in (DIR_UNASSIGNED, DIR_MIGRATING):  # R-OFF-4
        return ONLINE
    if literal:
        for k in range(start, end):
            if directories[k] == directory:
                return ONLINE
        if directory == DIR_LOST:
            return DIRECTORY_LOST
        return DIRECTORY_OFFLINE if end - start > 1 else ONLINE
    if directory == DIR_LOST:  # R-OFF-5
        return DIRECTORY_LOST
    if end == start:  # R-OFF-6
        return ONLINE
    for k in range(start, end):
        if directories[k] == directory:
            return ONLINE
    return DIRECTORY_OFFLINE  # R-OFF-7


@njit(cache=True, nogil=True)
def offline_intervals(
    slots: Any,
    old_slots: int,
    held: Any,
    moments: Any,
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
    """Offline intervals of all assignments: (intervals, how many, those still open int64[*, 5], how many).

    The first ``old_slots`` assignments were there before the batch, the others begin in it. ``held`` int64[*, 5]: the
    intervals that were open before, by slot; ``moments`` = (offsets, times, from a snapshot).
    """
    moment_offsets, moment_times, moment_snapshot = moments
    # Where each broker is, for ids that are as small as ids are.
    quick = np.zeros(_MOST_QUICK, np.int64)
    for b in range(len(brokers)):
        if 0 <= brokers[b] < len(quick):
            quick[brokers[b]] = b
    intervals = np.empty((64, 7), np.int64)
    count = 0
    after = np.empty((max(len(held), 64), 5), np.int64)
    still = 0
    h = 0
    for s in range(len(slots)):
        broker = np.int64(slots[s, A_BROKER])
        near = 0 <= broker < len(quick)
        b = np.int64(quick[broker]) if near else np.int64(np.searchsorted(brokers, broker))
        first, last = np.int64(0), np.int64(0)
        if b < len(brokers) and brokers[b] == broker:
            first, last = np.int64(step_ends[b]), np.int64(step_ends[b + 1])
        reason = np.int64(ONLINE)
        start, start_time, start_snapshot = np.int64(0), np.int64(0), np.int64(0)
        end, end_time = np.int64(OPEN), np.int64(OPEN)
        if slots[s, A_TO] != OPEN:
            end, end_time = moment_offsets[slots[s, A_TO]], moment_times[slots[s, A_TO]]
        if s < old_slots:
            if h < len(held) and held[h, H_SLOT] == s:
                reason = held[h, H_REASON]
                start, start_time, start_snapshot = held[h, H_FROM], held[h, H_FROM_TIME], held[h, H_FROM_SNAPSHOT]
                h += 1
            step = first + 1
        else:
            # The step that is true where the assignment begins.
            begin = moment_offsets[slots[s, A_FROM]]
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
            start, start_time = begin, moment_times[slots[s, A_FROM]]
            start_snapshot = np.int64(moment_snapshot[slots[s, A_FROM]])
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
            after = wider(after, still + 1)
            after[still, H_SLOT] = s
            after[still, H_REASON] = reason
            after[still, H_FROM] = start
            after[still, H_FROM_TIME] = start_time
            after[still, H_FROM_SNAPSHOT] = start_snapshot
            still += 1
        intervals = wider(intervals, count + 1)
        intervals[count, O_SLOT] = s
        intervals[count, O_REASON] = reason
        intervals[count, O_FROM] = start
        intervals[count, O_FROM_TIME] = start_time
        intervals[count, O_FROM_SNAPSHOT] = start_snapshot
        intervals[count, O_TO] = end
        intervals[count, O_TO_TIME] = end_time
        count += 1
    return intervals, count, after, still
