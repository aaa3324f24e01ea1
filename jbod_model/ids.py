"""Directory ids: Kafka's uuids, and the reserved ids (docs/spec/replay.md)."""

from __future__ import annotations

import base64
import random as _random
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

FIRST_FREE_LSB = 100
"""Ids (0, n) with n below this, signed, are reserved for meanings like "lost" (R-ID-2)."""

_TEXT = re.compile("[A-Za-z0-9_-]{22}(==)?")


class Uuid(NamedTuple):
    """A 128-bit id as Kafka holds it: two signed 64-bit halves, ordered by ``msb`` then ``lsb`` (R-ID-1).

    Source: Kafka's ``common.Uuid``.
    """

    msb: int
    lsb: int

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return f"Uuid.parse({str(self)!r})"

    @property
    def bytes(self) -> bytes:
        """The 16 bytes on the wire, big-endian."""
        return self.msb.to_bytes(8, "big", signed=True) + self.lsb.to_bytes(8, "big", signed=True)

    @classmethod
    def from_bytes(cls, raw: Buffer) -> Uuid:
        """The id in 16 big-endian bytes; ValueError for any other length."""
        if len(raw) != 16:
            raise ValueError(f"an id has 16 bytes, not {len(raw)}")
        return cls(*struct.unpack(">qq", raw))

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """The id in URL-safe base64 of 22 characters, with or without padding; ValueError otherwise."""
        if not _TEXT.fullmatch(text):
            raise ValueError(f"{text[:30]!r} is no id: expected 22 characters of URL-safe base64")
        return cls.from_bytes(base64.urlsafe_b64decode(text[:22] + "=="))


@lru_cache(1 << 16)
def _text(directory: Uuid) -> str:
    """A log repeats few ids many times, so conversions are cached."""
    return base64.urlsafe_b64encode(directory.bytes).rstrip(b"=").decode("ascii")


ZERO = Uuid(0, 0)


def reserved(directory: Uuid) -> bool:
    """Whether the id is reserved, so that no real directory may have it (R-ID-2).

    As in Kafka, a negative ``lsb`` counts.
    """
    return directory.msb == 0 and directory.lsb < FIRST_FREE_LSB


def random(rng: _random.Random) -> Uuid:
    """A version 4 uuid that is not reserved and whose text does not start with ``-`` (R-ID-3)."""
    while True:
        bits = rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (2 << 62)
        drawn = Uuid.from_bytes(bits.to_bytes(16, "big"))
        if not reserved(drawn) and not str(drawn).startswith("-"):
            return drawn


@dataclass(frozen=True, slots=True)
class IdTable:
    """The meanings of reserved ids. The table belongs to the log that is read, not to the rules (R-ID-4)."""

    name: str
    unassigned: Uuid
    """No directory has been chosen yet."""
    lost: Uuid
    """An unknown directory that failed."""
    migrating: Uuid
    """Some directory, assigned before directories were recorded."""

    def kind(self, directory: Uuid) -> str:
        """``unassigned``, ``lost``, ``migrating`` or, for every other id, ``assigned``."""
        return {self.unassigned: "unassigned", self.lost: "lost", self.migrating: "migrating"}.get(
            directory, "assigned"
        )


KAFKA_IDS = IdTable("kafka", unassigned=Uuid(0, 1), lost=Uuid(0, 2), migrating=Uuid(0, 0))
"""The ids that Kafka writes (``server.common.DirectoryId``). A missing id decodes to "migrating"."""

KIP858_IDS = IdTable("kip858", unassigned=Uuid(0, 0), lost=Uuid(0, 1), migrating=Uuid(0, 2))
"""The ids that KIP-858 names. No release of Kafka writes these."""

ID_TABLES = {table.name: table for table in (KAFKA_IDS, KIP858_IDS)}
