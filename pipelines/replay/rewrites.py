"""The draft's rewrites: registrations that change the directories of partitions without a record (docs/spec/replay.md).

Only the profile ``draft`` has them. A rewrite is an event of every shard. It gives lists of directories that no record
has, so the fold appends them to its source rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jbod_model.replay.registrations import Rewrite
from pipelines.formats.kernels import helper, njit
from pipelines.formats.lists import number_ids
from pipelines.formats.partitions import DIRECTORIES, REPLICAS
from pipelines.replay import fold_columns as c
from pipelines.replay.fold_columns import Batch, Counts, Lists, Rewrites, Tables
from pipelines.replay.kernel_tables import wider_flat
from pipelines.replay.merge import is_absent, size_of
from pipelines.replay.slots import reassign


def rewrite_columns(rewrites: Sequence[Rewrite | None], known: np.ndarray) -> tuple[Rewrites, np.ndarray]:
    """The rewrites as columns, and the directory ids with those of the rewrites appended to the ``known`` ones."""
    lost = [sorted(one.lost) if one else [] for one in rewrites]
    into = [one.all_in if one else None for one in rewrites]
    named = [*(id_ for ids in lost for id_ in ids), *(id_ for id_ in into if id_ is not None)]
    if not named:
        none = np.full(len(rewrites), -1, np.int32)
        ends = np.zeros(len(rewrites) + 1, np.int64)
        return Rewrites(none, none, none[:0], ends, np.zeros(2, np.int64)), known
    ids = np.frombuffer(b"".join(id_.bytes for id_ in named), np.uint64).reshape(-1, 2)
    numbers, distinct = number_ids(ids, known)
    lost_ends = np.cumsum([0, *map(len, lost)], dtype=np.int64)
    all_in = np.full(len(rewrites), -1, np.int32)
    all_in[[id_ is not None for id_ in into]] = numbers[lost_ends[-1] :]
    brokers = np.array([one.broker_id if one else -1 for one in rewrites], np.int32)
    return Rewrites(brokers, all_in, numbers[: lost_ends[-1]], lost_ends, np.zeros(2, np.int64)), distinct


@helper
def _rewritten(rewrites: Rewrites, r: int, broker: int, held: int) -> int:
    """The directory of a replica on ``broker`` after rewrite r, if it was in ``held`` (R-DRAFT-1, R-DRAFT-2)."""
    if broker != rewrites.brokers[r]:
        return held
    if rewrites.all_in[r] >= 0:
        return np.int64(rewrites.all_in[r])
    for i in range(rewrites.lost_ends[r], rewrites.lost_ends[r + 1]):
        if rewrites.lost[i] == held:
            return c.DIR_LOST
    return held


@helper
def _write_rewritten(batch: Batch, tables: Tables, row: int, r: int) -> bool:
    """Writes the directories of version ``row`` after rewrite r behind the lists in use. Whether they differ."""
    lists, start = batch.lists, batch.rewrites.fill[1]
    reference = np.int64(tables.versions[row, c.V_LISTS + DIRECTORIES])
    count = size_of(lists, tables.versions, row)
    first = np.int64(0) if count == 0 else np.int64(lists.starts[REPLICAS, tables.versions[row, c.V_LISTS + REPLICAS]])
    differ = False
    for k in range(count):
        held = np.int64(batch.absent_directory)
        if reference >= 0:
            held = np.int64(lists.directories[lists.directory_starts[reference] + k])
        directory = _rewritten(batch.rewrites, r, np.int64(lists.values[first + k]), held)
        lists.directories[start + k] = directory
        differ |= directory != held
    return differ


@helper
def rewrite(batch: Batch, tables: Tables, counts: Counts, e: int) -> Any:
    """RegisterBrokerRecord in the draft: adds a version to each partition whose directories it rewrites.

    Returns (status, room, counts). If there is no room, the event is applied again with more: partitions that are
    rewritten already then stay as they are.
    """
    parts, versions, slots, lists = tables.parts, tables.versions, tables.slots, batch.lists
    known, rows, slot_count, heap_fill = counts
    snapshot, now = batch.events.snapshot[e], np.int32(batch.old_moments + e)
    fill = batch.rewrites.fill
    for p in range(known):
        before = np.int64(parts[p, c.P_LATEST])
        if before < 0 or (snapshot and parts[p, c.P_SEEN] == 0):
            continue
        count = size_of(lists, versions, before)
        if (
            rows == len(versions)
            or slot_count + count > len(slots)
            or fill[0] == len(lists.directory_sizes)
            or fill[1] + count > len(lists.directories)
        ):
            return c.FULL, count + 1, Counts(known, rows, slot_count, heap_fill)
        if not _write_rewritten(batch, tables, before, batch.events.partitions[e]):
            continue
        lists.directory_starts[fill[0]] = fill[1]
        lists.directory_sizes[fill[0]] = count
        is_given = not is_absent(lists.directories, fill[1], count, batch.absent_directory)
        for column in range(c.VERSION_COLUMNS):
            versions[rows, column] = versions[before, column]
        versions[before, c.V_TO] = now
        versions[rows, c.V_FROM] = now
        versions[rows, c.V_LISTS + DIRECTORIES] = fill[0] if is_given else c.ABSENT
        fill[0] += 1
        fill[1] += count
        parts[p, c.P_LATEST] = rows
        slot_count = reassign(lists, tables, p, rows, now, slot_count, batch.absent_directory, snapshot)
        rows += 1
    return c.FINE, np.int64(0), Counts(known, rows, slot_count, heap_fill)


@njit(cache=True, nogil=True)
def more_directories(batch: Batch, missing: int) -> Batch:
    """The same batch with room for lists of directories: one more, of ``missing`` values."""
    lists, fill = batch.lists, batch.rewrites.fill
    wide = Lists(
        lists.values,
        lists.starts,
        lists.sizes,
        wider_flat(lists.directories, fill[1] + missing),
        wider_flat(lists.directory_starts, fill[0] + 1),
        wider_flat(lists.directory_sizes, fill[0] + 1),
    )
    return Batch(batch.old, batch.absent_directory, batch.old_moments, batch.events, wide, batch.rewrites)
