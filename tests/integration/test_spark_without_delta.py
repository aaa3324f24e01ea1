"""A lake opened in a session that has no Delta Lake: delta-rs lists the files, and Spark reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jbod_model.errors import UsageError
from pipelines import open_lake
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME
from pipelines.spark.catalog import register
from tests.support import local
from tests.support.paths import metadata_dir
from tests.support.tables import same_rows


@pytest.mark.spark
def test_session_without_delta_reads_the_files_of_the_same_versions(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lake"
    local.replay(metadata_dir("kafka-3.7.2"), path, most=350)
    lake = open_lake(path, 264).in_spark(spark)
    assert not lake.has_delta
    plain = Lake.open(path, 264)
    for name in ("assignments", "offline_replicas"):
        rows = lake.table(name).toArrow()
        expected = f"(SELECT {', '.join(BY_NAME[name].schema.names)} FROM {plain.at(name)})"
        assert same_rows({"Spark": "spark", "DuckDB": expected}, spark=rows) == {"DuckDB": 0}
        assert rows.num_rows
    with pytest.raises(UsageError, match=r"no table nothing: there are assignments, brokers"):
        lake.table("nothing")
    with pytest.raises(UsageError, match=r"Delta tables: start it with the settings that docs/spark\.md shows"):
        register(path, "jbod_test", spark=spark)
