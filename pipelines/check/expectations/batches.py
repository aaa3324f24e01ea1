"""What the suites are validated on, by engine: DuckDB with pandas in this process, or Spark.

Both decide the rules, and hand their results to Great Expectations as batches. DuckDB does so in a thread of its own:
meanwhile Great Expectations is loaded, and validates the tables. It copies all columns of a data frame of pandas for
each expectation of a column, so columns are narrow. A text is a number of a distinct text. Integers without nulls are
numpy's, which are compared as columns and not value by value. Of a list only its length is there, because the suites
only ask whether it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.check.catalogue import run_checks
from pipelines.check.contracts import Broken, run_contracts
from pipelines.check.definition import Finding
from pipelines.lake.delta import reading
from pipelines.lake.ledger import open_ledger
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, LEDGER
from pipelines.settings import Settings
from pipelines.spark.session import spark_session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """A data frame with the columns of a table. Nulls stay nulls: numpy's integers have none."""
    import pandas as pd

    narrow = pa.table([_narrow(column) for column in rows.columns], names=rows.column_names)
    found: pd.DataFrame = narrow.to_pandas(
        types_mapper=lambda kind: None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)
    )
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if _is_plain_integer(column):
            found[name] = narrow[name].to_numpy()
    return found


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
        with _in_spark(session(lake, settings), lake, settings) as found:
            yield found
    else:
        with _in_process(lake, settings) as found:
            yield found


@contextmanager
def _in_process(lake: Lake, settings: Settings) -> Iterator[ValidatedBatches]:
    def table(name: str) -> pd.DataFrame:
        delta = open_ledger(lake.path) if name == LEDGER.name else lake.tables[name]
        with reading(lake.path):
            return frame_of(delta.to_pyarrow_table(columns=BY_NAME[name].schema.names))

    with ThreadPoolExecutor(1) as rules:
        broken, found = rules.submit(run_contracts, lake), rules.submit(run_checks, lake, (), settings)
        with texts_in_arrow():
            try:
                yield ValidatedBatches("duckdb", broken.result, found.result, table, frame_of)
            finally:
                found.cancel()


def session(lake: Lake, settings: Settings) -> SparkSession:
    """The session for a lake. For a small lake it uses one partition, less planning and no code generation."""
    small = lake.published.end_offset < SMALL
    spark = spark_session(replace(settings.spark, shuffle_partitions=1) if small else settings.spark, brief=small)
    spark.conf.set("spark.sql.adaptive.enabled", str(not small).lower())
    if not small:
        # Brokers and directories should be broadcast. For other tables, file sizes say little about sizes in memory.
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1m")
    return spark


@contextmanager
def _in_spark(spark: SparkSession, lake: Lake, settings: Settings) -> Iterator[ValidatedBatches]:
    from pipelines.check.expectations.spark_views import spark_checks, spark_contracts, spark_views

    with spark_views(spark, lake, settings) as tables:
        broken, found = spark_contracts(spark), spark_checks(spark)
        yield ValidatedBatches("spark", lambda: broken, lambda: found, tables.__getitem__, spark.createDataFrame)
