"""The transactions of a log, as far as their markers were seen, and where a reader may stand between them."""

from __future__ import annotations

from collections.abc import Iterable

from jbod_model.errors import ReplayViolation
from pipelines.source.markers import ABORT, BEGIN


class Transactions:
    """Fed with markers in log order; nothing is taken after the first that is illegal."""

    def __init__(self) -> None:
        self.violation: ReplayViolation | None = None
        self._begin: int | None = None
        self._closed: list[tuple[int, int, bool]] = []

    def add(self, marks: Iterable[tuple[int, int]], floor: int) -> None:
        """Markers as (offset, record type); those below ``floor`` were read before, their transactions whole."""
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
        """``end``, or where the transaction begins that it lies in: no part of it is visible (R-TXN-4)."""
        if self._begin is not None:
            end = min(end, self._begin)
        for begin, close, _ in reversed(self._closed):
            if begin < end <= close:
                end = begin
        return end

    def around(self, offset: int) -> tuple[int, int] | None:
        """First offset and offset after the last of the closed transaction that ``offset`` lies in."""
        return next(((begin, close + 1) for begin, close, _ in self._closed if begin < offset <= close), None)

    def aborted(self) -> list[tuple[int, int]]:
        """Offsets (begin, abort) of the transactions that never were (R-TXN-3)."""
        return [(begin, close) for begin, close, is_aborted in self._closed if is_aborted]
