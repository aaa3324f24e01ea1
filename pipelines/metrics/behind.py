"""How far a lake is behind the log on disk. It reads only batch headers, in a long segment only those near the end."""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from jbod_model.errors import MalformedLog, UsageError
from jbod_model.formats.batch import Data, read_header
from jbod_model.formats.log import MetadataLog, Segment

_ENTRY = struct.Struct(">ii")


@dataclass(frozen=True)
class Behind:
    """The part of a log that a lake has not read, in records and in bytes of whole batches."""

    end_offset: int
    """Offset after the last complete record on disk."""
    records: int
    bytes: int


def behind(log_dir: str, seen: int) -> Behind:
    """How far a lake that has read all offsets below ``seen`` is behind the log in ``log_dir`` (a local path).

    Raises UsageError if there is no log, and MalformedLog if the files are not a log.
    """
    log = MetadataLog.open(Path(log_dir))
    if not log.segments:
        end = max(snapshot.end_offset for snapshot in log.snapshots)
        return Behind(end, max(end - seen, 0), 0)
    last = log.segments[-1]
    end, unread = _walk(last, max(seen, last.base_offset))
    for segment, after in zip(log.segments[:-1], log.segments[1:], strict=True):
        if after.base_offset > seen:
            unread += _walk(segment, max(seen, segment.base_offset))[1]
    return Behind(end, max(end - seen, 0), unread)


def _walk(segment: Segment, seen: int) -> tuple[int, int]:
    """Offset after the segment's last whole batch, and bytes of the batches that end after ``seen``."""
    try:
        with segment.path.open("rb") as file:
            if file.seek(0, 2) == 0:
                return segment.base_offset, 0
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                first = _seek(segment, data, seen)
                begin = _end(segment, data, first, seen)[1]
                end, stop = _end(segment, data, max(first, _seek(segment, data, None)), None)
                return end, stop - begin
    except OSError as problem:
        raise UsageError(f"{segment.path}: cannot be read: {problem.strerror}") from None


def _end(segment: Segment, data: Data, at: int, until: int | None) -> tuple[int, int]:
    """Reads on from the batch at byte ``at``: offset and byte after the last whole batch (that ends by ``until``)."""
    offset = segment.base_offset
    while (header := read_header(data, at, file=str(segment.path))) is not None:
        if until is not None and header.last_offset >= until:
            break
        offset, at = header.last_offset + 1, at + header.size
    return offset, at


def _seek(segment: Segment, data: Data, offset: int | None) -> int:
    """By the offset index: the start of a batch at or before the one with ``offset`` (None: the last), in bytes.

    Kafka keeps a sparse index beside each segment. An entry has an offset, relative to the segment's first, and the
    byte of the batch that ends with it. The active index is padded with zeros. Returns 0 without a credible index.
    """
    try:
        index = segment.path.with_suffix(".index").read_bytes()
    except OSError:
        return 0
    count = len(index) // _ENTRY.size

    def beyond(entry: int) -> bool:
        relative, at = _ENTRY.unpack_from(index, entry * _ENTRY.size)
        return not at or (offset is not None and segment.base_offset + relative > offset)

    found = bisect_left(range(count), True, key=beyond) - 1
    if found < 0:
        return 0
    relative, at = _ENTRY.unpack_from(index, found * _ENTRY.size)
    try:
        header = read_header(data, at, file=str(segment.path)) if 0 < at < len(data) else None
    except MalformedLog:
        return 0
    return at if header is not None and header.last_offset == segment.base_offset + relative else 0
