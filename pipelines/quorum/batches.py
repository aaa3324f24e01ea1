"""Record batches as they come from a leader: where whole ones end, and whether they are sound and follow each other.

Only what a copy depends on is looked at here; the readers of the copy look at everything (R-FMT-11).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import crc32c

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import MAGIC

Data = bytes | memoryview
_HEAD = struct.Struct(">qiibIhiqq")
_BEFORE_LENGTH_ENDS = 12
_CRC_COVERS_FROM = 21
_LEAST = 49
"""The least length of a batch that its header may announce."""


class EndOfLog(NamedTuple):
    """The end of a log: the offset of the next record, and the epoch of the last one (-1 if there is none)."""

    offset: int
    epoch: int


class BatchPlace(NamedTuple):
    """Where a batch is in the bytes, and in the log."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    epoch: int
    max_timestamp: int


def sound_batches(data: Data, source: str) -> Iterator[BatchPlace]:
    """The whole batches in ``data``, whose checksums are compared. Raises MalformedLog.

    The bytes may end within a batch: that one is left out.
    """
    view, at, size = memoryview(data), 0, len(data)
    while size - at >= _HEAD.size:
        base, length, epoch, magic, crc, _, delta, _, timestamp = _HEAD.unpack_from(view, at)
        if magic != MAGIC or length < _LEAST or base < 0 or delta < 0 or epoch < 0:
            raise MalformedLog(source, base, f"byte {at} starts no record batch")
        end = at + _BEFORE_LENGTH_ENDS + length
        if end > size:
            return
        if crc32c.crc32c(view[at + _CRC_COVERS_FROM : end]) != crc:
            raise MalformedLog(source, base, "the CRC-32C of a batch does not match")
        yield BatchPlace(at, end, base, base + delta, epoch, timestamp)
        at = end


def check_follows(batch: BatchPlace, end: EndOfLog, leader_epoch: int, source: str) -> EndOfLog:
    """The end after a batch. Raises MalformedLog for one that is not the next of the log."""
    if batch.base_offset != end.offset:
        raise MalformedLog(source, batch.base_offset, f"a batch comes where offset {end.offset} is next")
    if not end.epoch <= batch.epoch <= leader_epoch:
        raise MalformedLog(source, batch.base_offset, f"epoch {batch.epoch} comes after {end.epoch}")
    return EndOfLog(batch.last_offset + 1, batch.epoch)
