"""The entries of a log that are not yet explained, with look-ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from jbod_model.formats.log import LogEntry
from jbod_model.formats.records import VersionedRecord

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
