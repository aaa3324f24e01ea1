"""PartitionRecord and PartitionChangeRecord, versions 0 to 2, in columns. A large log consists mostly of them.

This is the only kernel for specific record types, because it is the hot path. A test compares it with the plain codec
record by record. For a record that it refuses, the plain codec gives the message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jbod_model.formats.records import PartitionChangeRecord, PartitionRecord
from jbod_model.formats.schema import API_KEY_OF
from jbod_model.replay.registrations import KEEP_RECOVERY_STATE, NO_LEADER_CHANGE
from pipelines.formats.kernels import helper, inlined, load_i32, njit, uvarint
from pipelines.formats.programs import BAD_LENGTH, BAD_TAG, BAD_VARINT, OK, SHORT, compact

PARTITION, PARTITION_CHANGE = API_KEY_OF[PartitionRecord], API_KEY_OF[PartitionChangeRecord]
# Columns of int lists, in the order of Kafka's fields of PartitionRecord.
REPLICAS, ISR, REMOVING, ADDING, ELR, LAST_KNOWN_ELR = range(6)
INT_LISTS = 6
DIRECTORIES = INT_LISTS
LEADER, LEADER_EPOCH, PARTITION_EPOCH, RECOVERY = range(4)


class PartitionRows(NamedTuple):
    """Columns of ``n`` partition records.

    ``topics`` uint64[n, 2] (the 16 bytes as they lie in memory), ``partitions`` int32[n], ``scalars`` int32[4, n]
    (leader, leader epoch, partition epoch, recovery), ``ints`` int32[6, *] with ``int_ends`` int32[6, n + 1],
    ``directory_ids`` uint64[*, 2] with ``directory_ends`` int32[n + 1], ``present`` bool[7, n]: false where a list is
    null.
    """

    topics: Any
    partitions: Any
    scalars: Any
    ints: Any
    int_ends: Any
    directory_ids: Any
    directory_ends: Any
    present: Any


class Bodies(NamedTuple):
    """Record bodies ``data[starts[i]:ends[i]]``, their types and versions."""

    data: Any
    starts: Any
    ends: Any
    types: Any
    versions: Any


@njit(inline="always")
def _ints(data: Any, at: int, count: int, values: Any, fill: int) -> int:
    for k in range(count):
        values[fill + k] = load_i32(data, at + 4 * k)
    return at + 4 * count


@njit(inline="always")
def _ids(data: Any, at: int, count: int, ids: Any, fill: int) -> int:
    for k in range(count):
        for place in range(16):
            ids[fill + k, place] = data[at + 16 * k + place]
    return at + 16 * count


@inlined
def _read_ints(
    bodies: Bodies, rows: PartitionRows, row: int, slot: int, at: int, end: int, null: int
) -> tuple[int, int]:
    """Reads an int list into column ``slot``: (next, status). ``null``: whether it may be null."""
    count, at, status = compact(bodies.data, at, end, 4, null)
    if status != OK:
        return at, status
    fill = rows.int_ends[slot, row]
    rows.present[slot, row] = count >= 0
    at = _ints(bodies.data, at, max(count, 0), rows.ints[slot], fill)
    rows.int_ends[slot, row + 1] = fill + max(count, 0)
    return at, OK


@inlined
def _read_directories(bodies: Bodies, rows: PartitionRows, row: int, at: int, end: int, null: int) -> tuple[int, int]:
    """Reads the list of directories: (next, status). ``null``: whether it may be null."""
    count, at, status = compact(bodies.data, at, end, 16, null)
    if status != OK:
        return at, status
    fill = rows.directory_ends[row]
    rows.present[DIRECTORIES, row] = count >= 0
    at = _ids(bodies.data, at, max(count, 0), rows.directory_ids, fill)
    rows.directory_ends[row + 1] = fill + max(count, 0)
    return at, OK


@inlined
def _set_empty(rows: PartitionRows, row: int) -> None:
    """Sets the row to a change without lists, and its scalars to their defaults."""
    for slot in range(INT_LISTS + 1):
        rows.present[slot, row] = False
    for slot in range(INT_LISTS):
        rows.int_ends[slot, row + 1] = rows.int_ends[slot, row]
    rows.directory_ends[row + 1] = rows.directory_ends[row]
    rows.scalars[LEADER, row] = NO_LEADER_CHANGE
    rows.scalars[LEADER_EPOCH, row] = 0
    rows.scalars[PARTITION_EPOCH, row] = 0
    rows.scalars[RECOVERY, row] = KEEP_RECOVERY_STATE


@inlined
def _read_state(bodies: Bodies, rows: PartitionRows, row: int, at: int, end: int) -> tuple[int, int]:
    """Reads the untagged state of a PartitionRecord: (next, status)."""
    for slot in range(4):
        at, status = _read_ints(bodies, rows, row, slot, at, end, 0)
        if status != OK:
            return at, status
    if end - at < 12:
        return at, SHORT
    rows.scalars[LEADER, row] = load_i32(bodies.data, at)
    rows.scalars[LEADER_EPOCH, row] = load_i32(bodies.data, at + 4)
    rows.scalars[PARTITION_EPOCH, row] = load_i32(bodies.data, at + 8)
    rows.scalars[RECOVERY, row] = 0
    at += 12
    if bodies.versions[row] < 1:
        return at, OK
    return _read_directories(bodies, rows, row, at, end, 0)


@inlined
def _read_tag(bodies: Bodies, rows: PartitionRows, row: int, slot: int, at: int, stop: int) -> tuple[int, int]:
    """Reads the tagged field of ``slot``, which ends at ``stop``: (next, status)."""
    if slot == UNKNOWN_TAG:
        return stop, OK
    if slot == REFUSED_TAG:
        return at, BAD_TAG
    if slot == LEADER_TAG:
        if stop - at != 4:
            return at, BAD_LENGTH
        rows.scalars[LEADER, row] = load_i32(bodies.data, at)
        return stop, OK
    if slot == RECOVERY_TAG:
        if stop - at != 1:
            return at, BAD_LENGTH
        rows.scalars[RECOVERY, row] = np.int8(bodies.data[at])
        return stop, OK
    if slot == DIRECTORIES:
        at, status = _read_directories(bodies, rows, row, at, stop, 1)
    else:
        at, status = _read_ints(bodies, rows, row, slot, at, stop, 1)
    # Kafka does not compare a known tag with its declared size. A strict reader does.
    return at, BAD_LENGTH if status == OK and at != stop else status


@inlined
def _read_tags(bodies: Bodies, list_of_tag: Any, rows: PartitionRows, row: int, at: int, end: int) -> tuple[int, int]:
    """Reads the tagged section: (next, status)."""
    kind, version = 0 if bodies.types[row] == PARTITION else 1, bodies.versions[row]
    tags, at = uvarint(bodies.data, at, end)
    if tags < 0:
        return at, BAD_VARINT
    for _ in range(tags):
        tag, at = uvarint(bodies.data, at, end)
        size, at = uvarint(bodies.data, at, end)
        if tag < 0 or size < 0:
            return at, BAD_VARINT
        if size > end - at:
            return at, BAD_LENGTH
        slot = list_of_tag[kind, version, tag] if tag < 9 else UNKNOWN_TAG
        at, status = _read_tag(bodies, rows, row, slot, at, at + size)
        if status != OK:
            return at, status
    return at, OK


@helper
def _read_all(bodies: Bodies, list_of_tag: Any, rows: PartitionRows) -> int:
    for row in range(len(bodies.starts)):
        at, end = bodies.starts[row], bodies.ends[row]
        if end - at < 20:
            return row
        rows.partitions[row] = load_i32(bodies.data, at)
        _ids(bodies.data, at + 4, 1, rows.topics, row)
        _set_empty(rows, row)
        at, status = at + 20, OK
        if bodies.types[row] == PARTITION:
            at, status = _read_state(bodies, rows, row, at, end)
        if status == OK:
            at, status = _read_tags(bodies, list_of_tag, rows, row, at, end)
        if status != OK or at != end:
            return row
    return len(bodies.starts)


@njit(cache=True, nogil=True)
def _read(bodies: Bodies, list_of_tag: Any, rows: PartitionRows) -> int:
    """Reads records up to the first malformed one; the result is their number."""
    return _read_all(bodies, list_of_tag, rows)


UNKNOWN_TAG, REFUSED_TAG, LEADER_TAG, RECOVERY_TAG = 100, 101, 102, 103


def _tag_table() -> np.ndarray:
    """Slot of every tag: int32[record type, version, tag]. A tag of a later version has no slot and is refused."""
    table = np.full((2, 3, 9), UNKNOWN_TAG, np.int32)
    table[0, :, 0] = RECOVERY_TAG
    table[0, :, 1:3] = REFUSED_TAG
    table[0, 2, 1:3] = ELR, LAST_KNOWN_ELR
    table[1, :, :6] = ISR, LEADER_TAG, REPLICAS, REMOVING, ADDING, RECOVERY_TAG
    table[1, :, 6:9] = REFUSED_TAG
    table[1, 1:, 8] = DIRECTORIES
    table[1, 2, 6:8] = ELR, LAST_KNOWN_ELR
    return table


TAG_TABLE = _tag_table()


def read_partition_rows(bodies: Bodies) -> tuple[PartitionRows, int]:
    """Reads the bodies of partition records. The caller has checked that versions are at most 2.

    Returns the columns and the number of records read. If that is fewer than given, the next record is malformed.
    """
    n = len(bodies.starts)
    room = int((bodies.ends - bodies.starts).sum())
    rows = PartitionRows(
        topics=np.empty((n, 16), np.uint8),
        partitions=np.empty(n, np.int32),
        scalars=np.empty((4, n), np.int32),
        ints=np.empty((INT_LISTS, room // 4 + 1), np.int32),
        int_ends=np.empty((INT_LISTS, n + 1), np.int32),
        directory_ids=np.empty((room // 16 + 1, 16), np.uint8),
        directory_ends=np.empty(n + 1, np.int32),
        present=np.empty((INT_LISTS + 1, n), np.bool_),
    )
    rows.int_ends[:, 0] = 0
    rows.directory_ends[0] = 0
    done = _read(bodies, TAG_TABLE, rows)
    return rows._replace(topics=rows.topics.view(np.uint64), directory_ids=rows.directory_ids.view(np.uint64)), done
