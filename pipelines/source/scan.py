"""The scanned part of a log: batch headers, transactions, the bytes after the last whole batch, and snapshots.

The sound batches before some damage are scanned like any others (R-READ-1). Markers of transactions are found in the
frames of records, so planning decodes no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from jbod_model.errors import LogChanged, MalformedLog, ReplayViolation
from jbod_model.formats import codec
from jbod_model.formats.batch import MAX_BATCH_BYTES, is_time, read_batch
from jbod_model.formats.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from pipelines.formats.batches import (
    BATCH_DTYPE,
    CONTROL_BIT,
    HEADER_BYTES,
    scan,
    scan_sound,
    verify,
)
from pipelines.formats.kernels import njit, uvarint
from pipelines.formats.records import parts_of_record
from pipelines.source.log_dir import LogDir, Segment, Snapshot
from pipelines.source.positions import Position, Tail
from pipelines.storage.objects import is_object

BEGIN, END, ABORT = 23, 24, 25
UNREADABLE = -1
"""A record that may be a marker: of a later version, or malformed. Any type below 0 is."""


@njit(cache=True, nogil=True)
def _walk(data: Any, at: int, end: int, base: int, records: int, marks: Any, count: int) -> int:
    """Appends the markers of one batch to ``marks`` after the first ``count`` rows, and what may be one; returns the
    new count.

    A separate function with one condition per ``if``: otherwise numba's code is four times slower.
    """
    for k in range(records):
        _, start, size, at = parts_of_record(data, at, end, k, False)
        frame = kind = version = 0
        if at >= 0:
            frame, after = uvarint(data, start, at)
            kind, after = uvarint(data, after, at)
            version, after = uvarint(data, after, at)
        if frame != 1 or kind < 0 or BEGIN <= kind <= ABORT:
            if count < len(marks):
                marks[count, 0] = base + k
                marks[count, 1] = kind if frame == 1 and version == 0 else UNREADABLE
                marks[count, 2] = start
                marks[count, 3] = start + size
            count += 1
        if at < 0:
            return count
    return count


@njit(cache=True, nogil=True)
def _find_markers(data: Any, headers: Any, marks: Any) -> int:
    """Writes offset, type and place of each marker to ``marks``. A malformed frame ends its batch."""
    count = 0
    for b in range(len(headers)):
        header = headers[b]
        if header.attributes & CONTROL_BIT == 0:
            at, end = header.position + HEADER_BYTES, header.position + header.size
            count = _walk(data, at, end, header.base_offset, header.count, marks, count)
    return count


# A batch of one NoOpRecord after its header: always the same bytes.
_IDLE = np.frombuffer(bytes.fromhex("1400000001080114000000"), np.uint8)


def is_idle(data: np.ndarray, headers: np.ndarray) -> np.ndarray:
    """Which batches hold only one NoOpRecord, as an idle controller writes every half second: bool[n]."""
    idle: np.ndarray = (headers["size"] == HEADER_BYTES + len(_IDLE)) & (headers["attributes"] & CONTROL_BIT == 0)
    rows = np.flatnonzero(idle)
    at = headers["position"][rows][:, None] + np.arange(HEADER_BYTES, HEADER_BYTES + len(_IDLE))
    idle[rows] = (data[at] == _IDLE).all(axis=1)
    return idle


def markers(data: np.ndarray, headers: np.ndarray, file: str) -> list[tuple[int, int]]:
    """(offset, record type) of every transaction marker in the batches of ``headers``, which are verified already.
    The type of a record that may be one is below 0.

    Raises MalformedLog for a marker that the plain codec refuses. The workers check all other records.
    """
    marks = np.empty((64, 4), np.int64)
    count = _find_markers(data, headers, marks)
    if count > len(marks):
        marks = np.empty((count, 4), np.int64)
        _find_markers(data, headers, marks)
    rows = marks[:count].tolist()
    for offset, kind, start, end in rows:
        if kind >= 0:
            codec.decode(data[start:end].tobytes(), file=file, offset=offset)
    return [(offset, kind) for offset, kind, _, _ in rows]


class MarkerState:
    """Takes markers in log order, up to the first illegal one."""

    def __init__(self) -> None:
        self.violation: ReplayViolation | None = None
        self._begin: int | None = None
        self._closed: list[tuple[int, int, bool]] = []

    def add(self, marks: Iterable[tuple[int, int]], floor: int) -> None:
        """Adds markers (offset, record type). Those below ``floor`` were read before, in whole transactions."""
        for offset, kind in marks:
            if offset >= floor and self.violation is None:
                self._add(offset, kind)

    def _add(self, offset: int, kind: int) -> None:
        if kind < 0:
            if self._begin is not None:  # outside of a transaction the workers say what is wrong with it
                self._violate(offset, f"the transaction of offset {self._begin} has a record that cannot be read")
            return
        if kind == BEGIN:
            if self._begin is not None:
                self._violate(offset, f"BeginTransactionRecord while that of offset {self._begin} is open (R-TXN-1)")
            else:
                self._begin = offset
            return
        if self._begin is None:
            name = "AbortTransactionRecord" if kind == ABORT else "EndTransactionRecord"
            self._violate(offset, f"{name} while no transaction is open (R-TXN-2, R-TXN-3)")
            return
        self._closed.append((self._begin, offset, kind == ABORT))
        self._begin = None

    def _violate(self, offset: int, problem: str) -> None:
        self.violation = ReplayViolation(offset, f"{problem}: {WRITTEN_SO}")

    @property
    def open_from(self) -> int | None:
        """Offset of the begin of a transaction that has not ended, None if there is none."""
        return self._begin

    def outside(self, end: int) -> int:
        """Returns ``end``, or the begin of the transaction around it: no part of it is visible yet (R-TXN-4)."""
        if self._begin is not None:
            end = min(end, self._begin)
        for begin, close, _ in reversed(self._closed):
            if begin < end <= close:
                end = begin
        return end

    def around(self, offset: int) -> tuple[int, int] | None:
        """Returns the offsets ``[first, last)`` of the closed transaction around ``offset``, None if there is none."""
        return next(((begin, close + 1) for begin, close, _ in self._closed if begin < offset <= close), None)

    def aborted(self) -> list[tuple[int, int]]:
        """Offsets (begin, abort) of the aborted transactions (R-TXN-3)."""
        return [(begin, close) for begin, close, is_aborted in self._closed if is_aborted]


@dataclass(frozen=True)
class Sound:
    """``headers`` (BATCH_DTYPE) of the sound batches and their transaction ``marks`` (offset, record type)."""

    headers: np.ndarray
    marks: list[tuple[int, int]]
    problem: MalformedLog | None
    """The damage after the sound batches, if any."""


def sound(data: np.ndarray, path: str, begin: int, *, next_offset: int, epoch: int) -> Sound:
    """The sound batches at the beginning of ``data`` (uint8), the first at ``next_offset``, epochs from ``epoch`` on.
    ``data`` begins at byte ``begin`` of the file.

    This checks headers, checksums, transaction markers and the order of epochs. The workers check records.
    """
    batches, problem = scan_sound(data, path, next_offset=next_offset, begin=begin)
    headers = batches.headers
    while True:
        try:
            verify(data, headers, path)
            _check_epochs(headers, path, epoch)
            return Sound(headers, markers(data, headers, path), problem)
        except MalformedLog as error:
            problem = error
            before = headers[headers["base_offset"] + headers["count"] <= error.offset]
            headers = before if len(before) < len(headers) else headers[:0]


def _check_epochs(headers: np.ndarray, path: str, epoch: int) -> None:
    epochs = np.concatenate([[epoch], headers["epoch"]])
    back = np.flatnonzero(np.diff(epochs) < 0)
    if len(back):
        at = headers[back[0]]
        raise MalformedLog(
            path, int(at["base_offset"]), f"epoch {int(at['epoch'])} follows epoch {int(epochs[back[0]])}"
        )


_WAY_OUT = (
    "take the file from another controller, or remove it if the log reaches back to offset 0 or to the end of an older "
    "complete snapshot"
)

WRITTEN_SO = (
    "its checksum is right, so compare the segment with another controller's, take that one if it differs, and report "
    "a defect of jbod if it does not"
)
"""What to do about a record that is refused, in a batch that is sound."""


@contextmanager
def snapshot_errors() -> Iterator[None]:
    """Adds to the error of a damaged snapshot what to do about it."""
    try:
        yield
    except LogChanged:
        raise
    except MalformedLog as problem:
        raise MalformedLog(problem.file, problem.offset, f"{problem.problem}: {_WAY_OUT}") from None


@snapshot_errors()
def is_complete(log: LogDir, snapshot: Snapshot) -> bool:
    """Whether a snapshot ends with its footer. One without a footer is skipped, as in Kafka's loader."""
    return _whole(log, snapshot) is not None


