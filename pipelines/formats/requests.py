"""Request logs: their lines, within bounded memory, and their columns.

A row is a request, a requested assignment, or a run of unreadable lines.

Most lines of a real log belong to APIs that are not read (FETCH). Their first bytes show it, without a copy. The others
are parsed with ``jbod_model.formats.request_log``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from jbod_model.formats.json_values import write
from jbod_model.formats.request_log import APIS, HIGHEST_API_KEY, LONGEST_LINE, Reject, RequestLine, parse_line
from jbod_model.formats.requests import AssignReplicasToDirsRequest
from jbod_model.formats.responses import AssignReplicasToDirsResponse

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
            newline = chunk.find(b"\n")
            if newline < 0:
                at += len(chunk)
                continue
            at += newline + 1
            chunk = chunk[newline + 1 :]
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


TIME = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
BLOCK = 1 << 20
"""Unreadable lines of one kind are counted together within each block of this many bytes."""
UNANSWERED = -1
"""Error of an entry that the answer omits (Kafka's UNKNOWN_SERVER_ERROR): for the broker, too, it has failed."""

REQUESTS_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("api", pa.string()),
        ("api_key", pa.int32()),
        ("api_version", pa.int32()),
        ("received_time", TIME),
        ("answered_time", TIME),
        ("total_ms", pa.float64()),
        ("client_id", pa.string()),
        ("connection", pa.string()),
        ("controller", pa.string()),
        ("correlation_id", pa.int32()),
        ("forwarded", pa.bool_()),
        ("error", pa.int32()),
        ("errors", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("broker_id", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("cluster_id", pa.string()),
        ("incarnation_id", pa.string()),
        ("log_dirs", TEXTS),
        ("offline_log_dirs", TEXTS),
        ("want_fence", pa.bool_()),
        ("want_shut_down", pa.bool_()),
        ("fenced", pa.bool_()),
        ("assignments", pa.int32()),
        ("request", pa.string()),
        ("response", pa.string()),
    ]
)
"""Errors: ``error`` of the whole request, ``errors`` all nonzero errors of it and its entries. Typed columns of one
API's fields are null for other APIs. ``request`` and ``response`` are JSON with Kafka's names, of known fields only."""

ASSIGNMENTS_SCHEMA = pa.schema(
    [
        ("broker_id", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("directory_id", pa.string()),
        ("requested_time", TIME),
        ("answered_time", TIME),
        ("error", pa.int32()),
        ("controller", pa.string()),
        ("connection", pa.string()),
        ("correlation_id", pa.int32()),
        ("entry", pa.int32()),
        ("entries", pa.int32()),
    ]
)

REJECTS_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("file_id", pa.string()),
        ("position", pa.int64()),
        ("last_position", pa.int64()),
        ("lines", pa.int64()),
        ("bytes", pa.int64()),
        ("reason", pa.string()),
        ("api", pa.string()),
        ("first_time", TIME),
    ]
)

_KEYS = {api.name: api.key for api in APIS.values()}


_LONGEST_MS = 10 * 365 * 86_400_000
"""The longest duration of a request. Longer ones are cut to it, so that times stay in every engine's range."""


def received_micros(line: RequestLine) -> int:
    """Microseconds since 1970 at which a request arrived."""
    return line.completed_ms * 1000 - round(min(line.total_ms, _LONGEST_MS) * 1000)


def controller_of(connection: str) -> str:
    """``127.0.0.1:9093`` of ``127.0.0.1:9093-127.0.0.1:41234-0``: the controller's address of the connection."""
    return connection.partition("-")[0]


def requests_batch(file: str, lines: Sequence[tuple[int, RequestLine]]) -> pa.RecordBatch:
    """A row per request, as `REQUESTS_SCHEMA`."""
    return pa.RecordBatch.from_pylist([_request_row(file, *each) for each in lines], schema=REQUESTS_SCHEMA)


