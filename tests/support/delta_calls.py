"""Functions that the tests of delta-spark run in the process of the session (tests.support.spark_engine)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipelines import open_lake
from pipelines.lake.tables import BY_NAME
from pipelines.spark.catalog import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Versions = list[tuple[str, int, str]]
"""(a table's path, a version, a label)."""


def write_versions(spark: SparkSession, tables: dict[str, Versions], out: str) -> None:
    """Writes all rows of versions of tables, read by Delta Lake, to a Parquet folder for each key; with their label."""

    def write(name: str) -> None:
        read = [
            spark.read.format("delta").option("versionAsOf", version).load(path).withColumn("label", F.lit(label))
            for path, version, label in tables[name]
        ]
        _keep(reduce(lambda left, right: left.unionByName(right), read), f"{out}/{name}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, tables))


def write_lake_at(spark: SparkSession, lake: str, offsets: list[int], tables: list[str], out: str) -> dict[str, object]:
    """Opens a lake at offsets and writes every answer about ``tables`` to a Parquet folder of its name. Returns the
    answers' facts."""
    # Delta Lake itself sets spark.sql.parquet.fieldId.read.enabled when it first reads a table.
    spark.read.format("delta").load(f"{lake}/ledger").count()
    before = dict(spark.conf.getAll)
    wanted = {}
    for offset in offsets:
        opened = open_lake(lake, offset).in_spark(spark)
        assert opened.has_delta
        assert opened.offset == offset
        names = opened.create_views("j_")
        assert {f"j_{name}" for name in opened.versions} <= {*names}
        for name in tables:
            wanted[f"until-{name}-{offset}"] = opened.history(name)
            if not BY_NAME[name].history:
                continue
            wanted[f"at-{name}-{offset}"] = opened.table(name)
            wanted[f"now-{name}-{offset}"] = spark.table(f"j_{name}_now")
            wanted[f"called-{name}-{offset}"] = spark.sql(f"SELECT * FROM j_{name}_at({offset})")
    last = offsets[-1]
    newest = open_lake(lake).in_spark(spark)
    newest.create_views("j_")
    for offset in offsets:
        wanted[f"past-assignments-{offset}"] = spark.sql(f"SELECT * FROM j_assignments_at({offset})")
    time = newest.lake.time.isoformat()
    query = f"SELECT * FROM j_offline_replicas_at((SELECT j_offset_at(TIMESTAMP '{time}')))"
    wanted[f"timed-offline_replicas-{newest.offset}"] = spark.sql(query)
    wanted[f"now-offline-{newest.offset}"] = spark.table("j_offline_now")

    def write(name: str) -> None:
        _keep(wanted[name], f"{out}/{name}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, wanted))
    unknown = _error(spark, f"SELECT * FROM j_assignments_at({newest.offset + 1})")
    return {"same settings": before == dict(spark.conf.getAll), "unknown": unknown, "last": last}


def write_catalog(spark: SparkSession, lake: str, offsets: list[int], out: str) -> dict[str, object]:
    """Registers a lake twice, and writes the answers of the catalog."""
    names = register(lake, "jbod_test", spark=spark)
    assert register(lake, "jbod_test", spark=spark) == names
    _keep(spark.table("jbod_test.offline_now"), f"{out}/now")
    for offset in offsets:
        _keep(spark.sql(f"SELECT * FROM jbod_test.assignments_at({offset})"), f"{out}/assignments-{offset}")
    history = spark.sql("DESCRIBE HISTORY jbod_test.assignments").orderBy("version").collect()
    table = spark.sql("DESCRIBE TABLE EXTENDED jbod_test.assignments").collect()
    view = spark.sql("DESCRIBE TABLE EXTENDED jbod_test.offline_now").collect()
    return {
        "names": names,
        "history": [[row.operation, row.userMetadata] for row in history],
        "comment": next(row.data_type for row in table if row.col_name == "Comment"),
        "columns": {row.col_name: row.comment for row in view if row.comment},
        "other": _refused(spark, lake.replace("/lake", "/other")),
    }


def _keep(rows: DataFrame, folder: str) -> None:
    """Writes what Spark reads as a Parquet file. Spark itself takes three times as long to write a few rows."""
    Path(folder).mkdir(parents=True)
    pq.write_table(rows.toArrow(), f"{folder}/rows.parquet")


def _refused(spark: SparkSession, lake: str) -> str:
    try:
        register(lake, "jbod_test", spark=spark)
    except Exception as problem:
        return str(problem)
    return ""


def _error(spark: SparkSession, sql: str) -> str:
    try:
        spark.sql(sql).collect()
    except Exception as problem:
        return str(problem)
    return ""