@snapshot_errors()
def batches_of(log: LogDir, snapshot: Snapshot) -> tuple[np.ndarray, int] | None:
    """(headers of its batches, append time in milliseconds of the last record it contains: R-LOG-6), None if it is not
    complete.

    Raises MalformedLog if it does not begin with its header record or a batch has another epoch (R-LOG-7).
    """
    whole = _whole(log, snapshot)
    if whole is None:
        return None
    data, headers = whole
    first = read_batch(data[: int(headers[0]["size"])].tobytes(), 0, file=snapshot.path)
    if first is None or not first.control or type(first.control[0]) is not SnapshotHeaderRecord:
        raise MalformedLog(snapshot.path, 0, "the snapshot does not begin with its header record")
    if (headers["epoch"] != snapshot.epoch).any():
        raise MalformedLog(snapshot.path, 0, f"a batch is not of the snapshot's epoch {snapshot.epoch}")
    time = first.control[0].last_contained_log_timestamp
    if not is_time(time):
        raise MalformedLog(snapshot.path, 0, f"last contained log timestamp is {time}")
    return headers, time


def _whole(log: LogDir, snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray] | None:
    """The bytes of a complete snapshot and the headers of its batches."""
    data = log.read(snapshot.path, 0, snapshot.size)
    whole = scan(data, snapshot.path, next_offset=0)
    if not whole.complete or not len(whole.headers):
        return None
    last = whole.headers[-1]
    start = int(last["position"])
    batch = read_batch(data[start : start + int(last["size"])].tobytes(), 0, file=snapshot.path)
    ends = batch is not None and bool(batch.control) and type(batch.control[-1]) is SnapshotFooterRecord
    return (data, whole.headers) if ends else None


