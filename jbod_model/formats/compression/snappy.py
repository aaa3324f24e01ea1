"""Codec 2: snappy, bare or in the frames of the Java library that Kafka uses.

Source: ``format_description.txt`` of google/snappy, ``SnappyOutputStream`` of xerial/snappy-java.
"""

from __future__ import annotations

from jbod_model.formats.compression.base import Output, cut, little
from jbod_model.wire import Undecodable, read_uvarint, write_uvarint

JAVA_MAGIC = b"\x82SNAPPY\x00"
_JAVA_VERSIONS = (1).to_bytes(4, "big") * 2
_JAVA_BLOCK = 32 * 1024
_LONGEST_SHORT_LITERAL = 60


def decompress(data: bytes, limit: int) -> bytes:
    """Decompress either kind. The magic bytes distinguish them."""
    out = Output(limit)
    if not data.startswith(JAVA_MAGIC):
        _decompress_block(data, out)
        return bytes(out.bytes)
    at = len(JAVA_MAGIC) + len(_JAVA_VERSIONS)
    cut(data, 0, at)
    while at < len(data):
        size = int.from_bytes(cut(data, at, 4), "big")
        _decompress_block(cut(data, at + 4, size), out)
        at += 4 + size
    return bytes(out.bytes)


def _decompress_block(data: bytes, out: Output) -> None:
    start = len(out.bytes)
    announced, at = read_uvarint(data, 0)
    if announced > out.limit - start:
        raise Undecodable(f"decompresses to more than the limit of {out.limit} bytes")
    while at < len(data):
        tag = data[at]
        kind, upper = tag & 3, tag >> 2
        at += 1
        if kind == 0:  # a literal; its length follows if six bits cannot hold it
            size = upper + 1
            if upper >= _LONGEST_SHORT_LITERAL:
                extra = upper - _LONGEST_SHORT_LITERAL + 1
                size = little(data, at, extra) + 1
                at += extra
            out.append(cut(data, at, size))
            at += size
        elif kind == 1:
            out.copy(tag >> 5 << 8 | little(data, at, 1), (upper & 7) + 4, start=start)
            at += 1
        else:
            width = 2 if kind == 2 else 4
            out.copy(little(data, at, width), upper + 1, start=start)
            at += width
    if len(out.bytes) - start != announced:
        raise Undecodable(f"snappy: {len(out.bytes) - start} bytes came out, {announced} were announced")


def compress(data: bytes) -> bytes:
    """The Java library's frames, each block one literal: every reader accepts them, and nothing is compressed."""
    blocks = [data[at : at + _JAVA_BLOCK] for at in range(0, len(data), _JAVA_BLOCK)]
    return JAVA_MAGIC + _JAVA_VERSIONS + b"".join(map(_framed, blocks))


def _framed(block: bytes) -> bytes:
    literal = bytes([61 << 2]) + (len(block) - 1).to_bytes(2, "little") + block
    packed = write_uvarint(len(block)) + literal
    return len(packed).to_bytes(4, "big") + packed
