"""Options of the data source ``kafka_request_log``, as its module lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from jbod_model.errors import UsageError

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
        layout = raw.get("layout", REQUESTS)
        if layout not in (REQUESTS, REJECTS, PARTS):
            raise UsageError(f"kafka_request_log: option layout is {layout!r}, not one of requests, rejects, parts")
        zone = raw.get("timeZone", "UTC")
        check_zone(zone, "kafka_request_log: option timeZone")
        return cls(
            paths=paths,
            layout=layout,
            max_bytes=max(_number(raw, "maxBytes", cls.max_bytes), 1),
            time_zone=zone,
            partitions=max(_number(raw, "partitions", cls.partitions), 1),
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


def _number(raw: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(raw.get(name, default))
    except ValueError:
        raise UsageError(f"kafka_request_log: option {name} is {raw[name]!r}, not a number") from None
