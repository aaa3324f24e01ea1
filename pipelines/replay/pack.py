"""SliceIds numpy arrays as one run of bytes: what travels between the stages and what the state store keeps.

Layout: magic, length of the header, the header (JSON: name, dtype, shape of each array), then the arrays, each
aligned to eight bytes. Reading copies nothing.
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
"""The types of arrays, as numpy writes them. Of a damaged header it would take others, and warn of some."""
_BIG = struct.Struct("<5sQ")
# A byte of lz4 stands for 255 at most.
_MOST_LZ4 = 255


class CorruptState(JbodError):
    """Bytes that are no packed arrays: a checkpoint of another version, or damaged. A new checkpoint cures it."""


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays, in order, as bytes."""
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
    """The arrays of ``pack``, as read-only views."""
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
    """Undo ``compress``; refuses a claim above ``limit`` bytes."""
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
