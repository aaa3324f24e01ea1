"""Arrow arrays of which some values, or all, are null."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa


def nullable(numbers: np.ndarray) -> pa.Array:
    """The numbers (contiguous), null where negative. Arrow reads them in place: only the null bits are new."""
    there = np.packbits(numbers >= 0, bitorder="little")
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [pa.py_buffer(there), pa.py_buffer(numbers)])


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """An array of nulls. All callers share its memory."""
    return _nulls(count.bit_length(), kind).slice(0, count)


@lru_cache(maxsize=64)
def _nulls(bits: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(1 << bits, kind)
