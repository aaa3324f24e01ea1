"""What every decompressor needs: bounded output, and reads that check the remaining bytes."""

from __future__ import annotations

from collections.abc import Callable

from jbod_model.wire import Undecodable

SKIPPABLE = range(0x184D2A50, 0x184D2A60)
"""Magic numbers of frames that both lz4 and zstd skip."""


class Output:
    """The output, at most ``limit`` bytes: a small input must not fill the memory (R-FMT-16)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = bytearray()

    def append(self, data: bytes | bytearray) -> None:
        """Add literal bytes."""
        self._reserve(len(data))
        self.bytes += data

    def repeat(self, byte: int, count: int) -> None:
        """Add the same byte ``count`` times."""
        self._reserve(count)
        self.bytes += bytes([byte]) * count

    def copy(self, distance: int, count: int, *, start: int = 0) -> None:
        """Repeat ``count`` bytes from ``distance`` bytes back; the ranges may overlap.

        ``start``: where history begins.
        """
        if not 0 < distance <= len(self.bytes) - start:
            raise Undecodable(f"a match goes {distance} bytes back, and there are {len(self.bytes) - start}")
        self._reserve(count)
        here = len(self.bytes) - distance
        if distance >= count:
            self.bytes += self.bytes[here : here + count]
        else:
            pattern = bytes(self.bytes[here:])
            self.bytes += (pattern * (count // distance + 1))[:count]

    def _reserve(self, count: int) -> None:
        if count > self.limit - len(self.bytes):
            raise Undecodable(f"decompresses to more than the limit of {self.limit} bytes")


def little(data: bytes, at: int, size: int) -> int:
    """A little-endian number of ``size`` bytes."""
    return int.from_bytes(cut(data, at, size), "little")


def cut(data: bytes, at: int, size: int) -> bytes:
    """``size`` bytes at ``at``; Undecodable if fewer remain."""
    if size > len(data) - at:
        raise Undecodable(f"compressed data ends early: {len(data) - at} bytes remain where {size} are needed")
    return data[at : at + size]


def read_frames(
    data: bytes, limit: int, name: str, magic: int, read_frame: Callable[[bytes, int, Output], int]
) -> bytes:
    """The content of a sequence of frames, without the skippable frames of lz4 and zstd.

    ``read_frame(data, at, out)`` reads the frame whose magic ends at ``at`` and returns where the next begins.
    """
    out = Output(limit)
    at = 0
    while at < len(data):
        found = little(data, at, 4)
        if found in SKIPPABLE:
            size = little(data, at + 4, 4)
            cut(data, at + 8, size)
            at += 8 + size
        elif found == magic:
            at = read_frame(data, at + 4, out)
        else:
            raise Undecodable(f"{name}: a frame starts with {found:#x}")
    return bytes(out.bytes)
