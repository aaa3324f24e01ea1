"""What happened in a shard during a batch, as rows of ``changes`` (docs/spec/changes.md), from what the fold produced.

``_changes`` compares each version of a partition with the one before it, in columns. Offline replicas come from the
intervals that began or ended during the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.fold import changes as t
from pipelines.fold import offline as o
from pipelines.fold import tables as c
from pipelines.fold.partitions import place_of, same_list, size_of, why_moved
from pipelines.fold.shard import Step
from pipelines.fold.state import Moments
from pipelines.fold.tables import Lists, wider
from pipelines.formats import arrow_arrays as arrow
from pipelines.formats.kernels import columns_of, helper, njit, take_lists
from pipelines.formats.partitions import DIRECTORIES, ISR, LEADER, REPLICAS
from pipelines.lake import tables

# Kinds of changes, as numbered in WHATS.
ASSIGNMENT, OFFLINE, LEADS, IN_SYNC = range(4)
# Columns of a change (int32). BEFORE and AFTER are a directory's number, a broker's id or the number of a list.
C_PART, C_BROKER, C_MOMENT, C_WHAT, C_BEFORE, C_AFTER, C_WHY = range(7)


def number_texts(table: np.ndarray, what: int, first: int, named: Callable[[np.ndarray], pa.Array]) -> pa.Array:
    """Replaces the leaders or the in-sync sets in changes by numbers from ``first`` on, and nulls by -1. Returns the
    distinct ones. ``named``: the leaders or sets that some values before and after changes name.
    """
    rows = np.flatnonzero(table[:, C_WHAT] == what)
    numbered = named(table[rows, C_BEFORE : C_AFTER + 1].reshape(-1)).dictionary_encode()
    numbers = numbered.indices.fill_null(-1 - first).to_numpy() + np.int32(first)
    table[rows, C_BEFORE : C_AFTER + 1] = numbers.reshape(-1, 2)
    return numbered.dictionary


def in_sync_sets(lists: Lists, references: np.ndarray) -> pa.Array:
    """The in-sync sets as bytes, int32 each. A reference of -1 and below -2 is null, EMPTY is an empty set."""
    values, ends = take_lists(lists.values, lists.starts[ISR], lists.sizes[ISR], references)
    return arrow.pieces(values, ends, (references >= c.EMPTY) & (references != c.ABSENT))


WHATS = ("assignment", "offline", "leader", "isr")
WHYS = (*c.ENDED_BY, "created")
CREATED = len(c.ENDED_BY)
_NONE = -1


@helper
def _directory_at(lists: Lists, reference: Any, k: Any, default: Any) -> Any:
    return np.int64(lists.directories[lists.directory_starts[reference] + k]) if reference >= 0 else np.int64(default)


@helper
def _put(out: Any, at: Any, part: Any, broker: Any, moment: Any, what: Any, before: Any, after: Any, why: Any) -> None:
    out[at, t.C_PART] = part
    out[at, t.C_BROKER] = broker
    out[at, t.C_MOMENT] = moment
    out[at, t.C_WHAT] = what
    out[at, t.C_BEFORE] = before
    out[at, t.C_AFTER] = after
    out[at, t.C_WHY] = why


@helper
def _compare(
    lists: Lists, versions: Any, old: Any, new: Any, moment: Any, all_why: Any, default: Any, out: Any, at: Any
) -> Any:
    """Writes what differs between two versions of a partition, or between one and none (-1). Returns the next row."""
    part = versions[max(old, new), c.V_PARTITION]
    r_old = np.int64(versions[old, c.V_LISTS + REPLICAS]) if old >= 0 else np.int64(_NONE)
    r_new = np.int64(versions[new, c.V_LISTS + REPLICAS]) if new >= 0 else np.int64(_NONE)
    d_old = np.int64(versions[old, c.V_LISTS + DIRECTORIES]) if old >= 0 else np.int64(_NONE)
    d_new = np.int64(versions[new, c.V_LISTS + DIRECTORIES]) if new >= 0 else np.int64(_NONE)
    # R-EVENT-2
    if old < 0 or new < 0 or r_old != r_new or d_old != d_new:
        n_old, n_new = size_of(lists, REPLICAS, r_old), size_of(lists, REPLICAS, r_new)
        for k in range(n_old):
            broker = lists.values[lists.starts[REPLICAS, r_old] + k]
            if place_of(lists, REPLICAS, r_new, broker) < 0:
                why = c.REASSIGNED if all_why < 0 else all_why
                _put(out, at, part, broker, moment, t.ASSIGNMENT, _directory_at(lists, d_old, k, default), _NONE, why)
                at += 1
        for k in range(n_new):
            broker = lists.values[lists.starts[REPLICAS, r_new] + k]
            after = _directory_at(lists, d_new, k, default)
            there = place_of(lists, REPLICAS, r_old, broker)
            if there < 0:
                why = c.REASSIGNED if all_why < 0 else all_why
                _put(out, at, part, broker, moment, t.ASSIGNMENT, _NONE, after, why)
                at += 1
            else:
                before = _directory_at(lists, d_old, there, default)
                if before != after:
                    why = why_moved(before, after) if all_why < 0 else all_why
                    _put(out, at, part, broker, moment, t.ASSIGNMENT, before, after, why)
                    at += 1
    # R-EVENT-4
    l_old = max(versions[old, c.V_SCALARS + LEADER], _NONE) if old >= 0 else _NONE
    l_new = max(versions[new, c.V_SCALARS + LEADER], _NONE) if new >= 0 else _NONE
    if l_old != l_new:
        _put(out, at, part, _NONE, moment, t.LEADS, l_old, l_new, all_why)
        at += 1
    i_old = np.int64(versions[old, c.V_LISTS + ISR]) if old >= 0 else np.int64(_NONE)
    i_new = np.int64(versions[new, c.V_LISTS + ISR]) if new >= 0 else np.int64(_NONE)
    same = old >= 0 and new >= 0 and same_list(lists.values, lists.starts[ISR], lists.sizes[ISR], i_old, i_new)
    if not same:
        # EMPTY becomes a separate number: a list that exists and has no elements.
        _put(out, at, part, _NONE, moment, t.IN_SYNC, i_old if old >= 0 else -9, i_new if new >= 0 else -9, all_why)
        at += 1
    return at


@njit(cache=True, nogil=True)
def _changes(lists: Lists, versions: Any, parts: Any, old: Any, moments: Any, default: Any) -> Any:
    """(Changes of all partitions int32[*, 7] in the order of the versions, removals last; how many)."""
    latest = np.full(parts, -1, np.int32)
    # Most versions change less. Memory that is not written is not used.
    out = np.empty((4 * (len(versions) - old) + 256, 7), np.int32)
    at = np.int64(0)
    for v in range(len(versions)):
        part = versions[v, c.V_PARTITION]
        begin, end = versions[v, c.V_FROM], versions[v, c.V_TO]
        if end != c.OPEN and moments.offsets[begin] == moments.offsets[end]:
            continue  # true at no offset: a snapshot has a partition twice
        before = np.int64(latest[part])
        latest[part] = v
        if v < old:
            continue
        room = size_of(lists, REPLICAS, versions[v, c.V_LISTS + REPLICAS]) + 2
        if before >= 0:
            room += size_of(lists, REPLICAS, versions[before, c.V_LISTS + REPLICAS]) + 2
        # A call for each version would count references to both tables.
        if at + room > len(out):
            out = wider(out, at + room)
        if before >= 0:
            gone = versions[before, c.V_TO]
            if moments.offsets[gone] != moments.offsets[begin]:
                why = c.RESYNC if moments.snapshot[gone] else c.REMOVED
                at = _compare(lists, versions, before, -1, gone, why, default, out, at)
                before = np.int64(-1)
        why = c.RESYNC if moments.snapshot[begin] else (CREATED if before < 0 else _NONE)
        at = _compare(lists, versions, before, v, begin, why, default, out, at)
    for part in range(parts):
        last = np.int64(latest[part])
        if last >= 0 and versions[last, c.V_TO] != c.OPEN:
            gone = versions[last, c.V_TO]
            out = wider(out, at + size_of(lists, REPLICAS, versions[last, c.V_LISTS + REPLICAS]) + 2)
            why = c.RESYNC if moments.snapshot[gone] else c.REMOVED
            at = _compare(lists, versions, last, -1, gone, why, default, out, at)
    return out, at


def change_rows(step: Step, topic_ids: pa.Array, names: pa.Array, directories: pa.Array, generation: int) -> pa.Table:
    """Rows of ``changes`` for a step, in log order."""
    table, texts = _of_versions(step, directories)
    spans, span_directories, moments, batches = _of_intervals(step, len(directories))
    joined = np.concatenate([table, spans])
    order = np.argsort(moments.offsets[joined[:, C_MOMENT]], kind="stable")
    part, broker, moment, what, before, after, why = columns_of(joined, order)
    offsets, times, snapshot = moments.at(moment)
    topics = arrow.column(step.parts[part, c.P_TOPIC])
    directory = np.concatenate([np.full(len(table), _NONE, np.int32), span_directories])[order]
    n = len(order)
    return pa.table(
        [
            arrow.column(offsets),
            arrow.column(batches[moment]),
            arrow.column(times).view(tables.TIME),
            pa.DictionaryArray.from_arrays(arrow.column(what.astype(np.int8)), arrow.texts(WHATS)),
            pa.DictionaryArray.from_arrays(topics, topic_ids),
            pa.DictionaryArray.from_arrays(topics, names),
            arrow.column(step.parts[part, c.P_NUMBER]),
            arrow.nullable(broker),
            pa.DictionaryArray.from_arrays(arrow.nullable(directory), directories)
            if directory.max(initial=_NONE) >= 0
            else pa.nulls(n, pa.string()),
            pa.DictionaryArray.from_arrays(arrow.nullable(before), texts),
            pa.DictionaryArray.from_arrays(arrow.nullable(after), texts),
            pa.DictionaryArray.from_arrays(arrow.nullable(why.astype(np.int8)), arrow.texts(WHYS)),
            arrow.column(snapshot),
            arrow.column(np.zeros(n, np.bool_)),
            arrow.column(np.full(n, generation, np.int32)),
        ],
        names=tables.CHANGES.schema.names,
    )


def _of_versions(step: Step, directories: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Assignments, leaders and in-sync sets; and the texts: directories, reasons, leaders, in-sync sets."""
    lists = step.lists
    table, count = _changes(lists, step.versions, len(step.parts), step.old, step.moments, step.absent_directory)
    table = table[:count]
    leaders = len(directories) + len(o.REASONS)
    led = t.number_texts(table, t.LEADS, leaders, arrow.nullable)
    sets = t.number_texts(table, t.IN_SYNC, leaders + len(led), partial(t.in_sync_sets, lists))
    # They are few.
    listed = [f"[{','.join(map(str, np.frombuffer(each, np.int32).tolist()))}]" for each in sets.to_pylist()]
    return table, pa.concat_arrays([directories, arrow.texts(o.REASONS), led.cast(pa.string()), arrow.texts(listed)])


