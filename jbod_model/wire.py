"""Kafka's primitive types as bytes: big-endian numbers, varints, and values with their length before them.

A reader takes a buffer and a position, and returns the value and the position after it. It compares every length with
the remaining bytes before it allocates anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jbod_model.errors import UsageError
from jbod_model.ids import Uuid

Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[Any], bytes]

LONGEST_STRING = 0x7FFF
"""The most bytes of UTF-8 in a string. Kafka's readers refuse longer strings."""


class Undecodable(ValueError):
    """Bytes that cannot be read. The caller knows file and offset, and raises MalformedLog instead."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """How to read and write a type."""

    read: Read
    write: Write


def read_uvarint(buffer: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of at most 32 bits, seven a byte, lowest first (R-FMT-4)."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(buffer):
            raise Undecodable("ends inside a varint")
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise Undecodable("a varint is over 32 bits")
            return value, at
    raise Undecodable("a varint has more than 5 bytes")


def write_uvarint(value: int) -> bytes:
    """The shortest encoding."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varlong(buffer: bytes, at: int) -> tuple[int, int]:
    """A signed number of at most 64 bits in zigzag: 0, -1, 1, -2 are 0, 1, 2, 3 (R-FMT-4)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(buffer):
            raise Undecodable("ends inside a varlong")
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFFFFFFFFFF:
                raise Undecodable("a varlong is over 64 bits")
            return (value >> 1) ^ -(value & 1), at
    raise Undecodable("a varlong has more than 10 bytes")


def write_varlong(value: int) -> bytes:
    """The shortest encoding, in zigzag."""
    return write_uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_varint(buffer: bytes, at: int) -> tuple[int, int]:
    """A signed number of at most 32 bits in zigzag (R-FMT-4)."""
    value, at = read_uvarint(buffer, at)
    return (value >> 1) ^ -(value & 1), at


def _number(layout: str) -> Primitive:
    """A number of a fixed size, big-endian (R-FMT-5)."""
    packed = struct.Struct(">" + layout)

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        if len(buffer) - at < packed.size:
            raise Undecodable(f"{len(buffer) - at} bytes remain where {packed.size} are needed")
        return packed.unpack_from(buffer, at)[0], at + packed.size

    def write(value: Any) -> bytes:
        try:
            return packed.pack(value)
        except struct.error as problem:
            raise UsageError(f"{value!r} does not fit its field: {problem}") from None

    return Primitive(read, write)


def take(buffer: bytes, at: int, size: int) -> tuple[bytes, int]:
    """``size`` bytes, after a comparison with the remaining bytes (R-FMT-6)."""
    if size > len(buffer) - at:
        raise Undecodable(f"{len(buffer) - at} bytes remain where {size} are announced")
    return bytes(buffer[at : at + size]), at + size


def _read_bytes(buffer: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_uvarint(buffer, at)
    return (None, at) if length == 0 else take(buffer, at, length - 1)


def _write_bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else write_uvarint(len(value) + 1) + value


def _read_string(buffer: bytes, at: int) -> tuple[str | None, int]:
    raw, at = _read_bytes(buffer, at)
    if raw is None:
        return None, at
    if len(raw) > LONGEST_STRING:
        raise Undecodable(f"a string has {len(raw)} bytes, more than {LONGEST_STRING}")
    try:
        return raw.decode("utf-8"), at
    except UnicodeDecodeError as problem:
        raise Undecodable(f"a string is not UTF-8: {problem.reason}") from None


def _write_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    try:
        raw = value.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(f"{value[:40]!r} cannot be written as UTF-8: {problem.reason}") from None
    if len(raw) > LONGEST_STRING:
        raise UsageError(f"{value[:40]!r}... has {len(raw)} bytes of UTF-8, more than {LONGEST_STRING}")
    return _write_bytes(raw)


def _read_uuid(buffer: bytes, at: int) -> tuple[Uuid, int]:
    raw, at = take(buffer, at, 16)
    return Uuid.from_bytes(raw), at


_INT8 = _number("b")

PRIMITIVES: Mapping[str, Primitive] = {
    "bool": Primitive(
        lambda buffer, at: (_INT8.read(buffer, at)[0] != 0, at + 1), lambda value: b"\1" if value else b"\0"
    ),
    "int8": _INT8,
    "int16": _number("h"),
    "uint16": _number("H"),
    "int32": _number("i"),
    "int64": _number("q"),
    "float64": _number("d"),
    "uuid": Primitive(_read_uuid, lambda value: value.bytes),
    "string": Primitive(_read_string, _write_string),
    "bytes": Primitive(_read_bytes, _write_bytes),
}
"""``string`` and ``bytes`` read None if the length means null; the field decides whether null is allowed (R-FMT-6)."""
