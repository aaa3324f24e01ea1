"""The engine's tables equal, row for row, those of the plain reference."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.ask import Lake, image
from pipelines.replay.options import Replay
from pipelines.replay.runner import Runner
from tests.support.kafka_images import kafka_images
from tests.support.lakes import Reference
from tests.support.logs import first_batches, read_log
from tests.support.paths import KAFKAS, TRACES, metadata_dir
from tests.support.tables import differences, expected_rows, rows_of

pytestmark = pytest.mark.spark

CASES = [
    *((kafka, "controller-100", "log", 1_000_000) for kafka in KAFKAS),
    ("kafka-4.1.2", "controller-100", "log", 50),
    ("kafka-4.1.2", "controller-100", "snapshot", 1_000_000),
    ("kafka-3.9.2-upgrade", "broker-3", "snapshot", 50),
    ("kafka-4.4.0", "controller-101", "log", 100),
    ("kafka-4.4.0", "broker-2", "log", 1_000_000),
    ("kafka-3.7.2", "broker-2", "log", 1_000_000),
]


@pytest.mark.parametrize(("kafka", "node", "start", "max_records"), CASES)
def test_replay_writes_what_the_reference_says(
    spark: SparkSession, tmp_path: Path, kafka: str, node: str, start: str, max_records: int
) -> None:
    source = metadata_dir(kafka, node)
    lake = tmp_path / "lake"
    Runner(Replay(str(source), str(lake), start=start, max_records=max_records)).run(spark)
    assert differences(rows_of(lake), expected_rows(Reference().add(read_log(source, start)))) == []


def test_replay_of_random_operations_writes_what_the_reference_says(spark: SparkSession, tmp_path: Path) -> None:
    segment = first_batches(gzip.decompress((TRACES / "seed2.log.gz").read_bytes()), 3000)
    folder = tmp_path / "log" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(segment)
    Runner(Replay(str(tmp_path / "log"), str(tmp_path / "lake"), max_records=700)).run(spark)
    expected = expected_rows(Reference().add(read_log(tmp_path / "log")))
    assert {row["ended_by"] for row in expected["assignments"]} >= {"lost", "reassigned", "reordered", "removed"}
    assert differences(rows_of(tmp_path / "lake"), expected) == []


@pytest.mark.parametrize(("start", "max_records"), [("log", 50), ("snapshot", 50), ("snapshot", 1_000_000)])
def test_image_of_what_the_engine_wrote_is_kafkas(
    spark: SparkSession, tmp_path: Path, start: str, max_records: int
) -> None:
    source = metadata_dir("kafka-4.1.2")
    Runner(Replay(str(source), str(tmp_path / "lake"), start=start, max_records=max_records)).run(spark)
    newest = Lake.open(tmp_path / "lake")
    images = [one for one in kafka_images("kafka-4.1.2") if one["offset"] >= newest.first]
    assert newest.first == (0 if start == "log" else 405)
    assert newest.offset == images[-1]["offset"]
    for expected in images[::4]:
        assert image(Lake.open(tmp_path / "lake", at_offset=expected["offset"])) == expected
