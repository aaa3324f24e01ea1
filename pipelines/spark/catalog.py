"""A lake in a catalog: its tables as external Delta tables, and views and functions of what is true at an offset.

    from pipelines.spark.catalog import register

    register("/srv/jbod/lake", "main.jbod", spark=spark)
    spark.sql("SELECT * FROM main.jbod.offline_now").show()

The external tables are at their newest Delta version. While a batch is being published, some are one batch ahead of
the others. The views and functions leave out what the ledger does not name yet, so they are consistent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jbod_model.errors import UsageError
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, LEDGER, RECORDS, Table
from pipelines.lake.uris import for_spark
from pipelines.spark.lake import Bounds, SparkLake, functions, rows_until, views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(path: str | os.PathLike[str], schema: str, *, spark: SparkSession | None = None) -> list[str]:
    """Registers the lake at ``path`` in ``schema`` (``catalog.schema`` or ``schema``). Returns what it made, sorted.

    External tables with the names and comments of the lake's; for each history table ``T`` the view ``T_now`` and the
    function ``T_at(offset)``; ``offset_at(time)``; ``offline_now``; and ``T_published``, the rows that the ledger
    names, on which these are built. Existing ones are replaced, except for tables, which must be of the same
    lake. Nothing is written to the lake. The session needs Delta Lake. Raises UsageError if it has none, if there is
    no lake, or if a table of another location has the name.
    """
    lake = SparkLake.of(Lake.open(path), spark)
    spark = lake.spark
    if not lake.has_delta:
        raise UsageError(
            f"{schema}: the session cannot read Delta tables: start it with the settings that docs/spark.md shows, "
            'under "A session with Delta Lake"'
        )
    quoted = ".".join(f"`{part}`" for part in schema.split("."))
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
    made = []
    for name in lake.versions:
        where = for_spark(f"{lake.lake.path}/{name}")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {quoted}.{name} USING DELTA LOCATION '{_text(where)}'")
        location = spark.sql(f"DESCRIBE DETAIL {quoted}.{name}").select("location").collect()[0][0]
        if _plain(location) != _plain(where):
            raise UsageError(f"{quoted}.{name}: is a table of {location}: choose another schema, or drop it")
        made.append(name)
    ledger = f"{quoted}.{LEDGER.name}"
    last = f"(SELECT max(end_offset) - 1 FROM {ledger})"
    first = f"(SELECT min(coalesce(from_snapshot - 1, start_offset)) FROM {ledger})"
    relations = {}
    for name in lake.versions:
        table = BY_NAME[name]
        relations[name] = f"{quoted}.{name}"
        if table.history or table is RECORDS:
            where, columns = rows_until(table, last)
            query = f"SELECT {', '.join(columns)} FROM {quoted}.{name} WHERE {where}"
            relations[name] = f"{quoted}.{name}_published"
            made.append(_view(spark, quoted, f"{name}_published", table, query, "the rows that the ledger names"))
    for name, table, query in views(relations):
        made.append(_view(spark, quoted, name, table, query, "true now"))
    for signature, query in functions(relations, Bounds(first, last)):
        spark.sql(f"CREATE OR REPLACE FUNCTION {quoted}.{signature} RETURN {query}")
        made.append(signature.partition("(")[0])
    return sorted(made)


def _view(spark: SparkSession, schema: str, name: str, table: Table, query: str, which: str) -> str:
    """Creates a view with the comments of the table's columns."""
    columns = ", ".join(
        f"{field.name} COMMENT '{_text((field.metadata or {}).get(b'comment', b'').decode())}'"
        for field in table.schema
    )
    comment = _text(f"{table.comment.rstrip('.')}: {which}")
    spark.sql(f"CREATE OR REPLACE VIEW {schema}.{name} ({columns}) COMMENT '{comment}' AS {query}")
    return name


def _plain(location: str) -> str:
    """A location by which Spark's spellings of file URIs compare equal."""
    scheme, _, rest = location.rpartition(":")
    return f"{scheme or 'file'}:/{rest.strip('/')}"


def _text(plain: str) -> str:
    return plain.replace("\\", "\\\\").replace("'", "\\'")
