"""What kernels are made of: the decorators, the helpers that read numbers of a byte array, and ragged columns.

All kernels are plain Python functions underneath. If ``pipelines.start.process`` chose so, nothing compiles them.

The helpers take C-contiguous ``uint8`` arrays, and indices that the caller has compared with the arrays' ends. Ragged
columns are values with a start and a length per row.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipelines.start.process import are_plain

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _temporary_cache() -> str:
    """A folder below TMPDIR for compiled kernels: the same for all commands, unless others can write it."""
    folder = Path(tempfile.gettempdir(), f"jbod-kernels-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return str(folder) if own else tempfile.mkdtemp(prefix="jbod-kernels-")


if are_plain():

    def njit(*, cache: bool = False, **_: Any) -> Callable[[_Function], _Function]:
        """Returns the function itself. ``cache``: also those that are called from outside kernels, with their types."""
        return _entry if cache else lambda function: function

    def helper(function: _Function) -> _Function:
        """Returns the function itself."""
        return function

    inlined = helper
else:
    from numba import config, njit
    from numba.core.options import DefaultOptions

    try:
        njit(cache=True)(lambda: None)
    except RuntimeError:
        # Neither the package nor the user's cache can be written, as in a container.
        os.environ["NUMBA_CACHE_DIR"] = _temporary_cache()
        config.reload_config()  # type: ignore[no-untyped-call]

    # At each call of a helper, numba counts a reference to each array. This made the fold 1.3 to 1.8 times as slow. Its
    # option ``_nrt`` turns this off for code that allocates nothing. If numba lacks the option, helpers are plain njit.
    _UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

    def helper(function: _Function) -> _Function:
        """Compiles a part of a kernel: it reads and writes the given arrays, and neither allocates nor returns one."""
        compiled: _Function = njit(**_UNCOUNTED)(function)
        return compiled

    def inlined(function: _Function) -> _Function:
        """Compiles a helper that numba inlines into its only caller. LLVM would pass all arrays on the stack."""
        compiled: _Function = njit(inline="always", **_UNCOUNTED)(function)
        return compiled


def _entry(function: _Function) -> _Function:
    """Gives a plain function what compiled code has: rows with attributes, and integers that wrap without a warning."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*map(_with_attributes, arguments))

    return call


class _Row:
    """A row of a structured array: its fields are attributes, as in compiled code."""

    __slots__ = ("_fields",)

    def __init__(self, fields: np.void) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        return self._fields[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value


class _Rows:
    """A structured array of which kernels read and write rows."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> _Row:
        return _Row(self._rows[at])


def _with_attributes(argument: Any) -> Any:
    structured = isinstance(argument, np.ndarray) and argument.dtype.names is not None
    return _Rows(argument) if structured else argument


@njit(inline="always")
def load_u32(data: Any, at: int) -> int:
    """A number of four bytes, big-endian as all numbers of Kafka, without a sign."""
    return int(data[at]) << 24 | int(data[at + 1]) << 16 | int(data[at + 2]) << 8 | int(data[at + 3])


@njit(inline="always")
def load_i16(data: Any, at: int) -> int:
    """A number of two bytes."""
    return ((int(data[at]) << 8 | int(data[at + 1])) ^ 0x8000) - 0x8000


@njit(inline="always")
def load_i32(data: Any, at: int) -> int:
    """A number of four bytes."""
    return (load_u32(data, at) ^ 0x80000000) - 0x80000000


@njit(inline="always")
def load_i64(data: Any, at: int) -> int:
    """A number of eight bytes."""
    return load_i32(data, at) << 32 | load_u32(data, at + 4)


__all__ = [
    "helper",
    "inlined",
    "load_i16",
    "load_i32",
    "load_i64",
    "load_u32",
    "njit",
    "uvarint",
    "varint",
    "zero",
]

TRUNCATED = np.int64(-1)
OVERLONG = np.int64(-2)


@njit(inline="always")
def uvarint(data: Any, at: int, end: int) -> tuple[int, int]:
    """Unsigned varint of at most 32 bits (R-FMT-4): (value, next index). The value is negative for a broken varint."""
    if at >= end:
        return TRUNCATED, at
    byte = np.int64(data[at])
    if byte < 128:
        return byte, at + 1
    value = byte & 127
    shift = 7
    at += 1
    while shift < 35:
        if at >= end:
            return TRUNCATED, at
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value if value <= 0xFFFFFFFF else OVERLONG, at
        shift += 7
    return OVERLONG, at


@njit(inline="always")
def varint(data: Any, at: int, end: int) -> tuple[int, int, bool]:
    """Zigzag varint of at most five bytes. Returns (value, next index, whether it is well formed)."""
    raw, at = uvarint(data, at, end)
    if raw < 0:
        return np.int64(0), at, False
    return (raw >> 1) ^ -(raw & 1), at, True


@njit(inline="always")
def zero(data: Any, at: int, end: int, most: int) -> int:
    """Index after a varint 0 of at most ``most`` bytes (usually one), -1 if there is no such varint."""
    for k in range(min(most, end - at)):
        if data[at + k] == 0:
            return at + k + 1
        if data[at + k] != 128:
            return -1
    return -1


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
    ends = np.zeros(1 << bits, np.int32)
    ends.flags.writeable = False
    return ends


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
            taken[fill : fill + count] = values[start : start + count]
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
