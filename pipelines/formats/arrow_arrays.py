"""Arrow arrays of columns: numbers of which some, or all, are null; and ids as text.

Ids are Kafka's 22 characters of URL-safe base64 (R-ID-1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.formats.kernels import load_i64, njit


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


_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_PAIRS = np.stack([np.repeat(_LETTERS, 64), np.tile(_LETTERS, 64)], axis=1).view(np.uint16).ravel()
"""Two letters for every twelve bits."""
_LENGTH = 22


@njit(cache=True, nogil=True)
def _encode(data: Any, pairs: Any, out: Any) -> None:
    bits = np.uint64(4095)
    for i in range(len(out)):
        high, low = np.uint64(load_i64(data, 16 * i)), np.uint64(load_i64(data, 16 * i + 8))
        middle = (high << np.uint64(60)) | (low >> np.uint64(4))
        for k in range(5):
            shift = np.uint64(52 - 12 * k)
            out[i, k] = pairs[(high >> shift) & bits]
            out[i, 5 + k] = pairs[(middle >> shift) & bits]
        out[i, 10] = pairs[(low & np.uint64(255)) << np.uint64(4)]


def id_texts(ids: np.ndarray, bits: pa.Buffer | None = None) -> pa.Array:
    """Texts of ids (uint64[n, 2], bytes as in memory): string[n]. ``bits``: Arrow's validity bitmap."""
    count = len(ids)
    texts = np.empty((count, _LENGTH // 2), np.uint16)
    _encode(np.ascontiguousarray(ids).view(np.uint8).reshape(-1), _PAIRS, texts)
    ends = np.arange(0, _LENGTH * count + 1, _LENGTH, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [bits, pa.py_buffer(ends), pa.py_buffer(texts)])
