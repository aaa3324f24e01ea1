"""Varints of a byte array, and the loads of its other numbers, for kernels.

Every function takes C-contiguous ``uint8`` arrays, and indices that the caller has compared with the arrays' ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.formats.kernels import njit
from pipelines.start.plain_kernels import are_plain

if TYPE_CHECKING or not are_plain():
    from pipelines.formats.compiled_loads import copy, load_i16, load_i32, load_i64, load_u64_raw
else:
    from pipelines.formats.plain_loads import copy, load_i16, load_i32, load_i64, load_u64_raw

__all__ = ["copy", "load_i16", "load_i32", "load_i64", "load_u64_raw", "uvarint", "varint", "zero"]

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
