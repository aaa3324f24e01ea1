"""CRC-32C (Castagnoli), the checksum of record batches (R-FMT-12)."""

from __future__ import annotations

from itertools import accumulate, repeat

_POLYNOMIAL = 0x82F63B78


def _entry(byte: int) -> int:
    *_, entry = accumulate(repeat(0, 8), lambda crc, _: crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0), initial=byte)
    return entry


_TABLE = tuple(_entry(byte) for byte in range(256))


def crc32c(data: bytes | memoryview, crc: int = 0) -> int:
    """The checksum of ``data``, continued from the checksum of the bytes before it."""
    crc ^= 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
