"""Splits a request log into lines within bounded memory, and parses them with ``jbod_model.formats.request_log``.

Most lines of a real log belong to APIs that are not read (FETCH). Their first bytes show it, without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from jbod_model.formats.request_log import APIS, HIGHEST_API_KEY, LONGEST_LINE, Reject, RequestLine, parse_line

CHUNK = 1 << 20
_START = b"Completed request:"
_KEY = re.compile(rb'\{"isForwarded":(?:true|false),"requestHeader":\{"requestApiKey":(\d{1,5}),')
_OTHERS = frozenset(b"%d" % key for key in range(HIGHEST_API_KEY + 1) if key not in APIS)
_HEARTBEAT_FORM = (
    '[TIME] DEBUG Completed request:{"isForwarded":BOOL,"requestHeader":{"requestApiKey":63,"requestApiVersion":'
    'VERSION,"correlationId":INT,"clientId":NAME,"requestApiKeyName":"BROKER_HEARTBEAT"},"request":{"brokerId":INT,'
    '"brokerEpoch":LONG,"currentMetadataOffset":LONG,"wantFence":BOOL,"wantShutDown":BOOLEANS},"response":{'
    '"throttleTimeMs":INT,"errorCode":0,"isCaughtUp":BOOL,"isFenced":BOOL,"shouldShutDown":BOOL},"connection":NAME,'
    '"totalTimeMs":MS,"requestQueueTimeMs":MS,"localTimeMs":MS,"remoteTimeMs":MS,"throttleTimeMs":MS,'
    '"responseQueueTimeMs":MS,"sendTimeMs":MS,"securityProtocol":NAME,"principal":NAME,"listener":NAME,'
    '"clientInformation":{"softwareName":NAME,"softwareVersion":NAME}} (kafka.request.logger)'
)
"""An ordinary heartbeat, exactly as Kafka writes it: a third of a real log's lines."""
_ID = r"[\w-]{21}[AQgw]"
_VALUES = {
    "TIME": r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8]) (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d,\d{3}",
    "BOOL": "(?:true|false)",
    "INT": r"-?(?:0|[1-9]\d{0,8})",
    "LONG": r"-?(?:0|[1-9]\d{0,17})",
    "MS": r"(?:0|[1-9]\d{0,8})(?:\.\d{1,6})?",
    "NAME": r'"[\w.:-]{1,100}"',
    "VERSION": "[12]",
    # The last field of every version, and the field that version 2 adds.
    "BOOLEANS": rf'(?:true|false)(?:,"cordonedLogDirs":(?:null|\[(?:"{_ID}"(?:,"{_ID}"){{0,99}})?\]))?',
}
_HEARTBEAT = re.compile(
    re.sub(r"\b[A-Z]+\b", lambda word: _VALUES.get(word[0], word[0]), re.escape(_HEARTBEAT_FORM)).encode() + rb"\r?"
)
_ZONED = re.compile(rb"\[?[\d-]{10}[ T][\d:]{8}(?:[,.]\d{1,9})?(?:Z|[+-]\d\d)")


class Source(Protocol):
    """Text that is read forwards."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer than ``size`` only at the end."""

    def seek(self, position: int, /) -> object:
        """Continues at a position."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line of more than `LONGEST_LINE` bytes. Only its size is known."""

    size: int


def lines(source: Source, start: int, end: int) -> Iterator[tuple[int, bytes | TooLong]]:
    """(position, line without its newline) of every whole line that begins in ``[start, end)`` of ``source``.

    So adjacent ranges read each line once, wherever they meet. Blank lines, and a last line without a newline, are
    skipped. Holds at most `LONGEST_LINE` and two chunks, however long a line is. Seeks once, forwards.
    """
    at = max(start - 1, 0)
    source.seek(at)
    passing = start > 0
    """Whether the next bytes belong to a line that is skipped: it began before ``start``, or is too long."""
    begun: int | None = None
    """Start of the line that is too long."""
    rest = b""
    while begun is not None or at < end:
        chunk = source.read(CHUNK)
        if not chunk:
            return
        if passing:
            found = chunk.find(b"\n")
            if found < 0:
                at += len(chunk)
                continue
            at += found + 1
            chunk = chunk[found + 1 :]
            if begun is not None:
                yield begun, TooLong(at - begun)
            passing, begun = False, None
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if at >= end:
                return
            if len(line) > LONGEST_LINE:
                yield at, TooLong(len(line) + 1)
            elif line and not line.isspace():
                yield at, line
            at += len(line) + 1
        if len(rest) > LONGEST_LINE and at < end:
            passing, begun = True, at
            at += len(rest)
            rest = b""


class Parser:
    """`parse_line` with a time zone for times without one, and a shortcut for APIs that are not read.

    ``assignments``: only AssignReplicasToDirs and unreadable lines are wanted, so an ordinary heartbeat is None, too.
    """

    def __init__(self, zone: str = "UTC", *, assignments: bool = False) -> None:
        self._assignments = assignments
        self._zone = None if zone.upper() == "UTC" else ZoneInfo(zone)

    def __call__(self, line: bytes) -> RequestLine | Reject | None:
        """The request of a line, None for an API that is not read, a `Reject` for an unreadable line."""
        at = line.find(_START)
        if at >= 0:
            key = _KEY.match(line, at + len(_START))
            if key is not None and key[1] in _OTHERS and line.isascii():
                return None
            if self._assignments and _HEARTBEAT.fullmatch(line):
                return None
        parsed = parse_line(line)
        if self._zone is None or parsed is None or parsed.completed_ms is None or _ZONED.match(line):
            return parsed
        return replace(parsed, completed_ms=self._shifted(parsed.completed_ms))

    def _shifted(self, wall_ms: int) -> int:
        """Milliseconds since 1970 for the wall clock time ``wall_ms``. If an hour occurs twice, the first one."""
        seconds, millis = divmod(wall_ms, 1000)
        wall = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=self._zone)
        return int(wall.timestamp()) * 1000 + millis
