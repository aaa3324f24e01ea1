"""How a stream is told where it stands, and how far its next micro-batch may go.

From 4.2 on, Spark says both, and ends a run at the end that ``prepareForTriggerAvailableNow`` fixed. Before, it calls
``latestOffset`` with nothing (pipelines.spark.versions). Then whoever starts the query hands the position to the source
as an option, and ``Positioned`` keeps it from batch to batch: Spark plans every end that it is given, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pipelines.spark.versions import check_streams, limits_batches

if TYPE_CHECKING:
    import pyarrow as pa

_LIMITS = limits_batches(pyspark.__version__)

if TYPE_CHECKING or _LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How far a micro-batch may go."""

    class ReadAllAvailable(ReadLimit):
        """To the end."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):
        """A number of rows."""

        max_rows: int

    @dataclass(frozen=True)
    class ReadMaxBytes(ReadLimit):
        """A number of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:
        """A source whose end can be fixed."""


__all__ = [
    "LimitedReader",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "fit_reader",
    "position_options",
]

_STANDS, _ENDS = "stands", "ends"


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader as Spark 4.2 calls it."""


def position_options(stands: Mapping[str, Any] | None, *, ends: bool) -> dict[str, str]:
    """The options by which the one who starts a query tells a source what Spark before 4.2 does not tell.

    ``stands``: the stream's offset, None for a stream that begins. ``ends``: whether it ends at the present end.
    """
    return {_STANDS: json.dumps(stands) if stands else "", _ENDS: str(ends).lower()}


def fit_reader(reader: LimitedReader, raw: Mapping[str, str]) -> DataSourceStreamReader:
    """The reader for the installed Spark. ``raw``: the source's options.

    Raises UsageError if neither Spark nor the options tell where the stream stands.
    """
    if _LIMITS:
        return reader
    if _STANDS not in raw:
        check_streams()
    return Positioned(reader, json.loads(raw.get(_STANDS) or "null"), ends=raw.get(_ENDS) == "true")


class Positioned(DataSourceStreamReader):
    """A stream reader for Spark before 4.2. It lives as long as its query."""

    def __init__(self, reader: LimitedReader, stands: dict[str, Any] | None, *, ends: bool) -> None:
        """``stands``: the stream's offset, None if it begins."""
        self._reader = reader
        self._stands = stands
        self._ends = ends

    def initialOffset(self) -> dict[str, Any]:
        """Where the first batch begins."""
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as Spark before 4.2 calls it
        """Where the next batch ends."""
        if self._ends:
            self._ends = False
            self._reader.prepareForTriggerAvailableNow()
        if self._stands is None:
            self._stands = self._reader.initialOffset()
        self._stands = self._reader.latestOffset(self._stands, self._reader.getDefaultReadLimit())
        return self._stands

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts between two offsets."""
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task."""
        return self._reader.read(partition)
