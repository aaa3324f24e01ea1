"""Ragged columns: values with a start and a length per row, and the kernels that gather and number them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from pipelines.formats.kernels import njit


@njit(cache=True, nogil=True)
def _columns(table: Any, rows: Any, out: Any) -> None:
    # In blocks, so that the rows are in the processor's cache when the next column is copied.
    for begin in range(0, len(rows), 512):
        end = min(begin + 512, len(rows))
        for k in range(len(out)):
            column = out[k]
            for i in range(begin, end):
                column[i] = table[rows[i], k]


def columns_of(table: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns of ``table[rows]``. Each has memory of its own, which is free once that column is unused."""
    out = tuple(np.empty(len(rows), table.dtype) for _ in range(table.shape[1]))
    _columns(table, rows, out)
    return out


def zeros(count: int) -> np.ndarray:
    """int32[count] of zeros, read-only: the ends of empty lists. All callers share their memory."""
    return _zeros(count.bit_length())[:count]


@lru_cache(maxsize=32)
def _zeros(bits: int) -> np.ndarray:
    found = np.zeros(1 << bits, np.int32)
    found.flags.writeable = False
    return found


@njit(cache=True, nogil=True)
def _take(values: Any, starts: Any, sizes: Any, rows: Any, ends: Any) -> Any:
    total = 0
    ends[0] = 0
    for i in range(len(rows)):
        row = rows[i]
        if row >= 0 and sizes[row] > 0:
            total += sizes[row]
        ends[i + 1] = total
    taken = np.empty(total, values.dtype)
    for i in range(len(rows)):
        fill = ends[i]
        count = ends[i + 1] - fill
        if count > 0:
            start = starts[rows[i]]
            for k in range(count):
                taken[fill + k] = values[start + k]
    return taken


def take_lists(
    values: np.ndarray, starts: np.ndarray, sizes: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lists ``values[starts[r]:starts[r]+sizes[r]]`` of ``rows``: (values, ends int32[len(rows) + 1]).

    A row below zero, or a size below zero (null), gives an empty list.
    """
    ends = np.empty(len(rows) + 1, np.int32)
    return _take(values, starts, sizes, rows, ends), ends


@njit(inline="always")
def mix(high: Any, low: Any) -> Any:
    """A 64-bit hash of an id, with the multipliers of splitmix64."""
    word = (high ^ (low * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    return word ^ (word >> np.uint64(31))


@njit(cache=True, nogil=True)
def _number(ids: Any, known: Any, out: Any) -> Any:
    """Numbers ids in order of first appearance after ``known``. Returns the distinct ids, known ones first."""
    room = np.int64(16)
    while room < 4 * (len(known) + 16):
        room *= 2
    table = np.full(room, -1, np.int32)
    distinct = np.empty((max(2 * len(known), 64), 2), np.uint64)
    count = 0
    for i in range(len(known) + len(ids)):
        if i < len(known):
            high, low = known[i, 0], known[i, 1]
        else:
            j = i - len(known)
            high, low = ids[j, 0], ids[j, 1]
            if j > 0 and ids[j - 1, 0] == high and ids[j - 1, 1] == low:
                out[j] = out[j - 1]
                continue
        at = np.int64(mix(high, low) & np.uint64(room - 1))
        while table[at] >= 0 and (distinct[table[at], 0] != high or distinct[table[at], 1] != low):
            at = (at + 1) & (room - 1)
        if table[at] < 0:
            if count == len(distinct):
                wider = np.empty((2 * count, 2), np.uint64)
                wider[:count] = distinct
                distinct = wider
            distinct[count, 0] = high
            distinct[count, 1] = low
            table[at] = count
            count += 1
            if 2 * count > room:
                room *= 2
                table = np.full(room, -1, np.int32)
                for k in range(count):
                    spot = np.int64(mix(distinct[k, 0], distinct[k, 1]) & np.uint64(room - 1))
                    while table[spot] >= 0:
                        spot = (spot + 1) & (room - 1)
                    table[spot] = k
                if i >= len(known):
                    out[i - len(known)] = count - 1
                continue
        if i >= len(known):
            out[i - len(known)] = table[at]
    return distinct[:count].copy()


def number_ids(ids: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers ids (uint64[n, 2]): (number of each int32[n], distinct ids with ``known`` first, in order)."""
    numbers = np.empty(len(ids), np.int32)
    return numbers, _number(ids, known, numbers)


@njit(cache=True, nogil=True)
def _renumber(numbers: Any, table: Any, out: Any) -> Any:
    new = np.full(len(table), -1, np.int32)
    used = np.empty((len(table), 2), np.uint64)
    count = 0
    for i in range(len(numbers)):
        old = numbers[i]
        if old < 0:
            out[i] = -1
            continue
        if new[old] < 0:
            new[old] = count
            used[count] = table[old]
            count += 1
        out[i] = new[old]
    return used[:count].copy()


def renumber(numbers: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Renumbers references into ``table`` (-1: none) to only the rows in use: (int32[n], rows in use)."""
    out = np.empty(len(numbers), np.int32)
    return out, _renumber(numbers, table, out)
