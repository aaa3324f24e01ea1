"""The five codecs of record batches, in plain Python (R-FMT-15, R-FMT-16).

Reading is complete; writing uses the simplest form that every reader accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jbod_model.formats.compression import gzip, lz4, snappy, zstd
from jbod_model.wire import Undecodable

DEFAULT_LIMIT = 64 * 1024 * 1024
"""The most bytes that one batch may decompress to: eight times the size of Kafka's metadata batches."""


@dataclass(frozen=True, slots=True)
class Codec:
    """``decompress(data, limit)`` raises Undecodable for bad data and for more than ``limit`` bytes of output."""

    name: str
    decompress: Callable[[bytes, int], bytes]
    compress: Callable[[bytes], bytes]


def _as_it_is(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise Undecodable(f"{len(data)} bytes are more than the limit of {limit}")
    return data


CODECS: Mapping[int, Codec] = {
    0: Codec("none", _as_it_is, bytes),
    1: Codec("gzip", gzip.decompress, gzip.compress),
    2: Codec("snappy", snappy.decompress, snappy.compress),
    3: Codec("lz4", lz4.decompress, lz4.compress),
    4: Codec("zstd", zstd.decompress, zstd.compress),
}
"""By the number in a batch's attributes."""