def _request_row(file: str, position: int, line: RequestLine) -> dict[str, Any]:
    request, response = write(line.request), write(line.response)
    errors = sorted({code for code in (line.error_code, *_error_codes(response)) if code})
    return {
        "file": file,
        "position": position,
        "api": line.api,
        "api_key": _KEYS[line.api],
        "api_version": line.version,
        "received_time": received_micros(line),
        "answered_time": line.completed_ms * 1000,
        "total_ms": line.total_ms,
        "client_id": line.client_id,
        "connection": line.connection,
        "controller": controller_of(line.connection),
        "correlation_id": line.correlation_id,
        "forwarded": line.forwarded,
        "error": line.error_code,
        "errors": errors,
        "broker_id": request.get("brokerId"),
        "broker_epoch": request.get("brokerEpoch", response.get("brokerEpoch")),
        "cluster_id": request.get("clusterId"),
        "incarnation_id": request.get("incarnationId"),
        "log_dirs": request.get("logDirs"),
        "offline_log_dirs": request.get("offlineLogDirs"),
        "want_fence": request.get("wantFence"),
        "want_shut_down": request.get("wantShutDown"),
        "fenced": response.get("isFenced"),
        "assignments": _size(line.request) if isinstance(line.request, AssignReplicasToDirsRequest) else None,
        "request": json.dumps(request, separators=(",", ":")),
        "response": json.dumps(response, separators=(",", ":")),
    }


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        if "errorCode" in value:
            yield value["errorCode"]
        for item in value.values():
            yield from _error_codes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _error_codes(item)


def _size(request: AssignReplicasToDirsRequest) -> int:
    return sum(len(topic.partitions) for directory in request.directories for topic in directory.topics)


Entry = tuple[str, str, int]
"""Directory, topic and partition of an entry."""


def _entries(message: AssignReplicasToDirsRequest | AssignReplicasToDirsResponse) -> Iterator[tuple[Entry, Any]]:
    for directory in message.directories:
        name = str(directory.id)
        for topic in directory.topics:
            topic_id = str(topic.topic_id)
            for partition in topic.partitions:
                yield (name, topic_id, partition.partition_index), partition


def assignments_table(lines: Sequence[RequestLine]) -> pa.Table:
    """A row per entry of the AssignReplicasToDirs requests among ``lines``, as `ASSIGNMENTS_SCHEMA`."""
    columns: dict[str, list[Any]] = {name: [] for name in ASSIGNMENTS_SCHEMA.names}
    for line in lines:
        request = line.request
        if not isinstance(request, AssignReplicasToDirsRequest):
            continue
        entries = [entry for entry, _ in _entries(request)]
        answers: Mapping[Entry, int] = {}
        if isinstance(line.response, AssignReplicasToDirsResponse):
            answers = {entry: result.error_code for entry, result in _entries(line.response)}
        whole = line.error_code
        columns["topic_id"] += [topic_id for _, topic_id, _ in entries]
        columns["partition"] += [partition for _, _, partition in entries]
        columns["directory_id"] += [directory for directory, _, _ in entries]
        columns["error"] += [whole or answers.get(entry, UNANSWERED) for entry in entries]
        columns["entry"] += range(len(entries))
        for name, value in (
            ("broker_id", request.broker_id),
            ("broker_epoch", request.broker_epoch),
            ("requested_time", received_micros(line)),
            ("answered_time", line.completed_ms * 1000),
            ("controller", controller_of(line.connection)),
            ("connection", line.connection),
            ("correlation_id", line.correlation_id),
            ("entries", len(entries)),
        ):
            columns[name] += [value] * len(entries)
    return pa.Table.from_pydict(columns, schema=ASSIGNMENTS_SCHEMA)


@dataclass
class Rejects:
    """The unreadable lines of one file: one row per kind and `BLOCK`."""

    file: str
    file_id: str
    rows: dict[tuple[int, str, str | None], dict[str, Any]] = field(default_factory=dict)

    def add(self, position: int, reject: Reject | TooLong) -> None:
        """Adds a line. Call it in the order of lines."""
        if isinstance(reject, TooLong):
            reject = Reject(f"the line is longer than {LONGEST_LINE} bytes", reject.size)
        kind = (position // BLOCK, reject.reason, reject.api)
        row = self.rows.get(kind)
        if row is None:
            row = self.rows[kind] = {
                "file": self.file,
                "file_id": self.file_id,
                "position": position,
                "lines": 0,
                "bytes": 0,
                "reason": reject.reason,
                "api": reject.api,
                "first_time": None if reject.completed_ms is None else reject.completed_ms * 1000,
            }
        row["last_position"] = position
        row["lines"] += 1
        row["bytes"] += reject.size

    def table(self) -> pa.Table:
        """The rows, as `REJECTS_SCHEMA`."""
        return pa.Table.from_pylist(list(self.rows.values()), schema=REJECTS_SCHEMA)
