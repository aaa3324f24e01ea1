"""Codec 1: gzip, by the standard library's zlib."""

from __future__ import annotations

import zlib

from jbod_model.formats.compression.base import Output
from jbod_model.wire import Undecodable

_GZIP_WINDOW = 31


def decompress(data: bytes, limit: int) -> bytes:
    """The content of all members, concatenated."""
    out = Output(limit)
    rest = data
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            out.append(member.decompress(rest, limit - len(out.bytes) + 1))
        except zlib.error as problem:
            raise Undecodable(f"gzip: {problem}") from None
        if not member.eof:
            raise Undecodable("gzip: compressed data ends early")
        rest = member.unused_data
        if not rest:
            return bytes(out.bytes)


def compress(data: bytes) -> bytes:
    """One member."""
    member = zlib.compressobj(wbits=_GZIP_WINDOW)
    return member.compress(data) + member.flush()
