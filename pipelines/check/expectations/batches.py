"""What the suites are validated on, by engine: DuckDB with pandas in this process, or Spark.

Both decide the rules, and hand their results to Great Expectations as batches. DuckDB does so in a thread of its own:
meanwhile Great Expectations is loaded, and validates the tables. It copies all columns of a data frame of pandas for
each expectation of a column, so columns are narrow. A text is a number of a distinct text. Integers without nulls are
numpy's, which are compared as columns and not value by value. Of a list only its length is there, because the suites
only ask whether it is null.

On Spark, the views of checks and contracts have the same names, rows and types as in DuckDB. delta-rs lists the files
of the versions that the ledger names, so the session needs no Delta Lake. Each rule is a separate job, because Spark
frees sorted, shuffled and broadcast data at the end of a job. The data of all rules in one job would fill the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipelines.check.catalogue import CHECKS, in_order, run_checks
from pipelines.check.contracts import CONTRACTS, Broken, make_tables_of_contracts, run_contracts
from pipelines.check.definition import Check, Finding, finding
from pipelines.check.views import DERIVED, MADE, make_tables
from pipelines.lake import files
from pipelines.lake.delta import data_files, reading
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake
from pipelines.lake.tables import ASSIGNMENT_REQUESTS, BY_NAME, HISTORY, LEDGER, RECORDS
from pipelines.settings import Settings
from pipelines.spark.lake import files_of, true_at
from pipelines.spark.session import spark_session
from pipelines.storage.objects import is_object

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """A data frame with the columns of a table. Nulls stay nulls: numpy's integers have none."""
    import pandas as pd

    narrow = pa.table([_narrow(column) for column in rows.columns], names=rows.column_names)
    frame: pd.DataFrame = narrow.to_pandas(
        types_mapper=lambda kind: None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)
    )
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _is_plain_integer(column):
            frame[name] = narrow[name].to_numpy()
    return frame


@contextmanager
def texts_in_arrow() -> Iterator[None]:
    """Makes pandas compare texts in Arrow during the block. Otherwise it calls a function for each text."""
    import pandas as pd

    with pd.option_context("future.infer_string", True):
        yield


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return pc.list_value_length(column)
    if pa.types.is_string(column.type):
        return column.dictionary_encode()
    # Great Expectations knows int64 only.
    return column.cast(pa.int64()) if _is_plain_integer(column) else column


def _is_plain_integer(column: pa.ChunkedArray) -> bool:
    return pa.types.is_integer(column.type) and not column.null_count


SMALL = 200_000
"""Offsets of a lake for which Spark plans little."""
MOST_IN_PROCESS = 5_000_000
"""Rows of all tables up to which the engine is DuckDB, if the setting does not say. pandas holds a table at a time."""

Engine = Literal["duckdb", "spark"]


@dataclass(frozen=True)
class ValidatedBatches:
    """The results of the rules, and the rows of every table for a data source of Great Expectations."""

    engine: Engine
    broken: Callable[[], Sequence[Broken]]
    """The rows that break the contracts. Waits until they are known."""
    findings: Callable[[], Sequence[Finding]]
    """The findings of the checks. Waits until they are known."""
    table: Callable[[str], Any]
    """All rows of a table by its name, as the data frame of the source."""
    frame: Callable[[pa.Table], Any]
    """A data frame of the source, of a few rows."""


@contextmanager
def batches(lake: Lake, settings: Settings) -> Iterator[ValidatedBatches]:
    """The batches of a lake at its newest offset, from the engine that the settings name, or that fits its size."""
    engine = settings.check.engine
    if engine == "auto":
        rows = sum(
            sum(table.get_add_actions(flatten=True)["num_records"].to_pylist()) for table in lake.tables.values()
        )
        engine = "duckdb" if rows <= MOST_IN_PROCESS else "spark"
    if engine == "spark":
        with _in_spark(session(lake, settings), lake, settings) as lake_batches:
            yield lake_batches
    else:
        with _in_process(lake, settings) as lake_batches:
            yield lake_batches


