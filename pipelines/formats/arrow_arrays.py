"""Arrow arrays from buffers: numbers, Python's values, ids as text. Arrow's own constructor imports pandas first.

That takes a third of a second. Ids are Kafka's 22 characters of URL-safe base64 (R-ID-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.formats.kernels import njit


def column(numbers: np.ndarray, there: np.ndarray | None = None) -> pa.Array:
    """The numbers or booleans, null where ``there`` is false. Contiguous numbers are read in place."""
    data = _bits(numbers) if numbers.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(numbers))
    valid = None if there is None else _bits(there)
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [valid, data])


def nullable(numbers: np.ndarray) -> pa.Array:
    """The numbers (contiguous), null where negative. Arrow reads them in place: only the null bits are new."""
    return column(numbers, numbers >= 0)


def pieces(numbers: np.ndarray, ends: np.ndarray, there: np.ndarray | None = None) -> pa.Array:
    """Pieces of the numbers as bytes, null where ``there`` is false: binary[n]. ``ends`` int32[n + 1] of the pieces."""
    parts = [
        None if there is None else _bits(there),
        pa.py_buffer(ends * np.int32(numbers.itemsize)),
        pa.py_buffer(numbers),
    ]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, parts)


def texts(values: Sequence[str]) -> pa.Array:
    """The texts: string[n]."""
    return array(values, pa.string())


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's values, None where null: integers, booleans, texts, bytes, and lists and maps of them."""
    count = len(values)
    valid = _bits(np.fromiter((value is not None for value in values), np.bool_, count)) if None in values else None
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        parts = [_bytes(value) for value in values]
        return pa.Array.from_buffers(kind, count, [valid, _ends(parts), pa.py_buffer(b"".join(parts))])
    if pa.types.is_map(kind):
        maps = [[] if value is None else list(dict(value).items()) for value in values]
        keys, items = (
            array([pair[at] for pair in chain(*maps)], of) for at, of in enumerate((kind.key_type, kind.item_type))
        )
        entries = pa.Array.from_buffers(kind.field(0).type, len(keys), [None], children=[keys, items])
        return pa.Array.from_buffers(kind, count, [valid, _ends(maps)], children=[entries])
    if pa.types.is_list(kind):
        lists = [() if value is None else value for value in values]
        elements = array([*chain(*lists)], kind.value_type)
        return pa.Array.from_buffers(kind, count, [valid, _ends(lists)], children=[elements])
    numbers = np.array([0 if value is None else value for value in values], kind.to_pandas_dtype())
    data = _bits(numbers) if pa.types.is_boolean(kind) else pa.py_buffer(numbers)
    return pa.Array.from_buffers(kind, count, [valid, data])


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """An array of nulls. All callers share its memory."""
    return _nulls(count.bit_length(), kind).slice(0, count)


@lru_cache(maxsize=64)
def _nulls(bits: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(1 << bits, kind)


def _bits(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _bytes(value: str | bytes | None) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else value


def _ends(parts: Iterable[Sequence[Any]]) -> pa.Buffer:
    """Arrow's offsets of consecutive parts."""
    sizes = [0, *map(len, parts)]
    return pa.py_buffer(np.cumsum(sizes, dtype=np.int32))


_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_PAIRS = np.stack([np.repeat(_LETTERS, 64), np.tile(_LETTERS, 64)], axis=1).view(np.uint16).ravel()
"""Two letters for every twelve bits."""
_LENGTH = 22


@njit(cache=True, nogil=True)
def _encode(words: Any, pairs: Any, out: Any) -> None:
    bits = np.uint64(4095)
    for i in range(len(out)):
        high, low = words[i, 0], words[i, 1]
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
    _encode(np.ascontiguousarray(ids).view(">u8").astype(np.uint64), _PAIRS, texts)
    ends = np.arange(0, _LENGTH * count + 1, _LENGTH, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [bits, pa.py_buffer(ends), pa.py_buffer(texts)])
