"""Record batches of a segment or snapshot: their positions, and the check of their headers and checksums.

Layout and rules: semantics of Kafka's DefaultRecordBatch (magic 2) as the raft reader RecordsIterator applies them.
A batch is the unit of atomicity: an incomplete batch does not exist yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from crc32c import crc32c

from jbod_model.errors import MalformedLog
from jbod_model.formats.batch import LAST_TIME, MAX_BATCH_BYTES, compression_problem
from pipelines.formats.kernels import load_i16, load_i32, load_i64, load_u32, njit

HEADER_BYTES = 61
CODEC_BITS = 0x07
CONTROL_BIT = 0x20

_COMPLETE, _INCOMPLETE, _BAD_LENGTH, _BAD_MAGIC, _BAD_COUNT, _BAD_OFFSET, _BAD_EPOCH, _BAD_CODEC, _BAD_TIME = range(9)
_PROBLEMS = {
    _BAD_LENGTH: "batch length is out of range",
    _BAD_MAGIC: "batch magic is not 2: not a metadata log, or damaged",
    _BAD_EPOCH: "epoch of a batch is negative",
    _BAD_TIME: "timestamp of the batch is out of range",
    _BAD_COUNT: "record count does not fit the batch",
    _BAD_OFFSET: "base offset of the batch does not follow on the one before: records are missing or repeated",
}

BATCH_DTYPE = np.dtype(
    [
        ("position", np.int64),
        ("size", np.int32),
        ("base_offset", np.int64),
        ("count", np.int32),
        ("epoch", np.int32),
        ("attributes", np.int16),
        ("timestamp", np.int64),
        ("crc", np.uint32),
    ]
)


@dataclass(frozen=True)
class Batches:
    """Headers of consecutive batches (``headers``: BATCH_DTYPE) and where they end.

    ``end`` is the byte after the last complete batch. ``complete`` is false if bytes of an incomplete batch follow.
    """

    headers: np.ndarray
    end: int
    complete: bool

    @property
    def next_offset(self) -> int:
        """Offset after the last record, -1 if there is no batch."""
        if not len(self.headers):
            return -1
        last = self.headers[-1]
        return int(last["base_offset"]) + int(last["count"])


@njit(cache=True, nogil=True)
def _scan(data: Any, at: int, floor: int, headers: Any) -> tuple[int, int, int]:
    rows = 0
    end = len(data)
    while rows < len(headers):
        # An incomplete batch may still be written. The part of its header on disk is checked already (R-FMT-14).
        if end - at > 16 and data[at + 16] != 2:
            return rows, at, _BAD_MAGIC
        if end - at < HEADER_BYTES:
            return rows, at, _COMPLETE if at == end else _INCOMPLETE
        base = load_i64(data, at)
        if base < 0:  # R-FMT-11: every field of the head in its range
            return rows, at, _BAD_OFFSET
        length = np.int64(load_i32(data, at + 8))
        if length < HEADER_BYTES - 12:
            return rows, at, _BAD_LENGTH
        if load_i32(data, at + 12) < 0:
            return rows, at, _BAD_EPOCH
        timestamp = load_i64(data, at + 35)
        if timestamp < -1 or timestamp > LAST_TIME:
            return rows, at, _BAD_TIME
        attributes = load_i16(data, at + 21)
        if attributes & CODEC_BITS:  # R-FMT-15
            return rows, at, _BAD_CODEC
        delta = np.int64(load_i32(data, at + 23))
        count = np.int64(load_i32(data, at + 57))
        if count < 1 or delta != count - 1:
            return rows, at, _BAD_COUNT
        size = length + 12
        if size > end - at:
            return rows, at, _INCOMPLETE
        if floor >= 0 and base != floor:
            return rows, at, _BAD_OFFSET
        if size - HEADER_BYTES > MAX_BATCH_BYTES:  # R-FMT-16
            return rows, at, _BAD_LENGTH
        if count > size // 7:  # the smallest record has 7 bytes
            return rows, at, _BAD_COUNT
        header = headers[rows]
        header.position = at
        header.size = size
        header.base_offset = base
        header.count = count
        header.epoch = load_i32(data, at + 12)
        header.attributes = attributes
        header.timestamp = timestamp
        header.crc = load_u32(data, at + 17)
        rows += 1
        at += size
        floor = base + count
    return rows, at, _COMPLETE


def scan(data: np.ndarray, file: str, start: int = 0, *, next_offset: int = -1, most: int = 1 << 16) -> Batches:
    """Headers of the complete batches of ``data`` (uint8) from byte ``start``.

    ``next_offset`` is the base offset expected first, -1 for any. Raises MalformedLog if a header is invalid. A batch
    that is cut off at the end of the data is no error: Kafka may still be writing it.
    """
    batches, problem = scan_sound(data, file, start, next_offset=next_offset, most=most)
    if problem is not None:
        raise problem
    return batches


def scan_sound(
    data: np.ndarray, file: str, start: int = 0, *, next_offset: int = -1, most: int = 1 << 16, begin: int = 0
) -> tuple[Batches, MalformedLog | None]:
    """As ``scan``, but returns the error (None if there is none) with the batches before it.

    ``data`` begins at byte ``begin`` of the file.
    """
    parts: list[np.ndarray] = []
    at, status = start, _COMPLETE
    problem = None
    while True:
        headers = np.empty(most, BATCH_DTYPE)
        rows, at, status = _scan(data, at, next_offset, headers)
        parts.append(headers[:rows])
        if rows:
            next_offset = int(headers[rows - 1]["base_offset"]) + int(headers[rows - 1]["count"])
        if status not in (_COMPLETE, _INCOMPLETE):
            reason = _PROBLEMS.get(status) or compression_problem(int(data[at + 22]) & CODEC_BITS)
            problem = MalformedLog(file, max(next_offset, 0), f"{reason} (byte {begin + at})")
        if status != _COMPLETE or at == len(data):
            return Batches(np.concatenate(parts), at, complete=status == _COMPLETE), problem


def verify(data: np.ndarray, headers: np.ndarray, file: str) -> None:
    """Compares every batch's CRC-32C (R-FMT-12) with its header. Raises MalformedLog for the first bad batch."""
    view = memoryview(data)
    ends = headers["position"] + headers["size"]
    for start, end, crc, base in zip(
        (headers["position"] + 21).tolist(),
        ends.tolist(),
        headers["crc"].tolist(),
        headers["base_offset"].tolist(),
        strict=True,
    ):
        if crc32c(view[start:end]) != crc:
            raise MalformedLog(file, base, "CRC-32C of the batch does not match its bytes")
