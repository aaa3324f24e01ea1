"""The engine's tables equal, row for row, those of the plain reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.replay.run import Replay, Runner
from tests.lakes import Reference
from tests.logs import read_log
from tests.paths import KAFKAS, metadata_dir
from tests.tables import differences, expected_rows, rows_of

pytestmark = pytest.mark.spark

CASES = [
    *((kafka, "controller-100", "log", 1_000_000) for kafka in KAFKAS),
    ("kafka-4.1.2", "controller-100", "log", 50),
    ("kafka-4.1.2", "controller-100", "snapshot", 1_000_000),
    ("kafka-3.9.2-upgrade", "broker-3", "snapshot", 50),
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
