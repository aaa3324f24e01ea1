"""Arrow arrays of numbers of which some are null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def nullable(numbers: np.ndarray) -> pa.Array:
    """The numbers (contiguous), null where negative. Arrow reads them in place: only the null bits are new."""
    there = np.packbits(numbers >= 0, bitorder="little")
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [pa.py_buffer(there), pa.py_buffer(numbers)])