def _of_intervals(step: Step, reasons: int) -> tuple[np.ndarray, np.ndarray, Moments, np.ndarray]:
    """Replicas that went offline, came back or have another reason (R-EVENT-3): the changes int32[n, 7], the directory
    of each, and the moments of the step and of these changes, with the base offset of the batch of each."""
    spans = step.intervals
    spans = spans[spans[:, o.O_TO] != spans[:, o.O_FROM]]
    began = spans[spans[:, o.O_FROM] >= step.first_offset]
    ended = spans[spans[:, o.O_TO] != c.OPEN]
    both = np.concatenate([ended, began])
    is_begin = np.arange(len(both)) >= len(ended)
    slot = step.slots[both[:, o.O_SLOT]]
    offsets = np.where(is_begin, both[:, o.O_FROM], both[:, o.O_TO])
    part, broker = slot[:, c.A_PARTITION], slot[:, c.A_BROKER]
    replica = (part.astype(np.int64) << 32) + (broker.astype(np.int64) << 1) + is_begin
    order = np.lexsort((replica, offsets))
    both, is_begin, offsets, part, broker = both[order], is_begin[order], offsets[order], part[order], broker[order]
    directory = slot[order, c.A_DIRECTORY]
    reason = (both[:, o.O_REASON] - 1 + reasons).astype(np.int32)
    times = np.where(is_begin, both[:, o.O_FROM_TIME], both[:, o.O_TO_TIME])
    # An end and a beginning of the same replica at the same offset are one change.
    paired = np.zeros(len(both), np.bool_)
    paired[1:] = (
        ~is_begin[:-1] & is_begin[1:] & (offsets[:-1] == offsets[1:]) & (part[:-1] == part[1:])
        & (broker[:-1] == broker[1:])
    )  # fmt: skip
    before = np.where(is_begin, np.int32(_NONE), reason)
    before[1:] = np.where(paired[1:], reason[:-1], before[1:])
    after = np.where(is_begin, reason, np.int32(_NONE))
    last = np.append(~paired[1:], True)
    kept = np.flatnonzero(last & (before != after))
    offsets = offsets[kept]
    batches, snapshot = step.batches_at(offsets)
    known = step.moments
    columns = (
        part[kept],
        broker[kept],
        np.arange(len(kept)) + len(known.offsets),
        np.full(len(kept), t.OFFLINE),
        before[kept],
        after[kept],
        np.where(snapshot, c.RESYNC, _NONE),
    )
    moments = Moments(
        np.concatenate([known.offsets, offsets]),
        np.concatenate([known.times, times[kept]]),
        np.concatenate([known.snapshot, snapshot]),
    )
    spans = np.stack(columns, axis=1).astype(np.int32)
    return spans, directory[kept].astype(np.int32), moments, np.concatenate([step.batches, batches])
