"""Mutations of good inputs: kinds of damage on which readers of binary formats have failed."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
_INTS = (0, 1, -1, 2**31 - 1, -(2**31), 2**16, 2**24, 0x7FFFFFF0)
_LONGS = (-1, 2**63 - 1, -(2**63), 2**53)
_VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80\x80\x00")


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One to four changes of one seed."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        data = _changed(chance, data, seeds)
    return bytes(data)


def _changed(chance: random.Random, data: bytearray, seeds: Sequence[bytes]) -> bytearray:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(9)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.choice(_BYTES)
    elif kind == 2:
        value = struct.pack(chance.choice((">i", "<i")), chance.choice(_INTS))
        data[at : at + 4] = value
    elif kind == 3:
        data[at : at + 8] = struct.pack(">q", chance.choice(_LONGS))
    elif kind == 4:
        data[at : at + chance.randrange(6)] = chance.choice(_VARINTS)
    elif kind == 5:
        del data[at:]
    elif kind == 6:
        del data[at : at + chance.randrange(1, 16)]
    elif kind == 7:
        piece = data[at : at + chance.randrange(1, 64)]
        data[at:at] = piece * chance.choice((1, 1, 2, 50))
    else:
        other = chance.choice(seeds)
        start = chance.randrange(len(other) + 1)
        data[at : at + chance.randrange(32)] = other[start : start + chance.randrange(1, 64)]
    return data
