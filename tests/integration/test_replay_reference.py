"""What the main job writes equals, row for row, the reference's tables, and Kafka's image at every offset."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.ask import Lake, image
from pipelines.run.options import Replay
from pipelines.run.runner import Runner
from tests.support import engine
from tests.support.kafka_images import kafka_images
from tests.support.lakes import Reference
from tests.support.logs import first_batches, read_log
from tests.support.paths import KAFKAS, TRACES, metadata_dir
from tests.support.tables import differences, expected_rows, rows_of
from tests.support.volume import rare

pytestmark = pytest.mark.spark

WHOLE = 1_000_000
IMAGED = [
    ("kafka-3.7.2", "controller-100", "log", 250),
    rare("kafka-3.9.2-upgrade", "controller-100", "log", 250),
    rare("kafka-3.9.2-zk-migration", "controller-100", "log", 150),
    rare("kafka-4.1.2", "controller-100", "log", 100),
    ("kafka-4.1.2", "controller-100", "snapshot", WHOLE),
    rare("kafka-4.1.2", "controller-100", "snapshot", 50),
    *(rare(kafka, "controller-100", "log", 50) for kafka in KAFKAS),
    *(rare(kafka, "controller-100", "log", WHOLE) for kafka in KAFKAS),
]
"""A cluster, the node whose log it is, where the replay starts, and the most records of a micro-batch. Kafka's images
are those of these nodes."""

CASES = [
    *IMAGED,
    rare("kafka-3.9.2-upgrade", "broker-3", "snapshot", 50),
    ("kafka-4.4.0", "controller-101", "log", 200),
    rare("kafka-4.4.0", "broker-2", "log", WHOLE),
    rare("kafka-3.7.2", "broker-2", "log", WHOLE),
]


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The lake of a case. It is made when it is first asked for."""

    @cache
    def lake_of(kafka: str, node: str, start: str, max_records: int) -> Path:
        lake = tmp_path_factory.mktemp("replayed") / "lake"
        Runner(Replay(str(metadata_dir(kafka, node)), str(lake), start=start, max_records=max_records)).run(spark)
        return lake

    return lake_of


@pytest.mark.parametrize(("kafka", "node", "start", "max_records"), CASES)
def test_replay_writes_what_the_reference_says(
    replayed: Callable[..., Path], kafka: str, node: str, start: str, max_records: int
) -> None:
    rows = rows_of(replayed(kafka, node, start, max_records))
    assert differences(rows, expected_rows(Reference().add(read_log(metadata_dir(kafka, node), start)))) == []


@pytest.mark.parametrize(("kafka", "node", "start", "max_records"), IMAGED)
def test_image_at_every_known_offset_is_kafkas(
    replayed: Callable[..., Path], kafka: str, node: str, start: str, max_records: int
) -> None:
    """Also at offset 39 of the migration, inside a transaction that commits later: history is exact to the record."""
    lake = replayed(kafka, node, start, max_records)
    newest = Lake.open(lake)
    assert (newest.first > 0) == (start == "snapshot")
    images = [kafka_image for kafka_image in kafka_images(kafka) if kafka_image["offset"] >= newest.first]
    assert newest.offset == images[-1]["offset"]
    tables = rows_of(lake)
    for expected in images:
        assert engine.image(tables, expected["offset"]) == expected
    for expected in (*images[::8], images[-1]):
        assert image(Lake.open(lake, at_offset=expected["offset"])) == expected


def test_replay_of_random_operations_writes_what_the_reference_says(spark: SparkSession, tmp_path: Path) -> None:
    segment = first_batches(gzip.decompress((TRACES / "seed2.log.gz").read_bytes()), 3000)
    folder = tmp_path / "log" / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(segment)
    Runner(Replay(str(tmp_path / "log"), str(tmp_path / "lake"), max_records=700)).run(spark)
    expected = expected_rows(Reference().add(read_log(tmp_path / "log")))
    assert {row["ended_by"] for row in expected["assignments"]} >= {"lost", "reassigned", "reordered", "removed"}
    assert differences(rows_of(tmp_path / "lake"), expected) == []
