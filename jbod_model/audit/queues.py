"""What an audit reads, in its order: the requests by arrival, and the records that are not yet explained.

Both are read ahead as far as needed and no farther, so the memory is bounded.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import VersionedRecord
from jbod_model.formats.request_log import NewerLine, RequestLine
from jbod_model.formats.request_log_file import counted_once

L = TypeVar("L", bound=RequestLine | NewerLine)

LONGEST_MS = 60_000
"""The longest time that a request may take: twice the longest default timeout of Kafka's clients."""


@dataclass(slots=True)
class Arrivals(Generic[L]):
    """Sorts requests by arrival that are sorted by completion. It holds the requests of about `LONGEST_MS`.

    ``logs`` are the requests of each file, roughly in the order of completion. Each request is returned once.
    """

    logs: Iterable[Iterator[L]]
    _heap: list[tuple[float, int, L]] = field(default_factory=list)
    _lines: Iterator[L] = field(init=False)
    _next: L | None = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self._lines = counted_once(heapq.merge(*self.logs, key=lambda line: line.completed_ms))
        self._next = next(self._lines, None)

    def until(self, time_ms: float) -> Iterator[L]:
        """The requests that arrived up to ``time_ms``, milliseconds since 1970, and were not returned before."""
        while self._next is not None and self._next.completed_ms <= time_ms + LONGEST_MS:
            self._count += 1
            heapq.heappush(self._heap, (self._next.received_ms, self._count, self._next))
            self._next = next(self._lines, None)
        while self._heap and self._heap[0][0] <= time_ms:
            yield heapq.heappop(self._heap)[2]

    def rest(self) -> Iterator[L]:
        """The remaining requests, in the order of completion."""
        while self._heap:
            yield heapq.heappop(self._heap)[2]
        while self._next is not None:
            yield self._next
            self._next = next(self._lines, None)

    def in_order(self) -> Iterator[L]:
        """Every request by arrival."""
        while self._next is not None:
            yield from self.until(self._next.completed_ms - LONGEST_MS)
        yield from self.rest()


FARTHEST = 25_000
"""The most records that may follow a request's first: 10,000 partitions in as many topics, each with a
configuration."""


class Upcoming:
    """A queue in front of the log."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self._entries: Iterator[LogEntry] = iter(entries)
        self._waiting: deque[LogEntry] = deque()

    def first(self) -> LogEntry | None:
        """The next entry, which stays in the queue; None at the end."""
        self._fill(1)
        return self._waiting[0] if self._waiting else None

    def take(self) -> LogEntry:
        """Remove and return the next entry; there must be one."""
        self._fill(1)
        return self._waiting.popleft()

    def records(self, count: int = FARTHEST) -> list[VersionedRecord]:
        """Up to ``count`` of the next records, up to the first entry that is not a metadata record."""
        self._fill(count)
        found: list[VersionedRecord] = []
        for entry in self._waiting:
            if len(found) == count or not isinstance(entry.record, VersionedRecord):
                break
            found.append(entry.record)
        return found

    def _fill(self, count: int) -> None:
        while len(self._waiting) < count:
            entry = next(self._entries, None)
            if entry is None:
                return
            self._waiting.append(entry)
