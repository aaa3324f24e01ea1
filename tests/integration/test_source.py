"""The data source ``kraft_metadata`` in Spark, batch and streaming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.source.kraft_metadata import register
from pipelines.source.typed import TYPED_SCHEMA
from tests.support.controller import Log, quorum_of, url_of
from tests.support.paths import KAFKAS, metadata_dir
from tests.unit.formats.decoded import plain

pytestmark = pytest.mark.spark


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def expected(log_dir: Path, start: str = "auto") -> list[dict[str, Any]]:
    kept = (*(name for name in TYPED_SCHEMA.names if name not in ("snapshot", "append_time")),)
    return [{name: row[name] for name in kept} for row in plain(log_dir, start=start)]


def compared(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("snapshot", "append_time")} for row in records]


@pytest.mark.parametrize("kafka", KAFKAS)
def test_read_gives_every_record_of_the_model(spark: SparkSession, kafka: str) -> None:
    register(spark)
    records = rows(spark.read.format("kraft_metadata").load(str(metadata_dir(kafka))))
    assert compared(sorted(records, key=lambda row: row["log_offset"])) == expected(metadata_dir(kafka))
    assert not any(row["snapshot"] for row in records)


def test_read_from_a_snapshot_and_a_uri_gives_the_records_of_the_model(spark: SparkSession) -> None:
    register(spark)
    log_dir = metadata_dir("kafka-4.1.2")
    reader = spark.read.format("kraft_metadata").option("start", "snapshot").option("partitions", "1")
    records = rows(reader.load(log_dir.as_uri()))
    assert compared(records) == expected(log_dir, "snapshot")
    assert sum(row["snapshot"] for row in records) > 50


def test_stream_gives_every_record_once_in_bounded_batches(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    log_dir = metadata_dir("kafka-4.1.2")
    query = (
        spark.readStream.format("kraft_metadata")
        .option("maxRecords", "150")
        .load(str(log_dir))
        .writeStream.format("memory")
        .queryName("every_record")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    records = sorted(rows(spark.table("every_record")), key=lambda row: row["log_offset"])
    assert compared(records) == expected(log_dir)
    assert len([size for size in sizes if size]) >= 4
    assert max(sizes) <= 150


def test_option_that_is_wrong_is_refused_by_name(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match="option maxRecords is 'many', not a number"):
        spark.read.format("kraft_metadata").option("maxRecords", "many").load("somewhere").collect()


def test_stream_of_a_quorum_gives_each_committed_record_once(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    metadata = metadata_dir("kafka-4.4.0")
    log = Log(b"".join(path.read_bytes() for path in sorted((metadata / "__cluster_metadata-0").glob("*.log"))))
    log.high_watermark = committed = log.batches[-50][1]
    peers = quorum_of(log)
    source = {"path": url_of(peers), "mirror": str(tmp_path / "mirror")}

    def read() -> list[int]:
        query = (
            spark.readStream.format("kraft_metadata")
            .options(**source)
            .load()
            .select("log_offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "offsets"))
        )
        query.awaitTermination()
        return sorted(row["log_offset"] for row in spark.read.parquet(str(tmp_path / "offsets")).collect())

    known = [row["log_offset"] for row in expected(metadata)]
    assert read() == [offset for offset in known if offset < committed]
    log.commit()
    assert read() == known
    of_quorum = spark.read.format("kraft_metadata").options(**source).load()
    assert compared(sorted(rows(of_quorum), key=lambda row: row["log_offset"])) == expected(metadata)
    for peer in peers.values():
        peer.close()
