"""Options of the data sources ``kraft_metadata`` and ``kafka_request_log``, as their modules list them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from jbod_model.errors import UsageError
from pipelines.quorum import KAFKA

if TYPE_CHECKING:
    import numpy as np

RECORDS, SLICES = "records", "slices"
SLICES_SCHEMA = "sequence long, slice string"
_SETTLE = re.compile(r"(\d+)|(\d+(?:\.\d+)?)s")


@dataclass(frozen=True)
class LogOptions:
    """The source's options, read and checked."""

    path: str
    layout: str = RECORDS
    start: str = "auto"
    max_records: int = 0
    tail: str = "wait"
    keep_unknown: bool = False
    partitions: int = 4
    idle_seconds: int = 55
    """Seconds of records of an idle controller that are read at once: a lake that is followed has to be younger than
    what a restart asks for (MAX_AGE of pipelines.ask.restart)."""
    wait_seconds: float = 0
    settle: str = "0"
    begin_at: str = ""
    limit: int = -1
    quorum: str = ""
    """``kafka://...``, from which the log at ``path`` is mirrored. Empty: nothing is, the log is written there."""

    @classmethod
    def read(cls, raw: Mapping[str, str]) -> LogOptions:
        """Reads Spark's options, whose names are case-insensitive. Raises UsageError that names the wrong option."""
        if not raw.get("path"):
            raise UsageError("kraft_metadata: no path: load(DIR) or option path")
        of_quorum = raw["path"].startswith(KAFKA)
        if of_quorum and not raw.get("mirror"):
            raise UsageError(
                f"kraft_metadata: {raw['path']}: give the option mirror: a folder for the copy of the log, which the "
                "driver and all executors see"
            )
        if raw.get("mirror") and not of_quorum:
            raise UsageError(f"kraft_metadata: option mirror is for the log of a quorum ({KAFKA}HOST:PORT)")
        return cls(
            path=raw["mirror"] if of_quorum else raw["path"],
            quorum=raw["path"] if of_quorum else "",
            layout=_one_of(raw, "layout", RECORDS, SLICES),
            start=_one_of(raw, "start", "auto", "log", "snapshot"),
            max_records=_number(raw, "maxRecords", 0),
            tail=_one_of(raw, "tail", "wait", "stop"),
            keep_unknown=_one_of(raw, "keepUnknown", "false", "true") == "true",
            partitions=max(_number(raw, "partitions", 4), 1),
            idle_seconds=_number(raw, "idleSeconds", 55),
            wait_seconds=_seconds(raw, "waitSeconds"),
            settle=raw.get("settle", "0"),
            begin_at=raw.get("from", ""),
            limit=_number(raw, "limit", -1),
        )


@dataclass(frozen=True)
class Settle:
    """A batch may be read once ``records`` records follow it and one of them was appended ``seconds`` or more later.

    Both count by the log, not by the reader's clock: the same bytes always give the same end. Kafka appends a
    NoOpRecord at least every half second, so the end advances in an idle cluster, too.
    """

    records: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Settle:
        """Parses ``100`` as records, ``2s`` or ``0.5s`` as seconds. Raises UsageError for anything else."""
        match = _SETTLE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"--settle {text}: give a number of records (100) or of seconds (2s)")
        return cls(records=int(match[1])) if match[1] else cls(seconds=float(match[2]))

    def __str__(self) -> str:
        return f"{self.seconds}s" if self.seconds else str(self.records)

    def end(self, headers: np.ndarray, end: int) -> int:
        """Returns the offset after the last batch that may be read, or ``end`` itself if nothing is held back.

        ``headers`` (BATCH_DTYPE) are the newest batches of a log that ends at ``end``.
        """
        if not (self.records or self.seconds) or not len(headers):
            return end
        ends = headers["base_offset"] + headers["count"]
        fresh = ends > end - self.records
        if self.seconds:
            fresh |= headers["timestamp"] > headers["timestamp"].max() - self.seconds * 1000
        waiting = fresh.nonzero()[0]
        return int(headers["base_offset"][waiting[0]]) if len(waiting) else end


def _one_of(raw: Mapping[str, str], name: str, *values: str, source: str = "kraft_metadata") -> str:
    value = raw.get(name, values[0])
    if value not in values:
        raise UsageError(f"{source}: option {name} is {value!r}, not one of {', '.join(values)}")
    return value


def _seconds(raw: Mapping[str, str], name: str) -> float:
    try:
        seconds = float(raw.get(name, "0"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"kraft_metadata: option {name} is {raw[name]!r}, not a number of seconds")
    return seconds


def _number(raw: Mapping[str, str], name: str, default: int, source: str = "kraft_metadata") -> int:
    try:
        return int(raw.get(name, default))
    except ValueError:
        raise UsageError(f"{source}: option {name} is {raw[name]!r}, not a number") from None


REQUESTS, REJECTS, PARTS = "requests", "rejects", "parts"
PARTS_SCHEMA = "kind string, payload binary"


@dataclass(frozen=True)
class RequestOptions:
    """The source's options, read and checked."""

    paths: tuple[str, ...]
    layout: str = REQUESTS
    max_bytes: int = 256 << 20
    time_zone: str = "UTC"
    partitions: int = 4

    @classmethod
    def read(cls, raw: Mapping[str, str]) -> RequestOptions:
        """Reads Spark's options, whose names are case-insensitive. Raises UsageError that names the wrong option."""
        paths = _paths(raw)
        if not paths:
            raise UsageError("kafka_request_log: no path: load(FILE) or option path")
        zone = raw.get("timeZone", "UTC")
        check_zone(zone, "kafka_request_log: option timeZone")
        return cls(
            paths=paths,
            layout=_one_of(raw, "layout", REQUESTS, REJECTS, PARTS, source="kafka_request_log"),
            max_bytes=max(_number(raw, "maxBytes", cls.max_bytes, "kafka_request_log"), 1),
            time_zone=zone,
            partitions=max(_number(raw, "partitions", cls.partitions, "kafka_request_log"), 1),
        )


def _paths(raw: Mapping[str, str]) -> tuple[str, ...]:
    if not raw.get("paths"):
        return (str(Path(raw["path"]).absolute()),) if raw.get("path") else ()
    try:
        listed = json.loads(raw["paths"])
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
        raise UsageError("kafka_request_log: option paths is no JSON list of texts")
    # The tasks that read have another working directory.
    return tuple(str(Path(path).absolute()) for path in listed)


def check_zone(name: str, what: str) -> None:
    """Raises UsageError if the time zone does not exist."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"{what} is {name!r}: no such time zone; write UTC, or for instance Europe/Berlin") from None
