"""The slots of a partition (pipelines.replay.fold) after a new version: which end and why, and which begin."""

from __future__ import annotations

import numpy as np

from pipelines.formats.kernels import helper
from pipelines.formats.partitions import DIRECTORIES, REPLICAS
from pipelines.replay import fold_columns as c
from pipelines.replay.fold_columns import Lists, Tables
from pipelines.replay.merge import size_of


@helper
def _why_ended(held: int, directory: int) -> int:
    """Returns why an assignment to directory ``held`` ended: its broker now has the replica in ``directory``."""
    if directory == c.DIR_LOST:
        return c.LOST
    if directory in (c.DIR_UNASSIGNED, c.DIR_MIGRATING):
        return c.UNASSIGNED
    return c.MOVED if held > c.DIR_LOST else c.ASSIGNED


@helper
def reassign(
    lists: Lists, tables: Tables, p: int, row: int, now: int, slot_count: int, absent_directory: int, snapshot: bool
) -> int:
    """Closes the slots of partition p that version ``row`` lacks, opens those it adds. Returns the number of slots."""
    versions, slots, heap = tables.versions, tables.slots, tables.heap
    base, old_size = np.int64(tables.parts[p, c.P_HEAP]), tables.parts[p, c.P_SLOTS]
    replicas, reference = versions[row, c.V_LISTS + REPLICAS], versions[row, c.V_LISTS + DIRECTORIES]
    count = size_of(lists, versions, row)
    start = np.int64(lists.starts[REPLICAS, replicas]) if count > 0 else np.int64(0)
    for k in range(max(count, old_size)):
        broker = np.int64(lists.values[start + k]) if k < count else np.int64(-1)
        directory = np.int64(absent_directory)
        if k < count and reference >= 0:
            directory = np.int64(lists.directories[lists.directory_starts[reference] + k])
        if k < old_size:
            slot = heap[base + k]
            held = slots[slot, c.A_DIRECTORY]
            stays = k < count and slots[slot, c.A_BROKER] == broker
            if stays and held == directory:
                continue
            ended = c.REASSIGNED
            if stays:
                ended = _why_ended(held, directory)
            else:
                for other in range(count):
                    if lists.values[start + other] == slots[slot, c.A_BROKER]:
                        ended = c.REORDERED
            slots[slot, c.A_TO] = now
            slots[slot, c.A_ENDED] = c.RESYNC if snapshot else ended
        if k < count:
            slots[slot_count, c.A_PARTITION] = p
            slots[slot_count, c.A_INDEX] = k
            slots[slot_count, c.A_BROKER] = broker
            slots[slot_count, c.A_DIRECTORY] = directory
            slots[slot_count, c.A_FROM] = now
            slots[slot_count, c.A_TO] = c.OPEN
            slots[slot_count, c.A_ENDED] = c.OPEN
            heap[base + k] = slot_count
            slot_count += 1
    tables.parts[p, c.P_SLOTS] = count
    return slot_count