@contextmanager
def _in_process(lake: Lake, settings: Settings) -> Iterator[ValidatedBatches]:
    def table(name: str) -> pd.DataFrame:
        with reading(lake.path):
            return frame_of(lake.tables[name].to_pyarrow_table(columns=BY_NAME[name].schema.names))

    with ThreadPoolExecutor(1) as rules:
        broken, findings = rules.submit(run_contracts, lake), rules.submit(run_checks, lake, (), settings)
        with texts_in_arrow():
            try:
                yield ValidatedBatches("duckdb", broken.result, findings.result, table, frame_of)
            finally:
                findings.cancel()


def session(lake: Lake, settings: Settings) -> SparkSession:
    """The session for a lake. For a small lake it uses one partition, less planning and no code generation."""
    small = lake.published.end_offset < SMALL
    spark = spark_session(settings.spark, brief=small)
    spark.conf.set("spark.sql.adaptive.enabled", str(not small).lower())
    if small:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    else:
        # Brokers and directories should be broadcast. For other tables, file sizes say little about sizes in memory.
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1m")
    return spark


@contextmanager
def _in_spark(spark: SparkSession, lake: Lake, settings: Settings) -> Iterator[ValidatedBatches]:
    with spark_views(spark, lake, settings) as tables:
        broken, findings = spark_contracts(spark), spark_checks(spark, lake.snapshots)
        yield ValidatedBatches("spark", lambda: broken, lambda: findings, tables.__getitem__, spark.createDataFrame)


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
    import sqlglot

    return sqlglot.transpile(sql, read="duckdb", write="spark")[0]


@contextmanager
def spark_views(spark: SparkSession, lake: Lake, settings: Settings) -> Iterator[dict[str, DataFrame]]:
    """Creates the views for the duration of the context. Yields all rows of every table, cached in memory."""
    views: list[str] = []

    def view(name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(name)
        views.append(name)

    tables = {
        table.name: _read(spark, lake, table.name, lake.tables.get(table.name)).persist()
        for table in (RECORDS, *HISTORY, LEDGER, ASSIGNMENT_REQUESTS)
    }
    try:
        for table in HISTORY:
            view(f"{table.name}_history", tables[table.name])
            view(table.name, tables[table.name].where(true_at(str(lake.offset))))
        for table in (RECORDS, LEDGER, ASSIGNMENT_REQUESTS):
            view(table.name, tables[table.name])
        view("slots", spark.sql(_SLOTS))
        view("ledger_versions", spark.sql(_LEDGER_VERSIONS))
        make_tables_of_contracts(lake)
        make_tables(lake, settings, MADE)
        for name in ("lake", "table_versions", *MADE):
            # From Arrow: of rows made in Python, Spark knows no size, does not broadcast them, and joins all with all.
            view(name, spark.createDataFrame(lake.connection.table(name).to_arrow_table()))
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
    if table is None:
        return spark.createDataFrame(BY_NAME[name].schema.empty_table())
    if is_object(lake.path):
        # Spark alone cannot read S3.
        return spark.createDataFrame(files.read(lake.path, BY_NAME[name], [file["path"] for file in data_files(table)]))
    return files_of(spark, lake.path, name, table)


def spark_contracts(spark: SparkSession) -> list[Broken]:
    """The rows that break the contracts, as from ``run_contracts``. The views must exist."""
    return [
        Broken(contract, what)
        for contract in CONTRACTS
        for what in sorted(what for (what,) in spark.sql(spark_sql(contract.sql)).select("what").collect())
    ]


def spark_checks(spark: SparkSession, snapshots: Collection[int], checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """The findings of the checks, as from ``run_checks``. The views must exist."""
    findings = []
    for check in checks:
        for (text,) in _as_json(spark.sql(spark_sql(check.sql))).collect():
            row = json.loads(text)
            findings.append(finding(check, row | {"from_time": time_of(row["from_time"])}, snapshots))
    return in_order(findings)


def _as_json(rows: DataFrame) -> DataFrame:
    """Each row as JSON text with times in microseconds, because checks have different columns."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    columns = [
        F.unix_micros(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in rows.schema
    ]
    return rows.select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("row"))
