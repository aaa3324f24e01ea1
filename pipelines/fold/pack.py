"""Packs named numpy arrays into bytes, for the way between the stages and for the state store.

Layout: magic, length of the header, the header (JSON: name, dtype, shape of each array), then the arrays, each
aligned to eight bytes. Reading needs no copy.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from mmap import mmap

import numpy as np
import pyarrow as pa

from jbod_model.errors import JbodError

_MAGIC = b"JBOD\x02"
_LZ4 = b"JBOL\x03"
_HEAD = struct.Struct("<5sI")
_KINDS = re.compile(r"[<>|][biufSUV]\d+")
"""The permitted array types in numpy's notation. Otherwise numpy would accept other types from a damaged header."""
_BIG = struct.Struct("<5sQ")
# One byte of lz4 expands to at most 255 bytes.
_MOST_LZ4 = 255


class CorruptState(JbodError):
    """The bytes are not packed arrays: the checkpoint is of another version or damaged. Start from a new checkpoint."""


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Packs the arrays in their order."""
    header = json.dumps([[name, array.dtype.str, array.shape] for name, array in arrays.items()]).encode()
    parts = [_HEAD.pack(_MAGIC, len(header)), header]
    size = _HEAD.size + len(header)
    for array in arrays.values():
        gap = -size % 8
        parts.append(bytes(gap))
        data = np.ascontiguousarray(array)
        parts.append(memoryview(data).cast("B") if data.size else b"")  # type: ignore[arg-type]
        size += gap + data.nbytes
    return b"".join(parts)


def unpack(data: bytes | mmap) -> dict[str, np.ndarray]:
    """Unpacks the bytes of ``pack`` into read-only views."""
    try:
        magic, length = _HEAD.unpack_from(data)
        if magic != _MAGIC or length > len(data) - _HEAD.size:
            raise CorruptState("state or block of another version: start from a new checkpoint")
        at = _HEAD.size + length
        arrays: dict[str, np.ndarray] = {}
        for name, kind, shape in json.loads(data[_HEAD.size : at]):
            at += -at % 8
            if not _KINDS.fullmatch(kind):
                raise CorruptState(f"array {name} is of no known type {kind!r}: start from a new checkpoint")
            dtype = np.dtype(kind)
            count = math.prod(shape)
            if not 0 <= count * dtype.itemsize <= len(data) - at:
                raise CorruptState(f"array {name} is cut off: start from a new checkpoint")
            arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
            at += count * dtype.itemsize
    except (struct.error, ValueError, TypeError, SyntaxError) as problem:
        raise CorruptState(f"packed arrays are damaged ({problem}): start from a new checkpoint") from None
    return arrays


def narrow(values: np.ndarray) -> np.ndarray:
    """Integers as the narrowest signed type that holds them."""
    if not values.size:
        return values.astype(np.int8)
    low, high = int(values.min()), int(values.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def compress(data: bytes) -> bytes:
    """``data`` under lz4, with its size in front."""
    body: bytes = pa.Codec("lz4_raw").compress(data, asbytes=True)
    return _BIG.pack(_LZ4, len(data)) + body


def decompress(data: bytes, limit: int = 1 << 34) -> bytes:
    """Decompresses the bytes of ``compress``. Refuses a declared size above ``limit`` bytes."""
    if len(data) < _BIG.size:
        raise CorruptState("compressed state is cut off: start from a new checkpoint")
    magic, size = _BIG.unpack_from(data)
    if magic != _LZ4 or size > limit:
        raise CorruptState("compressed state of another version: start from a new checkpoint")
    if size > _MOST_LZ4 * len(data):
        raise CorruptState("compressed state claims more than it can hold: start from a new checkpoint")
    try:
        body: bytes = pa.Codec("lz4_raw").decompress(memoryview(data)[_BIG.size :], size, asbytes=True)
    except (OSError, pa.ArrowException):
        raise CorruptState("compressed state is damaged: start from a new checkpoint") from None
    return body
