"""Request logs as files: plain or gzipped, of any size, possibly damaged; and several logs of one cluster together."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import IO, TypeVar, cast

from jbod_model.errors import UsageError
from jbod_model.formats.request_log import LONGEST_LINE, NewerLine, Reject, RequestLine, parse_line

L = TypeVar("L", bound=RequestLine | NewerLine)


@dataclass(slots=True)
class RequestLog:
    """The lines of one file, plain or gzipped, read once in order. Memory is bounded by the longest line.

    During and after the iteration, ``read`` counts requests, ``dropped`` lines of other APIs, ``rejected`` reasons.
    """

    path: Path
    zone: tzinfo = UTC
    """The zone of times that name none."""
    read: int = 0
    dropped: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    newer: int = 0
    """The number of requests of newer versions that `requests_and_newer` yielded."""

    def __iter__(self) -> Iterator[RequestLine | Reject]:
        for parsed in self._parsed():
            if parsed is None:
                self.dropped += 1
                continue
            if isinstance(parsed, Reject):
                self.rejected[parsed.reason] += 1
            else:
                self.read += 1
            yield parsed

    def requests(self) -> Iterator[RequestLine]:
        """The requests in the lines that could be read."""
        return (line for line in self if isinstance(line, RequestLine))

    def requests_and_newer(self) -> Iterator[RequestLine | NewerLine]:
        """The requests in the lines that could be read, and those of newer versions, which are not counted as
        rejected."""
        for line in self:
            if isinstance(line, RequestLine):
                yield line
            elif line.newer is not None:
                self.rejected -= Counter([line.reason])
                self.newer += 1
                yield line.newer

    def _parsed(self) -> Iterator[RequestLine | Reject | None]:
        if not self.path.is_file():
            raise UsageError(f"{self.path}: there is no such file; give a controller's request log")
        try:
            with _open(self.path) as source:
                for line in _lines(source):
                    yield parse_line(line, zone=self.zone) if isinstance(line, bytes) else line
        except (OSError, EOFError, zlib.error) as problem:
            yield Reject(f"{self.path.name} cannot be read to the end: {problem}", 0)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as source:
        packed = source.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb") if packed else path.open("rb"))


def _lines(source: IO[bytes]) -> Iterator[bytes | Reject]:
    """Each line that is not blank; only the size of a line that is too long."""
    while line := source.readline(LONGEST_LINE + 1):
        if len(line) <= LONGEST_LINE or line.endswith(b"\n"):
            if not line.isspace():
                yield line
            continue
        size = len(line)
        while rest := source.readline(LONGEST_LINE):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
        yield Reject(f"the line is longer than {LONGEST_LINE} bytes", size)


def counted_once(lines: Iterable[L]) -> Iterator[L]:
    """Each request once. A forwarded request may be in two logs, as received and as forwarded; the first line counts.

    ``lines`` are roughly ordered by time; the two lines of a pair have at most `_REMEMBERED` others between them.
    """
    seen: dict[tuple[str, int, str], L] = {}
    for line in lines:
        mark = (line.client_id, line.correlation_id, line.api)
        twin = seen.get(mark)
        if twin is not None and twin.forwarded != line.forwarded and _content(twin) == _content(line):
            continue
        if line.api in _FORWARDED:
            seen[mark] = line
            if len(seen) > _REMEMBERED:
                del seen[next(iter(seen))]
        yield line


def _content(line: RequestLine | NewerLine) -> object:
    return line.request if isinstance(line, RequestLine) else (line.version, line.broker_id)


_FORWARDED = frozenset(
    {
        "CREATE_TOPICS",
        "DELETE_TOPICS",
        "CREATE_PARTITIONS",
        "ELECT_LEADERS",
        "ALTER_PARTITION_REASSIGNMENTS",
        "UPDATE_FEATURES",
        "UNREGISTER_BROKER",
    }
)
"""Requests that administrators send to a broker, which forwards them."""

_REMEMBERED = 10_000
