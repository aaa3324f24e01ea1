"""Follows the table ``changes`` of a lake with Structured Streaming, each event exactly once (docs/spark.md).

    spark-submit SETTINGS examples/consume_changes.py LAKE TARGET [--follow]

TARGET gets two Delta tables. ``events`` has the newest row of each event; those with ``retraction`` were taken back.
``state`` has the newest value of every subject: the directory of each replica, why it is offline, leaders, in-sync
sets, brokers, directories, cordons.

A micro-batch may be delivered twice, after a crash between a write and the checkpoint. So both writes are merges that
change nothing the second time: a row is taken if it is newer than the one that is there. Order does not matter either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

SUBJECT = ["what", "topic_id", "partition", "broker_id"]
EVENT = [*SUBJECT, "directory_id", "log_offset"]


def order() -> Column:
    """The order of rows (R-EVENT-8): by generation; in one, retractions from the newest offset down, then others."""
    position = F.when(F.col("retraction"), -1 - F.col("log_offset")).otherwise(F.col("log_offset"))
    return F.struct("generation", position.alias("position"))


def events(batch: DataFrame) -> DataFrame:
    """The newest row of every event in a micro-batch."""
    return _newest(batch.where("what <> 'history'").withColumn("version", order()), EVENT)


def state(batch: DataFrame) -> DataFrame:
    """The newest value of every subject in a micro-batch."""
    # A directory is part of the subject of its own changes, and a detail of an offline replica.
    own = F.when(F.col("what").isin("directory", "cordon"), F.col("directory_id"))
    rows = batch.where("what <> 'history'").withColumn("version", order()).withColumn("directory_id", own)
    newest = _newest(rows, [*SUBJECT, "directory_id"])
    return newest.select(
        *SUBJECT, "directory_id", F.col("after").alias("value"), "log_offset", "append_time", "version"
    )


def consume(spark: SparkSession, lake: str, target: str, *, follow: bool = False, **options: str) -> StreamingQuery:
    """Starts the stream. ``options`` are those of Delta's source, such as ``maxFilesPerTrigger``."""

    def publish(batch: DataFrame, _batch_id: int) -> None:
        batch.persist()
        try:
            _merge(batch, f"{target}/events", events, EVENT)
            _merge(batch, f"{target}/state", state, [*SUBJECT, "directory_id"])
        finally:
            batch.unpersist()

    source = spark.readStream.format("delta").options(**options).load(f"{lake}/changes")
    writer = source.writeStream.foreachBatch(publish).option("checkpointLocation", f"{target}/_checkpoint")
    return (writer.trigger(processingTime="1 second") if follow else writer.trigger(availableNow=True)).start()


def _newest(rows: DataFrame, key: list[str]) -> DataFrame:
    of_key = Window.partitionBy(*key).orderBy(F.col("version").desc())
    return rows.withColumn("_row", F.row_number().over(of_key)).where("_row = 1").drop("_row")


def _merge(batch: DataFrame, path: str, of: Callable[[DataFrame], DataFrame], key: list[str]) -> None:
    """Takes the rows of ``of(batch)`` that are newer than those of the table at ``path``."""
    rows = of(batch)
    rows.limit(0).write.format("delta").mode("ignore").save(path)  # creates the table
    table = DeltaTable.forPath(batch.sparkSession, path)
    same = " AND ".join(f"old.{name} <=> new.{name}" for name in key)
    merge = table.alias("old").merge(rows.alias("new"), same)
    merge.whenMatchedUpdateAll("new.version > old.version").whenNotMatchedInsertAll().execute()


def main() -> None:
    lake, target, *more = sys.argv[1:]
    spark = SparkSession.builder.appName("jbod changes").getOrCreate()
    consume(spark, lake, target, follow="--follow" in more).awaitTermination()


if __name__ == "__main__":
    main()