def check_follows(snapshot: Snapshot, scanned: Iterable[tuple[Segment, np.ndarray]]) -> None:
    """R-LOG-5: a snapshot ends where a batch ends, and epochs do not decrease after it.

    ``scanned``: segments and headers (BATCH_DTYPE) in log order. Raises MalformedLog that names the first batch that
    breaks the rule.
    """
    for segment, headers in scanned:
        ends = headers["base_offset"] + headers["count"]
        for header in headers[ends > snapshot.end_offset][:1]:
            base, epoch = int(header["base_offset"]), int(header["epoch"])
            if base < snapshot.end_offset:
                raise MalformedLog(segment.path, base, f"the snapshot ends inside this batch, at {snapshot.end_offset}")
            if epoch < snapshot.epoch:
                raise MalformedLog(segment.path, base, f"epoch {epoch} follows epoch {snapshot.epoch} of the snapshot")


_WINDOW = 4 << 20
_WINDOW_ON_S3 = 16 << 20
"""Bytes read at once: each is a request on S3."""


class _File:
    """A segment and the headers of its batches. Their array doubles: an idle controller adds one batch at a time."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.scanned = 0
        self._count = 0
        self._held = np.empty(0, BATCH_DTYPE)

    @property
    def headers(self) -> np.ndarray:
        """Headers (BATCH_DTYPE) of the batches scanned, in log order."""
        return self._held[: self._count]

    def add(self, headers: np.ndarray) -> None:
        """Adds the headers of the batches that follow."""
        end = self._count + len(headers)
        if end > len(self._held):
            grown = np.empty(max(end, 2 * len(self._held)), BATCH_DTYPE)
            grown[: self._count] = self.headers
            self._held = grown
        self._held[self._count : end] = headers
        self._count = end


class Scan:
    """The scanned part of a log. It grows with the log; if the log is cut off, a new scan replaces it."""

    def __init__(self, log: LogDir, tail: str) -> None:
        self._log = log
        self._tail = tail
        self._files: dict[str, _File] = {}
        self.transactions = MarkerState()
        self.next_offset = -1
        """Offset after the last complete batch, -1 if there is none."""
        self.epoch = -1
        """Epoch of the last batch, -1 if there is none."""
        self._stirred = -1
        """Offset after the last batch that holds more than NoOpRecords."""
        self.damage: MalformedLog | None = None
        """The damage after the last sound batch, if any."""
        self.tail: Tail | None = None

    # -- growing ------------------------------------------------------------------------------------------------

    @property
    def is_begun(self) -> bool:
        """Whether a segment was scanned."""
        return bool(self._files)

    def is_cut(self, segments: Sequence[Segment]) -> bool:
        """Whether scanned batches are gone: the end was cut off, and perhaps rewritten."""
        first = segments[0].base_offset if segments else -1
        sizes = {segment.path: segment.size for segment in segments}
        for file in self._files.values():
            # Retention deleted a segment below the first one on disk, not an election.
            behind = file.segment.path not in sizes and file.segment.base_offset < first
            if not behind and sizes.get(file.segment.path, -1) < file.scanned:
                return True
        read = [file for file in self._files.values() if len(file.headers) and file.segment.path in sizes]
        if not read:
            return False
        last = read[-1].headers[-1]
        start = int(last["position"])
        head = self._log.read(read[-1].segment.path, start, start + HEADER_BYTES).tobytes()
        fields = head[:8], head[12:16], head[17:21]
        values = zip((last["base_offset"], last["epoch"], last["crc"]), (8, 4, 4), strict=True)
        return fields != tuple(int(value).to_bytes(size, "big") for value, size in values)

    def read_on(self, segments: Sequence[Segment], floor: int, decided: int) -> None:
        """Scans what is new, from the segment that holds ``floor`` on, and forgets the segments before it.

        All transactions below ``decided`` were read completely. Raises LogChanged if the log is cut off meanwhile.
        """
        wanted = [segment for i, segment in enumerate(segments) if _reaches(segments, i, floor)]
        self.damage = self.tail = None
        try:
            self._scan_all(wanted, decided)
        except LogChanged:
            raise
        except MalformedLog as problem:
            self.damage = problem
        for path in [path for path in self._files if path not in {s.path for s in wanted}]:
            del self._files[path]

    def _scan_all(self, wanted: Sequence[Segment], floor: int) -> None:
        for index, segment in enumerate(wanted):
            known = self._files.get(segment.path)
            if known is None:
                end, begin = self.next_offset, segment.base_offset
                if end >= 0 and begin != end:
                    gap = f"gap: offset {end} is missing before {begin}"
                    overlap = f"overlap: the segment before it has the offsets from {begin} to {end - 1}, too"
                    raise MalformedLog(segment.path, end, gap if begin > end else overlap)
                known = self._files[segment.path] = _File(segment)
                if self.next_offset < 0:
                    self.next_offset = segment.base_offset
            self._scan(known, segment.size, floor, last=index == len(wanted) - 1)

    def _scan(self, file: _File, size: int, floor: int, *, last: bool) -> None:
        path, window = file.segment.path, _WINDOW_ON_S3 if is_object(self._log.log_dir) else _WINDOW
        while file.scanned < size:
            wanted = min(file.scanned + window, size)
            data = self._log.read(path, file.scanned, wanted)
            if file.scanned + len(data) < wanted:
                raise LogChanged(path, self.next_offset, "the file was cut off while it was read")
            # Verify the bytes: the decisions below, above all about transactions, depend on them.
            sound_batches = sound(data, path, file.scanned, next_offset=self.next_offset, epoch=self.epoch)
            if len(sound_batches.headers):
                self._take(file, data, sound_batches.headers, sound_batches.marks, floor)
            if sound_batches.problem is not None:
                raise sound_batches.problem
            if len(sound_batches.headers):
                continue
            if wanted < size and window > MAX_BATCH_BYTES:
                raise MalformedLog(path, self.next_offset, f"batch length is out of range (byte {file.scanned})")
            if wanted == size:
                if not last or self._tail == "stop":
                    raise MalformedLog(
                        path, self.next_offset, f"batch is cut off at the end of the file (byte {file.scanned})"
                    )
                self.tail = Tail(path, size - file.scanned, self.next_offset)
                return
            window *= 2

    def _take(
        self, file: _File, data: np.ndarray, headers: np.ndarray, marks: list[tuple[int, int]], floor: int
    ) -> None:
        self.transactions.add(marks, floor)
        stirring = np.flatnonzero(~is_idle(data, headers))
        if len(stirring):
            self._stirred = int(headers["base_offset"][stirring[-1]] + headers["count"][stirring[-1]])
        headers["position"] += file.scanned
        file.add(headers)
        last = headers[-1]
        self.epoch = int(last["epoch"])
        self.next_offset = int(last["base_offset"]) + int(last["count"])
        file.scanned = int(last["position"]) + int(last["size"])

    # -- what was seen ------------------------------------------------------------------------------------------

    def headers(self) -> np.ndarray:
        """Headers (BATCH_DTYPE) of all batches scanned, in log order."""
        pieces = [headers for _, headers in self.files()]
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, BATCH_DTYPE), *pieces])

    def position(self, offset: int, snapshot: int) -> Position:
        """The position at ``offset``, with the fingerprint of the batch before it."""
        header = self._before(offset)
        if header is None:
            return Position(offset, snapshot=snapshot)
        return Position(offset, int(header["base_offset"]), int(header["epoch"]), int(header["crc"]), snapshot)

    def changed(self, position: Position) -> bool:
        """Whether the batch before ``position`` has changed: history was rewritten below it."""
        if position.base < 0:
            return False
        header = self._before(position.base + 1)
        if header is not None and int(header["base_offset"]) == position.base:
            return (int(header["epoch"]), int(header["crc"])) != (position.epoch, position.crc)
        scanned = [file.segment.base_offset for file in self._files.values()]
        if not scanned or min(scanned) <= position.base:
            # A log that merely ends earlier does not prove a rewrite.
            return bool(scanned) and (self.next_offset > position.base or self.epoch > position.epoch)
        # The position lies before the oldest segment: only an older epoch at the log's start proves a rewrite.
        first = self.headers()[:1]
        return len(first) > 0 and int(first[0]["epoch"]) < position.epoch

    def _before(self, offset: int) -> np.void | None:
        """The header of the last batch that begins before ``offset``, None if none was scanned."""
        for file in reversed(self._files.values()):
            at = int(np.searchsorted(file.headers["base_offset"], offset))
            if at:
                header: np.void = file.headers[at - 1]
                return header
        return None

    def covers(self, start: Position, end: Position) -> bool:
        """Whether the batches between two positions are scanned."""
        first = min((f.segment.base_offset for f in self._files.values()), default=-1)
        return (
            0 <= first <= max(start.offset, end.snapshot if end.snapshot != start.snapshot else 0, 0)
            and end.offset <= self.next_offset
        )

    def is_quiet(self, start: Position, end: Position) -> bool:
        """Whether there are only NoOpRecords between two positions."""
        return self._stirred <= start.offset and end.snapshot == start.snapshot

    def time(self, offset: int) -> int:
        """Append time in milliseconds of the last batch before ``offset``, -1 if none was scanned."""
        header = self._before(offset)
        return -1 if header is None else int(header["timestamp"])

    def files(self) -> list[tuple[Segment, np.ndarray]]:
        """The segments that have batches, and the headers of these batches."""
        return [(file.segment, file.headers) for file in self._files.values() if len(file.headers)]

    def first_offset(self) -> int | None:
        """First offset of the first scanned segment, None if there is none."""
        return min((file.segment.base_offset for file in self._files.values()), default=None)


def _reaches(segments: Sequence[Segment], index: int, floor: int) -> bool:
    return index + 1 == len(segments) or segments[index + 1].base_offset > floor
