"""Record batches as they come from a leader: where whole ones end, and whether they are sound and follow each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import crc32c

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import BatchHeader, read_header

_CRC_COVERS_FROM = 21


class Place(NamedTuple):
    """The end of a log: the offset of the next record, and the epoch of the last one (-1 if there is none)."""

    offset: int
    epoch: int


def sound_batches(data: bytes, source: str) -> Iterator[BatchHeader]:
    """The headers of the whole batches in ``data``, whose checksums are compared. Raises MalformedLog.

    The bytes may end within a batch: that one is left out.
    """
    at = 0
    while (header := read_header(data, at, file=source)) is not None:
        body = memoryview(data)[at + _CRC_COVERS_FROM : at + header.size]
        if crc32c.crc32c(body) != header.crc:
            raise MalformedLog(source, header.base_offset, "the CRC-32C of a batch does not match")
        yield header
        at += header.size


def check_follows(header: BatchHeader, end: Place, leader_epoch: int, source: str) -> Place:
    """The end after a batch. Raises MalformedLog for one that is not the next of the log."""
    if header.base_offset != end.offset:
        raise MalformedLog(source, header.base_offset, f"a batch comes where offset {end.offset} is next")
    if not end.epoch <= header.epoch <= leader_epoch:
        raise MalformedLog(source, header.base_offset, f"epoch {header.epoch} comes after {end.epoch}")
    return Place(header.last_offset + 1, header.epoch)
