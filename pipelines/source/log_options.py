"""Options of the data source ``kraft_metadata``, as its module lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jbod_model.errors import UsageError

RECORDS, SLICES = "records", "slices"
SLICES_SCHEMA = "sequence long, slice string"


@dataclass(frozen=True)
class Options:
    """The source's options, read and checked."""

    path: str
    layout: str = RECORDS
    start: str = "auto"
    max_records: int = 0
    tail: str = "wait"
    keep_unknown: bool = False
    partitions: int = 4
    idle_seconds: int = 60
    wait_seconds: float = 0
    settle: str = "0"
    begin_at: str = ""
    limit: int = -1

    @classmethod
    def read(cls, raw: Mapping[str, str]) -> Options:
        """Reads Spark's options, whose names are case-insensitive. Raises UsageError that names the wrong option."""
        if not raw.get("path"):
            raise UsageError("kraft_metadata: no path: load(DIR) or option path")
        return cls(
            path=raw["path"],
            layout=_one_of(raw, "layout", RECORDS, SLICES),
            start=_one_of(raw, "start", "auto", "log", "snapshot"),
            max_records=_number(raw, "maxRecords", 0),
            tail=_one_of(raw, "tail", "wait", "stop"),
            keep_unknown=_one_of(raw, "keepUnknown", "false", "true") == "true",
            partitions=max(_number(raw, "partitions", 4), 1),
            idle_seconds=_number(raw, "idleSeconds", 60),
            wait_seconds=_seconds(raw, "waitSeconds"),
            settle=raw.get("settle", "0"),
            begin_at=raw.get("from", ""),
            limit=_number(raw, "limit", -1),
        )


def _one_of(raw: Mapping[str, str], name: str, *values: str) -> str:
    value = raw.get(name, values[0])
    if value not in values:
        raise UsageError(f"kraft_metadata: option {name} is {value!r}, not one of {', '.join(values)}")
    return value


def _seconds(raw: Mapping[str, str], name: str) -> float:
    try:
        found = float(raw.get(name, "0"))
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise UsageError(f"kraft_metadata: option {name} is {raw[name]!r}, not a number of seconds")
    return found


def _number(raw: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(raw.get(name, default))
    except ValueError:
        raise UsageError(f"kraft_metadata: option {name} is {raw[name]!r}, not a number") from None
