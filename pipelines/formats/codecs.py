"""Decompresses batches: gzip, snappy, lz4 and zstd (R-FMT-15), every size bounded before use (R-FMT-16)."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa

from jbod_model.errors import MalformedLog
from jbod_model.formats.compression import zstd
from pipelines.formats.batches import CODEC_BITS, HEADER_BYTES, MAX_BATCH_BYTES

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
# The stream format of snappy-java: this magic, two int32 versions, then blocks of int32 length and raw snappy.
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = len(_SNAPPY_MAGIC) + 8
# The most bytes decompressed in one step: the size that a blob declares is not trusted.
_PIECE = 1 << 20


class _TooLarge(ValueError):
    pass


def _gzip(blob: bytes) -> bytes:
    data = b""
    while True:
        member = zlib.decompressobj(wbits=31)
        data += member.decompress(blob, MAX_BATCH_BYTES - len(data) + 1)
        if len(data) > MAX_BATCH_BYTES:
            raise _TooLarge
        if not member.eof:
            raise ValueError("the stream is cut off")
        blob = member.unused_data
        if not blob:
            return data


def _raw_snappy(block: bytes) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > MAX_BATCH_BYTES:
        raise _TooLarge
    body: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    return body


def _snappy(blob: bytes) -> bytes:
    if not blob.startswith(_SNAPPY_MAGIC):
        return _raw_snappy(blob)
    if len(blob) < _SNAPPY_HEADER:
        raise ValueError("the header is cut off")
    parts, total, at = [], 0, _SNAPPY_HEADER
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        at += 4
        if size > len(blob) - at:
            raise ValueError("a block is cut off")
        parts.append(_raw_snappy(blob[at : at + size]))
        total += len(parts[-1])
        if total > MAX_BATCH_BYTES:
            raise _TooLarge
        at += size
    return b"".join(parts)


def _stream(blob: bytes, codec: str) -> bytes:
    data = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(blob), codec) as stream:
        while piece := stream.read(_PIECE):
            data += piece
            if len(data) > MAX_BATCH_BYTES:
                raise _TooLarge
    return bytes(data)


def _zstd(blob: bytes) -> bytes:
    data = _stream(blob, "zstd")
    announced = _announced(blob)
    # libzstd may skip the size check if the last block is empty, so the plain reader decides about unusual frames.
    if announced is not None and announced != len(data):
        return zstd.decompress(blob, MAX_BATCH_BYTES)
    return data


def _announced(blob: bytes) -> int | None:
    """The size that the first zstd frame declares, None if it declares none (RFC 8878, 3.1.1.1)."""
    if len(blob) < 5 or int.from_bytes(blob[:4], "little") != zstd.MAGIC:
        return None
    single, dictionary = blob[4] >> 5 & 1, (0, 1, 2, 4)[blob[4] & 3]
    width = (single, 2, 4, 8)[blob[4] >> 6]
    at = 6 - single + dictionary
    size = int.from_bytes(blob[at : at + width], "little") + (256 if width == 2 else 0)
    return size if width else None


_READERS = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: lambda blob: _stream(blob, "lz4"),
    ZSTD: _zstd,
}
NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}


def unfold(data: np.ndarray, headers: np.ndarray, file: str) -> tuple[np.ndarray, np.ndarray]:
    """The same batches with their records uncompressed: (data uint8, headers with new positions and sizes).

    Raises MalformedLog if a blob cannot be decompressed or would exceed MAX_BATCH_BYTES.
    """
    parts: list[bytes] = []
    flat = headers.copy()
    at = 0
    for row, header in enumerate(headers):
        start, size = int(header["position"]), int(header["size"])
        whole = data[start : start + size].tobytes()
        codec = int(header["attributes"]) & CODEC_BITS
        if codec:
            whole = whole[:HEADER_BYTES] + _unfold_one(whole[HEADER_BYTES:], codec, int(header["base_offset"]), file)
            if int(header["count"]) > len(whole) // 7:
                raise MalformedLog(file, int(header["base_offset"]), "record count does not fit the batch")
            flat[row]["attributes"] = int(header["attributes"]) & ~CODEC_BITS
        flat[row]["position"], flat[row]["size"] = at, len(whole)
        parts.append(whole)
        at += len(whole)
    return np.frombuffer(b"".join(parts), np.uint8), flat


def _unfold_one(blob: bytes, codec: int, offset: int, file: str) -> bytes:
    reader = _READERS.get(codec)
    if reader is None:
        raise MalformedLog(file, offset, f"batch has compression {codec}, which is none of Kafka's")
    try:
        return reader(blob)
    except _TooLarge:
        raise MalformedLog(file, offset, f"{NAMES[codec]} batch unfolds to over {MAX_BATCH_BYTES} bytes") from None
    except (ValueError, OSError, zlib.error, pa.ArrowException) as problem:
        raise MalformedLog(file, offset, f"{NAMES[codec]} batch cannot be unfolded: {problem}") from None
