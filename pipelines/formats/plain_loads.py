"""The functions of ``compiled_loads`` in plain Python, for kernels that are not compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np


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
