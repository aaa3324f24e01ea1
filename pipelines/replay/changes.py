"""What happened in a shard during a batch, as rows of ``changes`` (docs/spec/changes.md), from what the fold produced.

``_changes`` compares each version of a partition with the one before it, in columns. Offline replicas come from the
intervals that began or ended during the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.formats.kernels import helper, njit
from pipelines.formats.lists import columns_of, mix
from pipelines.formats.partitions import DIRECTORIES, ISR, LEADER, REPLICAS
from pipelines.lake import tables
from pipelines.replay import fold_columns as c
from pipelines.replay import offline as o
from pipelines.replay.fold_columns import Lists
from pipelines.replay.kernel_tables import wider
from pipelines.replay.merge import same_list
from pipelines.replay.shard import Step

WHATS = ("assignment", "offline", "leader", "isr")
ASSIGNMENT, OFFLINE, LEADS, IN_SYNC = range(4)
WHYS = ("created", "removed", "reassigned", "assigned", "moved", "unassigned", "lost", "resync")
CREATED, REMOVED, REASSIGNED, ASSIGNED, MOVED, UNASSIGNED, LOST, RESYNC = range(8)
_NONE = -1
# Columns of a change (int32). BEFORE and AFTER are a directory's number, a broker's id or the number of a list.
_PART, _BROKER, _MOMENT, _WHAT, _BEFORE, _AFTER, _WHY = range(7)


@helper
def _directory_at(lists: Lists, reference: Any, k: Any, default: Any) -> Any:
    return np.int64(lists.directories[lists.directory_starts[reference] + k]) if reference >= 0 else np.int64(default)


@helper
def _size(lists: Lists, column: Any, reference: Any) -> Any:
    return np.int64(max(lists.sizes[column, reference], 0)) if reference >= 0 else np.int64(0)


@helper
def _place(lists: Lists, replicas: Any, count: Any, broker: Any) -> Any:
    """The place of a broker in a list of replicas, -1 if it is not there."""
    for k in range(count):
        if lists.values[lists.starts[REPLICAS, replicas] + k] == broker:
            return k
    return -1


@helper
def _why_moved(before: Any, after: Any) -> Any:
    if after == c.DIR_LOST:
        return LOST
    if after in (c.DIR_UNASSIGNED, c.DIR_MIGRATING):
        return UNASSIGNED
    return MOVED if before > c.DIR_LOST else ASSIGNED


@helper
def _put(out: Any, at: Any, part: Any, broker: Any, moment: Any, what: Any, before: Any, after: Any, why: Any) -> None:
    out[at, _PART] = part
    out[at, _BROKER] = broker
    out[at, _MOMENT] = moment
    out[at, _WHAT] = what
    out[at, _BEFORE] = before
    out[at, _AFTER] = after
    out[at, _WHY] = why


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
        n_old, n_new = _size(lists, REPLICAS, r_old), _size(lists, REPLICAS, r_new)
        for k in range(n_old):
            broker = lists.values[lists.starts[REPLICAS, r_old] + k]
            if _place(lists, r_new, n_new, broker) < 0:
                why = REASSIGNED if all_why < 0 else all_why
                _put(out, at, part, broker, moment, ASSIGNMENT, _directory_at(lists, d_old, k, default), _NONE, why)
                at += 1
        for k in range(n_new):
            broker = lists.values[lists.starts[REPLICAS, r_new] + k]
            after = _directory_at(lists, d_new, k, default)
            there = _place(lists, r_old, n_old, broker)
            if there < 0:
                why = REASSIGNED if all_why < 0 else all_why
                _put(out, at, part, broker, moment, ASSIGNMENT, _NONE, after, why)
                at += 1
            else:
                before = _directory_at(lists, d_old, there, default)
                if before != after:
                    why = _why_moved(before, after) if all_why < 0 else all_why
                    _put(out, at, part, broker, moment, ASSIGNMENT, before, after, why)
                    at += 1
    # R-EVENT-4
    l_old = max(versions[old, c.V_SCALARS + LEADER], _NONE) if old >= 0 else _NONE
    l_new = max(versions[new, c.V_SCALARS + LEADER], _NONE) if new >= 0 else _NONE
    if l_old != l_new:
        _put(out, at, part, _NONE, moment, LEADS, l_old, l_new, all_why)
        at += 1
    i_old = np.int64(versions[old, c.V_LISTS + ISR]) if old >= 0 else np.int64(_NONE)
    i_new = np.int64(versions[new, c.V_LISTS + ISR]) if new >= 0 else np.int64(_NONE)
    same = old >= 0 and new >= 0 and same_list(lists.values, lists.starts[ISR], lists.sizes[ISR], i_old, i_new)
    if not same:
        # EMPTY becomes a separate number: a list that exists and has no elements.
        _put(out, at, part, _NONE, moment, IN_SYNC, i_old if old >= 0 else -9, i_new if new >= 0 else -9, all_why)
        at += 1
    return at


@njit(cache=True, nogil=True)
def _changes(lists: Lists, versions: Any, parts: Any, old: Any, moments: Any, default: Any) -> Any:
    """(Changes of all partitions int32[*, 7] in the order of the versions, removals last; how many)."""
    latest = np.full(parts, -1, np.int32)
    out = np.empty((256, 7), np.int32)
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
        if before >= 0:
            gone = versions[before, c.V_TO]
            if moments.offsets[gone] != moments.offsets[begin]:
                out = wider(out, at + _size(lists, REPLICAS, versions[before, c.V_LISTS + REPLICAS]) + 2)
                why = RESYNC if moments.snapshot[gone] else REMOVED
                at = _compare(lists, versions, before, -1, gone, why, default, out, at)
                before = np.int64(-1)
        room = _size(lists, REPLICAS, versions[v, c.V_LISTS + REPLICAS]) + 2
        if before >= 0:
            room += _size(lists, REPLICAS, versions[before, c.V_LISTS + REPLICAS])
        out = wider(out, at + room)
        why = RESYNC if moments.snapshot[begin] else (CREATED if before < 0 else _NONE)
        at = _compare(lists, versions, before, v, begin, why, default, out, at)
    for part in range(parts):
        last = np.int64(latest[part])
        if last >= 0 and versions[last, c.V_TO] != c.OPEN:
            gone = versions[last, c.V_TO]
            out = wider(out, at + _size(lists, REPLICAS, versions[last, c.V_LISTS + REPLICAS]) + 2)
            why = RESYNC if moments.snapshot[gone] else REMOVED
            at = _compare(lists, versions, last, -1, gone, why, default, out, at)
    return out, at


@njit(cache=True, nogil=True)
def _number_lists(references: Any, values: Any, starts: Any, sizes: Any, out: Any) -> Any:
    """Numbers lists by their content in order of first appearance: returns a reference to each distinct one.

    A reference of -1 and below -2 is null (number -1), EMPTY is an empty list.
    """
    room = np.int64(64)
    table = np.full(room, -1, np.int32)
    distinct = np.empty(64, np.int32)
    count = 0
    for i in range(len(references)):
        reference = references[i]
        if reference < c.EMPTY or reference == _NONE:
            out[i] = -1
            continue
        at = _hash_of(values, starts, sizes, reference) & (room - 1)
        while table[at] >= 0 and not same_list(values, starts, sizes, np.int64(distinct[table[at]]), reference):
            at = (at + 1) & (room - 1)
        if table[at] < 0:
            if count == len(distinct):
                more = np.empty(2 * count, np.int32)
                more[:count] = distinct
                distinct = more
            distinct[count] = reference
            table[at] = count
            count += 1
            out[i] = count - 1
            if 2 * count > room:
                room *= 2
                table = np.full(room, -1, np.int32)
                for k in range(count):
                    spot = _hash_of(values, starts, sizes, np.int64(distinct[k])) & (room - 1)
                    while table[spot] >= 0:
                        spot = (spot + 1) & (room - 1)
                    table[spot] = k
            continue
        out[i] = table[at]
    return distinct[:count].copy()


@helper
def _hash_of(values: Any, starts: Any, sizes: Any, reference: Any) -> Any:
    word = np.uint64(0)
    if reference >= 0:
        for k in range(sizes[reference]):
            word = mix(word, np.uint64(values[starts[reference] + k] + 1))
    return np.int64(word >> np.uint64(2))


@dataclass(frozen=True)
class _Columns:
    """Changes in columns, one entry a row. ``before`` and ``after`` are rows of ``texts``, -1 for null."""

    offsets: np.ndarray
    batches: np.ndarray
    times: np.ndarray
    snapshot: np.ndarray
    what: np.ndarray
    part: np.ndarray
    broker: np.ndarray
    directory: np.ndarray
    before: np.ndarray
    after: np.ndarray
    why: np.ndarray


def change_rows(step: Step, topic_ids: pa.Array, names: pa.Array, directories: pa.Array, generation: int) -> pa.Table:
    """Rows of ``changes`` for a step, in log order."""
    from_versions, texts = _of_versions(step, directories)
    found = _joined(from_versions, _of_intervals(step, len(directories)))
    part = found.part
    topics = pa.array(step.parts[:, c.P_TOPIC].take(part))
    some = bool(len(found.directory)) and int(found.directory.max()) >= 0
    n = len(part)
    return pa.table(
        [
            pa.array(found.offsets),
            pa.array(found.batches),
            pa.array(found.times).cast(tables.TIME),
            pa.DictionaryArray.from_arrays(pa.array(found.what), pa.array(WHATS)),
            pa.DictionaryArray.from_arrays(topics, topic_ids),
            pa.DictionaryArray.from_arrays(topics, names),
            pa.array(step.parts[:, c.P_NUMBER].take(part)),
            _nullable(found.broker),
            pa.DictionaryArray.from_arrays(_nullable(found.directory), directories)
            if some
            else pa.nulls(n, pa.string()),
            pa.DictionaryArray.from_arrays(_nullable(found.before), texts),
            pa.DictionaryArray.from_arrays(_nullable(found.after), texts),
            pa.DictionaryArray.from_arrays(_nullable(found.why), pa.array(WHYS)),
            pa.array(found.snapshot),
            pa.array(np.zeros(n, np.bool_)),
            pa.array(np.full(n, generation, np.int32)),
        ],
        names=tables.CHANGES.schema.names,
    )


def _nullable(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers, mask=numbers < 0)


def _of_versions(step: Step, directories: pa.Array) -> tuple[_Columns, pa.Array]:
    """Assignments, leaders and in-sync sets; and the texts: directories, reasons, leaders, in-sync sets."""
    lists = step.lists
    table, count = _changes(lists, step.versions, len(step.parts), step.old, step.moments, step.absent_directory)
    part, broker, moment, what, before, after, why = columns_of(table, np.arange(count))
    reasons = len(directories)
    leaders = reasons + len(o.REASONS)
    leads, in_sync = np.flatnonzero(what == LEADS), np.flatnonzero(what == IN_SYNC)
    led = pa.array(np.concatenate([before[leads], after[leads]])).dictionary_encode()
    at = led.indices.to_numpy() + leaders
    both = np.concatenate([before[leads], after[leads]])
    at = np.where(both < 0, np.int32(_NONE), at)
    before[leads], after[leads] = at[: len(leads)], at[len(leads) :]
    first = leaders + len(led.dictionary)
    references = np.concatenate([before[in_sync], after[in_sync]]).astype(np.int64)
    numbers = np.empty(len(references), np.int32)
    distinct = _number_lists(references, lists.values, lists.starts[ISR], lists.sizes[ISR], numbers)
    numbers = np.where(numbers < 0, np.int32(_NONE), numbers + np.int32(first))
    before[in_sync], after[in_sync] = numbers[: len(in_sync)], numbers[len(in_sync) :]
    texts = pa.concat_arrays(
        [directories, pa.array(o.REASONS), led.dictionary.cast(pa.string()), _list_texts(lists, distinct)]
    )
    at_moment = moment.astype(np.intp)
    offsets, times, snapshot = step.moments.at(moment)
    nothing = np.full(count, _NONE, np.int32)
    return (
        _Columns(
            offsets, step.batches.take(at_moment), times, snapshot, what.astype(np.int8), part, broker, nothing,
            before, after, why.astype(np.int8),
        ),
        texts,
    )  # fmt: skip


def _list_texts(lists: Lists, references: np.ndarray) -> pa.Array:
    """The distinct in-sync sets as texts, ``[1,2]``. They are few."""
    starts, sizes = lists.starts[ISR].take(references, mode="clip"), lists.sizes[ISR].take(references, mode="clip")
    sizes = np.where(references < 0, 0, np.maximum(sizes, 0))
    values = lists.values
    pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
    return pa.array([f"[{','.join(map(str, values[a : a + n].tolist()))}]" for a, n in pairs], pa.string())


def _of_intervals(step: Step, reasons: int) -> _Columns | None:
    """Replicas that went offline, came back or have another reason (R-EVENT-3), by broker."""
    spans = step.intervals
    spans = spans[spans[:, o.O_TO] != spans[:, o.O_FROM]]
    began = spans[spans[:, o.O_FROM] >= step.first_offset]
    ended = spans[spans[:, o.O_TO] != c.OPEN]
    if not len(began) and not len(ended):
        return None
    both = np.concatenate([ended, began])
    is_begin = np.arange(len(both)) >= len(ended)
    slot = step.slots[both[:, o.O_SLOT]]
    offsets = np.where(is_begin, both[:, o.O_FROM], both[:, o.O_TO])
    part, broker = slot[:, c.A_PARTITION], slot[:, c.A_BROKER]
    order = np.lexsort((is_begin, broker, part, offsets))
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
    return _Columns(
        offsets=offsets,
        batches=batches,
        times=times[kept],
        snapshot=snapshot,
        what=np.full(len(kept), OFFLINE, np.int8),
        part=part[kept],
        broker=broker[kept],
        directory=directory[kept],
        before=before[kept],
        after=after[kept],
        why=np.where(snapshot, RESYNC, _NONE).astype(np.int8),
    )


def _joined(one: _Columns, other: _Columns | None) -> _Columns:
    """Both in the order of the offsets."""
    columns = vars(one)
    if other is not None:
        columns = {name: np.concatenate([column, getattr(other, name)]) for name, column in columns.items()}
    offsets = columns["offsets"]
    if len(offsets) and (np.diff(offsets) < 0).any():
        order = np.argsort(offsets, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return _Columns(**columns)
