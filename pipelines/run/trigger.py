"""Starts a query that follows its source, or ends where the source ended."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from pipelines.spark.versions import limits_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def start(spark: SparkSession, writer: DataStreamWriter, follow_seconds: float | None) -> StreamingQuery:
    """Starts the query. It ends at the present end of its source if ``follow_seconds`` is None.

    Before 4.2, Spark would end it after one micro-batch (pipelines.spark.versions). Then it goes on until the source,
    which was told to end (pipelines.source.limits), has nothing more.
    """
    if follow_seconds is not None:
        return writer.trigger(processingTime=f"{follow_seconds} seconds").start()
    if limits_batches(spark.version):
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()
    threading.Thread(target=_end, args=(query,), daemon=True).start()
    return query


def _end(query: StreamingQuery) -> None:
    # Whoever waits for the query gets its error.
    with suppress(Exception):
        query.processAllAvailable()
        query.stop()
