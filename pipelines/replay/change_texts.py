"""The texts of ``changes``: leaders and in-sync sets as numbers of distinct texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.formats.kernels import helper, njit
from pipelines.formats.lists import mix
from pipelines.formats.partitions import ISR
from pipelines.replay import fold_columns as c
from pipelines.replay.fold_columns import Lists
from pipelines.replay.kernel_tables import wider_flat
from pipelines.replay.merge import same_list

# Kinds of changes, as numbered in pipelines.replay.changes.WHATS.
ASSIGNMENT, OFFLINE, LEADS, IN_SYNC = range(4)
# Columns of a change (int32). BEFORE and AFTER are a directory's number, a broker's id or the number of a list.
C_PART, C_BROKER, C_MOMENT, C_WHAT, C_BEFORE, C_AFTER, C_WHY = range(7)


@njit(cache=True, nogil=True)
def number_leaders(table: Any, rows: Any, first: Any) -> Any:
    """Replaces the leaders in changes by numbers of texts, from ``first`` on. Returns the distinct leaders."""
    room = np.int64(256)
    numbers = np.full(room, -1, np.int32)
    distinct, hashes = np.empty(64, np.int32), np.empty(64, np.int64)
    count = 0
    for row in range(rows):
        if table[row, C_WHAT] != LEADS:
            continue
        for column in (C_BEFORE, C_AFTER):
            leader = table[row, column]
            if leader < 0:
                continue
            word = np.int64(leader)
            at = word & (room - 1)
            while numbers[at] >= 0 and distinct[numbers[at]] != leader:
                at = (at + 1) & (room - 1)
            number = numbers[at]
            if number < 0:
                distinct, hashes = wider_flat(distinct, count + 1), wider_flat(hashes, count + 1)
                distinct[count], hashes[count] = leader, word
                numbers[at] = number = np.int32(count)
                count += 1
                if 2 * count > room:
                    room *= 2
                    numbers = _placed(hashes, count, room)
            table[row, column] = first + number
    return distinct[:count].copy()


@njit(cache=True, nogil=True)
def number_lists(table: Any, rows: Any, first: Any, values: Any, starts: Any, sizes: Any) -> Any:
    """Replaces the in-sync sets in changes by numbers of texts, by content. Returns a reference to each distinct one.

    A reference of -1 and below -2 is null (number -1), EMPTY is an empty list.
    """
    room = np.int64(64)
    numbers = np.full(room, -1, np.int32)
    distinct, hashes = np.empty(64, np.int32), np.empty(64, np.int64)
    count = 0
    for row in range(rows):
        if table[row, C_WHAT] != IN_SYNC:
            continue
        for column in (C_BEFORE, C_AFTER):
            reference = np.int64(table[row, column])
            if reference < c.EMPTY or reference == -1:
                table[row, column] = -1
                continue
            word = _hash_of(values, starts, sizes, reference)
            at = word & (room - 1)
            while numbers[at] >= 0 and not same_list(values, starts, sizes, np.int64(distinct[numbers[at]]), reference):
                at = (at + 1) & (room - 1)
            number = numbers[at]
            if number < 0:
                distinct, hashes = wider_flat(distinct, count + 1), wider_flat(hashes, count + 1)
                distinct[count], hashes[count] = reference, word
                numbers[at] = number = np.int32(count)
                count += 1
                if 2 * count > room:
                    room *= 2
                    numbers = _placed(hashes, count, room)
            table[row, column] = first + number
    return distinct[:count].copy()


@njit(cache=True, nogil=True)
def _placed(hashes: Any, count: Any, room: Any) -> Any:
    """A table of ``room`` places (a power of 2) with the numbers below ``count``, each from its hash's place on."""
    numbers = np.full(room, -1, np.int32)
    for number in range(count):
        at = hashes[number] & (room - 1)
        while numbers[at] >= 0:
            at = (at + 1) & (room - 1)
        numbers[at] = number
    return numbers


@helper
def _hash_of(values: Any, starts: Any, sizes: Any, reference: Any) -> Any:
    word = np.uint64(0)
    if reference >= 0:
        for k in range(sizes[reference]):
            word = mix(word, np.uint64(values[starts[reference] + k] + 1))
    return np.int64(word >> np.uint64(2))


def list_texts(lists: Lists, references: np.ndarray) -> pa.Array:
    """The distinct in-sync sets as texts, ``[1,2]``. They are few."""
    starts, sizes = lists.starts[ISR].take(references, mode="clip"), lists.sizes[ISR].take(references, mode="clip")
    sizes = np.where(references < 0, 0, np.maximum(sizes, 0))
    values = lists.values
    pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
    return pa.array([f"[{','.join(map(str, values[a : a + n].tolist()))}]" for a, n in pairs], pa.string())
