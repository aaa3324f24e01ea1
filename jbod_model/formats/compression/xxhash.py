"""xxHash, the checksum inside lz4 (32 bits) and zstd (64 bits). Source: ``xxhash_spec.md`` of Cyan4973/xxHash."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Variant:
    """The same algorithm in two widths."""

    bits: int
    primes: tuple[int, int, int, int, int]
    lane_rotation: int
    merge: tuple[int, int, int, int] = (1, 7, 12, 18)

    @property
    def mask(self) -> int:
        return (1 << self.bits) - 1

    def rotate(self, value: int, by: int) -> int:
        value &= self.mask
        return (value << by | value >> (self.bits - by)) & self.mask

    def round(self, accumulator: int, lane: int) -> int:
        return self.rotate(accumulator + lane * self.primes[1], self.lane_rotation) * self.primes[0] & self.mask

    def stripes(self, data: bytes) -> tuple[int, int]:
        """The accumulator after all whole stripes of four lanes, and where they end."""
        p1, p2, *_ = self.primes
        width = self.bits // 8
        lanes = [(p1 + p2) & self.mask, p2, 0, -p1 & self.mask]
        end = len(data) // (4 * width) * (4 * width)
        for at in range(0, end, 4 * width):
            for index in range(4):
                begin = at + index * width
                lanes[index] = self.round(lanes[index], int.from_bytes(data[begin : begin + width], "little"))
        total = sum(self.rotate(lane, by) for lane, by in zip(lanes, self.merge, strict=True)) & self.mask
        if self.bits == 64:
            for lane in lanes:
                total = ((total ^ self.round(0, lane)) * p1 + self.primes[3]) & self.mask
        return total, end


_XXH32 = _Variant(32, (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1), 13)
_XXH64 = _Variant(
    64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
    31,
)


def xxh32(data: bytes) -> int:
    """The 32-bit hash with seed 0."""
    v = _XXH32
    p1, p2, p3, p4, p5 = v.primes
    value, at = v.stripes(data) if len(data) >= 16 else (p5, 0)
    value = (value + len(data)) & v.mask
    for begin in range(at, len(data) - 3, 4):
        value = v.rotate(value + int.from_bytes(data[begin : begin + 4], "little") * p3, 17) * p4 & v.mask
        at = begin + 4
    for byte in data[at:]:
        value = v.rotate(value + byte * p5, 11) * p1 & v.mask
    value = (value ^ value >> 15) * p2 & v.mask
    value = (value ^ value >> 13) * p3 & v.mask
    return value ^ value >> 16


def xxh64(data: bytes) -> int:
    """The 64-bit hash with seed 0."""
    v = _XXH64
    p1, p2, p3, p4, p5 = v.primes
    value, at = v.stripes(data) if len(data) >= 32 else (p5, 0)
    value = (value + len(data)) & v.mask
    for begin in range(at, len(data) - 7, 8):
        lane = int.from_bytes(data[begin : begin + 8], "little")
        value = (v.rotate(value ^ v.round(0, lane), 27) * p1 + p4) & v.mask
        at = begin + 8
    if len(data) - at >= 4:
        value = (v.rotate(value ^ int.from_bytes(data[at : at + 4], "little") * p1, 23) * p2 + p3) & v.mask
        at += 4
    for byte in data[at:]:
        value = v.rotate(value ^ byte * p5, 11) * p1 & v.mask
    value = (value ^ value >> 33) * p2 & v.mask
    value = (value ^ value >> 29) * p3 & v.mask
    return value ^ value >> 32
