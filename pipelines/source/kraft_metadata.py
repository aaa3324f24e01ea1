"""The Spark data source ``kraft_metadata``: a metadata log as rows, in batch and streaming.

``spark.read.format("kraft_metadata").load(dir)`` gives every record with its typed columns.

Options: ``path`` (a metadata.log.dir or its ``__cluster_metadata-0``, or a URI of pyarrow.fs); ``start`` (auto, log,
snapshot); ``maxRecords`` of a micro-batch (0: no limit); ``cutTail`` (wait, fail: what a cut-off last batch means);
``keepUnknown`` (true: keep records of unknown types, unread); ``partitions`` (tasks of a read); ``layout`` (records,
or slices: where the records are instead of what they say); ``settle`` (100 records, or 2s: how far the reader stays
behind the end of the log); ``idleSeconds`` (how long, by the log's time, a stream lets NoOpRecords alone wait);
``copies`` (JSON list of more directories of the same log, which settle it together); ``from`` (JSON of the position
where a stream begins); ``limit`` (nothing from this offset on is read); ``ahead`` (JSON of a first micro-batch that was
planned before, see pipelines.source.ahead).

Spark makes an instance in a process of its own for each question it has, so what reads is imported only when it reads.

Nothing past the last complete batch or inside an open transaction is read, nor any record of an aborted one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

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
    cut_tail: str = "wait"
    keep_unknown: bool = False
    partitions: int = 4
    idle_seconds: int = 60
    settle: str = "0"
    copies: tuple[str, ...] = ()
    begin_at: str = ""
    limit: int = -1
    ahead: str = ""

    @classmethod
    def read(cls, raw: Mapping[str, str]) -> Options:
        """From Spark's options, whose names have no case; UsageError names the one that is wrong."""
        if not raw.get("path"):
            raise UsageError("kraft_metadata: no path: load(DIR) or option path")
        return cls(
            path=raw["path"],
            layout=_one_of(raw, "layout", RECORDS, SLICES),
            start=_one_of(raw, "start", "auto", "log", "snapshot"),
            max_records=_number(raw, "maxRecords", 0),
            cut_tail=_one_of(raw, "cutTail", "wait", "fail"),
            keep_unknown=_one_of(raw, "keepUnknown", "false", "true") == "true",
            partitions=max(_number(raw, "partitions", 4), 1),
            idle_seconds=_number(raw, "idleSeconds", 60),
            settle=raw.get("settle", "0"),
            copies=tuple(json.loads(raw.get("copies", "[]"))),
            begin_at=raw.get("from", ""),
            limit=_number(raw, "limit", -1),
            ahead=raw.get("ahead", ""),
        )


def _one_of(raw: Mapping[str, str], name: str, *values: str) -> str:
    value = raw.get(name, values[0])
    if value not in values:
        raise UsageError(f"kraft_metadata: option {name} is {value!r}, not one of {', '.join(values)}")
    return value


def _number(raw: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(raw.get(name, default))
    except ValueError:
        raise UsageError(f"kraft_metadata: option {name} is {raw[name]!r}, not a number") from None


class KraftMetadata(DataSource):
    """The data source; register it with ``spark.dataSource.register(KraftMetadata)``."""

    @classmethod
    def name(cls) -> str:
        """The short name for ``format``."""
        return "kraft_metadata"

    def schema(self) -> StructType | str:
        """Columns of the layout."""
        if Options.read(self.options).layout == SLICES:
            return SLICES_SCHEMA
        from pyspark.sql.pandas.types import from_arrow_schema

        from pipelines.source.typed import TYPED_SCHEMA

        return from_arrow_schema(TYPED_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """A read of all there is."""
        from pipelines.source.readers import BatchReader

        return BatchReader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """A read that goes on."""
        from pipelines.source.readers import StreamReader

        return StreamReader(Options.read(self.options))


def register(spark: Any) -> None:
    """Make ``format("kraft_metadata")`` known to a session."""
    spark.dataSource.register(KraftMetadata)
