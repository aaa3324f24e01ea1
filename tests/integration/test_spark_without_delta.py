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

ENDS = ("to_offset", "to_time", "ended_by")


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


@pytest.mark.spark
def test_function_at_an_offset_inside_a_transaction_has_the_rows_before_it(spark: SparkSession, tmp_path: Path) -> None:
    """R-TXN-2: T_at showed the part of the transaction from 24 to 41 up to its argument."""
    local.replay(metadata_dir("kafka-3.9.2-zk-migration"), tmp_path / "lake")
    open_lake(tmp_path / "lake").in_spark(spark).create_views("t_")
    for offset in (0, 23, 32, 41, 42):
        rows = spark.sql(f"SELECT * FROM t_partitions_at({offset})").drop(*ENDS).toArrow()
        lake = Lake.open(tmp_path / "lake", offset)
        columns = ", ".join(rows.schema.names)
        expected = f"(SELECT {columns} FROM {lake.at('partitions')})"
        assert same_rows({"Spark": "spark", "DuckDB": expected}, spark=rows) == {"DuckDB": 0}
        assert rows.num_rows == (0 if offset < 41 else 13)
