"""Which replica was offline, from when to when, and why (docs/spec/replay.md).

The replay of partitions does not read registrations, nor does that of brokers read partitions. Only this module joins
them: the interval of an assignment with the timeline of its broker. Source: KRaftMetadataCache#getOfflineReplicas,
DirectoryId#isOnline.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipelines.fold.tables import (
    A_BROKER,
    A_DIRECTORY,
    A_FROM,
    A_TO,
    DIR_LOST,
    DIR_MIGRATING,
    DIR_UNASSIGNED,
    OPEN,
    wider,
)
from pipelines.formats.kernels import helper, njit

REASONS = ("broker missing", "broker fenced", "directory offline", "directory lost")
ONLINE, MISSING, FENCED, DIRECTORY_OFFLINE, DIRECTORY_LOST = range(5)
# Columns of an offline interval (int64): the assignment's row, then those of the interval.
O_SLOT, O_REASON, O_FROM, O_FROM_TIME, O_FROM_SNAPSHOT, O_TO, O_TO_TIME = range(7)
# Columns of an open offline interval (int64): the assignment's row, then those of the interval.
H_SLOT, H_REASON, H_FROM, H_FROM_TIME, H_FROM_SNAPSHOT = range(5)
BROKER_MISSING, BROKER_FENCED, BROKER_ACTIVE = range(3)
_MOST_QUICK = 1 << 12


class Timeline(NamedTuple):
    """The registrations of every broker over a batch, as steps in log order.

    ``brokers`` int32[b] ascending; broker i has the steps ``step_ends[i]:step_ends[i + 1]``. Each step has: ``offsets``
    and ``times`` int64 of its beginning, ``states`` int8 (BROKER_*), ``snapshot`` bool, ``batches`` int64 (base offset
    of its batch), and its directory numbers ``directories[directory_ends[s]:directory_ends[s + 1]]``. The first step of
    each broker is its state before the batch.
    """

    brokers: Any
    step_ends: Any
    offsets: Any
    times: Any
    states: Any
    snapshot: Any
    batches: Any
    directories: Any
    directory_ends: Any


class Since(NamedTuple):
    """Why a replica is offline, or ONLINE, and since when: offset, time, whether known from a snapshot (0, 1)."""

    reason: int
    offset: int
    time: int
    snapshot: int


@helper
def _reason(line: Timeline, step: int, directory: int, literal_offline: bool) -> int:
    """Why a replica is offline, or ONLINE. ``literal_offline``: the rule of the KIP's texts, otherwise Kafka's."""
    state, start, end = line.states[step], line.directory_ends[step], line.directory_ends[step + 1]
    if state == BROKER_MISSING:  # R-OFF-1: in this order; R-OFF-2
        return MISSING
    if state == BROKER_FENCED:  # R-OFF-3
        return FENCED
    if not literal_offline and directory in (DIR_UNASSIGNED, DIR_MIGRATING):  # R-OFF-4
        return ONLINE
    if literal_offline:
        for k in range(start, end):
            if line.directories[k] == directory:
                return ONLINE
        if directory == DIR_LOST:
            return DIRECTORY_LOST
        return DIRECTORY_OFFLINE if end - start > 1 else ONLINE  # R-OFF-8
    if directory == DIR_LOST:  # R-OFF-5
        return DIRECTORY_LOST
    if end == start:  # R-OFF-6
        return ONLINE
    for k in range(start, end):
        if line.directories[k] == directory:
            return ONLINE
    return DIRECTORY_OFFLINE  # R-OFF-7


@helper
def _steps_of(line: Timeline, quick: Any, broker: int) -> Any:
    """The first step of a broker and the one after its last, the same number if it has none."""
    near = 0 <= broker < len(quick)
    b = np.int64(quick[broker]) if near else np.int64(np.searchsorted(line.brokers, broker))
    if b < len(line.brokers) and line.brokers[b] == broker:
        return np.int64(line.step_ends[b]), np.int64(line.step_ends[b + 1])
    return np.int64(0), np.int64(0)


@helper
def _put(table: Any, row: int, slot: int, since: Since) -> None:
    """Writes the columns that both tables of intervals share: O_SLOT to O_FROM_SNAPSHOT, H_SLOT to the last."""
    table[row, O_SLOT] = slot
    table[row, O_REASON] = since.reason
    table[row, O_FROM] = since.offset
    table[row, O_FROM_TIME] = since.time
    table[row, O_FROM_SNAPSHOT] = since.snapshot


@helper
def _beginning(line: Timeline, first: int, last: int, slots: Any, s: int, moments: Any, literal_offline: bool) -> Any:
    """(The step after the one that is current when an assignment begins, the replica's state there)."""
    moment = slots[s, A_FROM]
    begin = moments.offsets[moment]
    step = first
    while step + 1 < last and line.offsets[step + 1] <= begin:
        step += 1
    reason = np.int64(MISSING)
    if step < last:
        reason = np.int64(_reason(line, step, slots[s, A_DIRECTORY], literal_offline))
    return step + 1, Since(reason, begin, moments.times[moment], np.int64(moments.snapshot[moment]))


@helper
def _follow(
    line: Timeline,
    step: int,
    last: int,
    slots: Any,
    s: int,
    end: int,
    since: Since,
    literal_offline: bool,
    intervals: Any,
    count: int,
) -> Any:
    """Writes the intervals that end before the assignment does: (number of intervals so far, the last state)."""
    while step < last and (end == OPEN or line.offsets[step] < end):
        # The records of one snapshot share an offset: only the last of them counts.
        if step + 1 < last and line.offsets[step + 1] == line.offsets[step]:
            step += 1
            continue
        reason = np.int64(_reason(line, step, slots[s, A_DIRECTORY], literal_offline))
        if reason != since.reason:
            if since.reason != ONLINE:
                _put(intervals, count, s, since)
                intervals[count, O_TO] = line.offsets[step]
                intervals[count, O_TO_TIME] = line.times[step]
                count += 1
            since = Since(reason, line.offsets[step], line.times[step], np.int64(line.snapshot[step]))
        step += 1
    return count, since


@njit(cache=True, nogil=True)
def offline_intervals(
    slots: Any, old_slots: int, held: Any, moments: Any, line: Timeline, literal_offline: bool
) -> Any:
    """Offline intervals of all assignments: (intervals, how many, those still open int64[*, 5], how many).

    The first ``old_slots`` assignments were there before the batch, the others begin in it. ``held`` int64[*, 5]: the
    intervals that were open before, by slot; ``moments`` are those that FROM and TO of ``slots`` name.
    """
    # The index of each broker by its id, for ids in the usual small range.
    quick = np.zeros(_MOST_QUICK, np.int64)
    for b in range(len(line.brokers)):
        if 0 <= line.brokers[b] < len(quick):
            quick[line.brokers[b]] = b
    intervals = np.empty((64, 7), np.int64)
    after = np.empty((max(len(held), 64), 5), np.int64)
    count, still, h = 0, 0, 0
    for s in range(len(slots)):
        first, last = _steps_of(line, quick, np.int64(slots[s, A_BROKER]))
        end, end_time = np.int64(OPEN), np.int64(OPEN)
        if slots[s, A_TO] != OPEN:
            end, end_time = moments.offsets[slots[s, A_TO]], moments.times[slots[s, A_TO]]
        if s >= old_slots:
            step, since = _beginning(line, first, last, slots, s, moments, literal_offline)
        else:
            step, since = first + 1, Since(np.int64(ONLINE), np.int64(0), np.int64(0), np.int64(0))
            if h < len(held) and held[h, H_SLOT] == s:
                since = Since(held[h, H_REASON], held[h, H_FROM], held[h, H_FROM_TIME], held[h, H_FROM_SNAPSHOT])
                h += 1
        # At most one interval ends at each step, and one at the end of the assignment. A call for each assignment would
        # count references to the table.
        if count + max(last - step, 0) + 1 > len(intervals):
            intervals = wider(intervals, count + max(last - step, 0) + 1)
        count, since = _follow(line, step, last, slots, s, end, since, literal_offline, intervals, count)
        if since.reason == ONLINE:
            continue
        if end == OPEN:
            if still == len(after):
                after = wider(after, still + 1)
            _put(after, still, s, since)
            still += 1
        _put(intervals, count, s, since)
        intervals[count, O_TO] = end
        intervals[count, O_TO_TIME] = end_time
        count += 1
    return intervals, count, after, still
