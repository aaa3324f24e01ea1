"""The Spark data source ``kafka_request_log``: requests to controllers and their answers, in batch and streaming.

``spark.read.format("kafka_request_log").load("/var/log/kafka/kafka-request.log*")`` gives a row per completed request
of the APIs that change registrations, partitions and directories (``jbod_model.formats.request_log.APIS``). All others
are left out, SCRAM credentials and delegation tokens among them.

Options:
- ``path`` or ``paths``: files and globs, plain or gzip, FILE with its rotations FILE.*; several as a JSON list.
- ``layout``: ``requests``; ``rejects``, the lines that cannot be read; or ``parts``, assignments and rejects, packed
  for the main job.
- ``maxBytes``: of a micro-batch, unpacked.
- ``timeZone``: of the controllers' clocks, for times that name none; by default UTC.
- ``partitions``: the tasks of a read.

If a log is renamed, copied or compressed while it is followed, reading continues where it was. The last line is read
once its newline is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from jbod_model.errors import UsageError, crossing
from pipelines.spark.versions import check_streams

REQUESTS, REJECTS, PARTS = "requests", "rejects", "parts"
PARTS_SCHEMA = "kind string, payload binary"


@dataclass(frozen=True)
class Options:
    """The source's options, read and checked."""

    paths: tuple[str, ...]
    layout: str = REQUESTS
    max_bytes: int = 256 << 20
    time_zone: str = "UTC"
    partitions: int = 4

    @classmethod
    def read(cls, raw: Mapping[str, str]) -> Options:
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


class KafkaRequestLog(DataSource):
    """The data source; register it with ``spark.dataSource.register(KafkaRequestLog)``."""

    @classmethod
    def name(cls) -> str:
        """The short name for ``format``."""
        return "kafka_request_log"

    @crossing()
    def schema(self) -> StructType | str:
        """Columns of the layout."""
        layout = Options.read(self.options).layout
        if layout == PARTS:
            return PARTS_SCHEMA
        from pyspark.sql.pandas.types import from_arrow_schema

        from pipelines.formats.requests import REJECTS_SCHEMA, REQUESTS_SCHEMA

        return from_arrow_schema(REQUESTS_SCHEMA if layout == REQUESTS else REJECTS_SCHEMA)

    @crossing()
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """A batch read of all whole lines."""
        from pipelines.source.request_readers import BatchReader

        return BatchReader(Options.read(self.options))

    @crossing()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """A streaming read."""
        check_streams()
        from pipelines.source.request_readers import StreamReader

        return StreamReader(Options.read(self.options))


def register(spark: Any) -> None:
    """Make ``format("kafka_request_log")`` known to a session."""
    spark.dataSource.register(KafkaRequestLog)
