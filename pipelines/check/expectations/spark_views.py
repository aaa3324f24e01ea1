"""The views of checks and contracts on Spark: the same names, rows and types as in DuckDB; and how they run there.

delta-rs lists the files of the versions that the ledger names, so the session needs no Delta Lake. Each rule is a
separate job, because Spark frees sorted, shuffled and broadcast data at the end of a job. The data of all rules in one
job would fill the memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from deltalake import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import TimestampType

from pipelines.check.catalogue import CHECKS, in_order
from pipelines.check.contracts import CONTRACTS, Broken, about, newest_versions
from pipelines.check.definition import Check, Finding, finding
from pipelines.check.views import (
    DERIVED,
    DISK_SIZES,
    HELD_BACK,
    LAST_COPIES,
    LOSSES,
    MOVES,
    TIERED,
    Rows,
    disk_size_rows,
    held_back_rows,
    inputs,
    last_copies_rows,
    loss_rows,
    losses_of,
    move_rows,
    tiered_rows,
)
from pipelines.lake import files
from pipelines.lake.delta import data_files
from pipelines.lake.ledger import open_ledger, time_of
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, BY_NAME, HISTORY, LEDGER, RECORDS
from pipelines.settings import Settings
from pipelines.storage.objects import is_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLOTS = """
    SELECT topic_id, partition, from_offset, to_offset, slot AS replica_index, pair.replicas AS broker_id,
           pair.directories AS directory_id
    FROM partitions_history LATERAL VIEW posexplode(arrays_zip(replicas, directories)) AS slot, pair
"""
_LEDGER_VERSIONS = (
    "SELECT end_offset, table_name, version FROM ledger LATERAL VIEW explode(versions) AS table_name, version"
)


def spark_sql(sql: str) -> str:
    """The SQL of a check or contract, in Spark's dialect."""
    return sqlglot.transpile(sql, read="duckdb", write="spark")[0]


@contextmanager
def spark_views(spark: SparkSession, lake: Lake, settings: Settings) -> Iterator[dict[str, DataFrame]]:
    """Creates the views for the duration of the context. Yields all rows of every table, cached in memory."""
    views: list[str] = []

    def view(name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(name)
        views.append(name)

    def few(**columns: Any) -> DataFrame:
        # From Arrow: for rows made in Python, Spark knows no size, does not broadcast them and uses a cartesian join.
        return spark.createDataFrame(pa.table(columns))

    def made(rows: Rows, schema: pa.Schema) -> DataFrame:
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))

    deltas = {**lake.tables, LEDGER.name: open_ledger(lake.path)}
    tables = {
        table.name: _read(spark, lake, table.name, deltas.get(table.name)).persist()
        for table in (RECORDS, *HISTORY, LEDGER, ASSIGNMENT_REQUESTS)
    }
    try:
        for table in HISTORY:
            view(f"{table.name}_history", tables[table.name])
            true_now = f"from_offset <= {lake.offset} AND (to_offset IS NULL OR to_offset > {lake.offset})"
            view(table.name, tables[table.name].where(true_now))
        for table in (RECORDS, LEDGER, ASSIGNMENT_REQUESTS):
            view(table.name, tables[table.name])
        view("slots", spark.sql(_SLOTS))
        view("ledger_versions", spark.sql(_LEDGER_VERSIONS))
        newest = newest_versions(lake)
        view("table_versions", few(table_name=[*newest], version=[*newest.values()]))
        view("lake", few(**{name: [value] for name, value in about(lake).items()}))
        view("moves", made(move_rows(lake), MOVES))
        data = losses_of(lake, settings)
        view("losses", made(loss_rows(data), LOSSES))
        view("last_copies", made(last_copies_rows(lake, data), LAST_COPIES))
        view("held_back", made(held_back_rows(lake, settings), HELD_BACK))
        view("disk_sizes", made(disk_size_rows(lake), DISK_SIZES))
        view("tiered", made(tiered_rows(lake), TIERED))
        params, min_isr = inputs(lake, settings)
        view("params", few(**{name: [value] for name, value in asdict(params).items()}))
        topics, numbers = pa.array([*min_isr], pa.string()), pa.array([*min_isr.values()], pa.int32())
        view("min_isr", few(topic=topics, min_insync_replicas=numbers))
        for name, query in DERIVED.items():
            view(name, spark.sql(spark_sql(query)))
        yield tables
    finally:
        for name in views:
            spark.catalog.dropTempView(name)
        for rows in tables.values():
            rows.unpersist()


def _read(spark: SparkSession, lake: Lake, name: str, table: DeltaTable | None) -> DataFrame:
    """All rows of a table, empty if the lake does not have it."""
    schema = BY_NAME[name].schema
    if is_object(lake.path):
        # Spark alone cannot read S3.
        return spark.createDataFrame(
            files.read(lake.path, BY_NAME[name], [file["path"] for file in (data_files(table) if table else ())])
        )
    paths = [f"{lake.path}/{name}/{file['path']}" for file in (data_files(table) if table else ())]
    if not paths:
        return spark.createDataFrame(schema.empty_table())
    return spark.read.schema(from_arrow_schema(schema)).parquet(*paths)


def spark_contracts(spark: SparkSession) -> list[Broken]:
    """The rows that break the contracts, as from ``run_contracts``. The views must exist."""
    return [
        Broken(contract, what)
        for contract in CONTRACTS
        for what in sorted(what for (what,) in spark.sql(spark_sql(contract.sql)).select("what").collect())
    ]


def spark_checks(spark: SparkSession, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """The findings of the checks, as from ``run_checks``. The views must exist."""
    found = []
    for check in checks:
        for (text,) in _as_json(spark.sql(spark_sql(check.sql))).collect():
            row = json.loads(text)
            found.append(finding(check, row | {"from_time": time_of(row["from_time"])}))
    return in_order(found)


def _as_json(rows: DataFrame) -> DataFrame:
    """Each row as JSON text with times in microseconds, because checks have different columns."""
    columns = [
        F.unix_micros(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in rows.schema
    ]
    return rows.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row"))
