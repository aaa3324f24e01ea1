"""The transactions of a log, as far as their markers were read, and the offsets where a reader may stop.

Markers are found in the frames of records, so planning decodes no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jbod_model.errors import ReplayViolation
from jbod_model.formats import codec
from pipelines.formats.batches import CONTROL_BIT, HEADER_BYTES
from pipelines.formats.kernels import njit, uvarint, varint, zero

BEGIN, END, ABORT = 23, 24, 25


@njit(cache=True, nogil=True)
def _walk(data: Any, at: int, end: int, base: int, records: int, found: Any, count: int) -> int:
    """Appends the markers of one batch to ``found`` after the first ``count`` rows; returns the new count.

    A separate function with one condition per ``if``: otherwise numba's code is four times slower.
    """
    for k in range(records):
        length, at, fine = varint(data, at, end)
        if not fine or length < 6 or length > end - at:
            return count
        stop = at + length
        at = zero(data, at + 1, stop, 10)  # attributes, timestamp delta
        if at < 0:
            return count
        delta, at, fine = varint(data, at, stop)
        if not fine or delta != k:
            return count
        key, at, fine = varint(data, at, stop)
        if not fine or key >= 0:
            return count
        size, at, fine = varint(data, at, stop)
        if not fine or size <= 0 or size > stop - at:
            return count
        if zero(data, at + size, stop, 5) != stop:
            return count
        start = at
        frame, at = uvarint(data, at, stop)
        kind, at = uvarint(data, at, stop)
        version, at = uvarint(data, at, stop)
        if frame == 1 and BEGIN <= kind <= ABORT and version == 0:
            if count < len(found):
                found[count, 0] = base + k
                found[count, 1] = kind
                found[count, 2] = start
                found[count, 3] = start + size
            count += 1
        at = stop
    return count


@njit(cache=True, nogil=True)
def _find_markers(data: Any, headers: Any, found: Any) -> int:
    """Writes offset, type and value of each marker to ``found``. The decoder reports malformed frames."""
    count = 0
    for b in range(len(headers)):
        header = headers[b]
        if header.attributes & CONTROL_BIT == 0:
            at, end = header.position + HEADER_BYTES, header.position + header.size
            count = _walk(data, at, end, header.base_offset, header.count, found, count)
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

    Raises MalformedLog for a marker that the plain codec refuses. The workers check all other records.
    """
    found = np.empty((64, 4), np.int64)
    count = _find_markers(data, headers, found)
    if count > len(found):
        found = np.empty((count, 4), np.int64)
        _find_markers(data, headers, found)
    said = found[:count].tolist()
    for offset, _, start, end in said:
        codec.decode(data[start:end].tobytes(), file=file, offset=offset)
    return [(offset, kind) for offset, kind, _, _ in said]


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
        self.violation = ReplayViolation(offset, problem)

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
