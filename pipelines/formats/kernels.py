"""What kernels are made of: the decorators, and the helpers that read numbers of a byte array.

All kernels are plain Python functions underneath. If ``pipelines.start.plain_kernels`` chose so, nothing compiles them.

The helpers take C-contiguous ``uint8`` arrays, and indices that the caller has compared with the arrays' ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pipelines.start.plain_kernels import are_plain

_Function = TypeVar("_Function", bound=Callable[..., Any])

if are_plain():

    def njit(*, cache: bool = False, **_: Any) -> Callable[[_Function], _Function]:
        """Returns the function itself. ``cache``: also those that are called from outside kernels, with their types."""
        return _entry if cache else lambda function: function

    def helper(function: _Function) -> _Function:
        """Returns the function itself."""
        return function

    inlined = helper
else:
    from numba import njit
    from numba.core.options import DefaultOptions

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


if TYPE_CHECKING or not are_plain():
    from pipelines.formats.compiled_loads import copy, load_i16, load_i32, load_i64, load_u64_raw
else:

    def _loader(size: int) -> Callable[[np.ndarray, int], np.int64]:
        def load(array: np.ndarray, index: int) -> np.int64:
            return np.int64(int.from_bytes(array[index : index + size].tobytes(), "big", signed=True))

        return load

    load_i16, load_i32, load_i64 = _loader(2), _loader(4), _loader(8)

    def load_u64_raw(array: np.ndarray, index: int) -> np.uint64:
        """Eight bytes as they lie in memory."""
        return np.uint64(int.from_bytes(array[index : index + 8].tobytes(), sys.byteorder))

    def copy(target: np.ndarray, at: int, source: np.ndarray, start: int, count: int) -> None:
        """target[at : at + count] = source[start : start + count], two arrays."""
        target[at : at + count] = source[start : start + count]


__all__ = [
    "copy",
    "helper",
    "inlined",
    "load_i16",
    "load_i32",
    "load_i64",
    "load_u64_raw",
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
