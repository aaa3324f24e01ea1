"""The transactions of a log, as far as their markers were read, and the offsets where a reader may stop."""

from __future__ import annotations

from collections.abc import Iterable

from jbod_model.errors import ReplayViolation
from pipelines.source.markers import ABORT, BEGIN


class Transactions:
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
