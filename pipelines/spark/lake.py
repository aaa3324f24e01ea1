"""A lake in a Spark session: its tables as DataFrames and in SQL, at the versions that the ledger names.

``in_spark`` takes the session that is given, or the active one, and changes none of its settings::

    from pipelines import open_lake

    lake = open_lake("/srv/jbod/lake", at_offset=231).in_spark()
    lake.table("assignments").where("broker_id = 3").show()
    lake.create_views()
    spark.sql("SELECT reason, count(*) FROM offline_now GROUP BY reason").show()

The tables and their columns are declared in pipelines.lake.tables; docs/spark.md shows more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from jbod_model.errors import UsageError
from pipelines.lake.delta import data_files
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, LEDGER, Table
from pipelines.lake.uris import LakeUri, for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFLINE_NOW = "offline_now"
_ENDS = ("to_offset", "to_time", "ended_by")


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from pipelines.settings import load
    from pipelines.spark.session import spark_session
    from pipelines.spark.versions import has_jars

    return SparkSession.getActiveSession() or spark_session(load().spark, delta=has_jars())


@dataclass(frozen=True)
class SparkLake:
    """A lake as of one offset in a Spark session. All DataFrames and views of it are consistent with each other."""

    lake: Lake
    spark: SparkSession

    @classmethod
    def of(cls, lake: Lake, spark: SparkSession | None = None) -> SparkLake:
        """The lake in ``spark``, or in the active session; if there is none, jbod starts one with Delta Lake."""
        return cls(lake, spark or _session())

    @property
    def offset(self) -> int:
        """The offset of the last record that the answers include."""
        return self.lake.offset

    @property
    def time(self) -> datetime:
        """When that record was appended."""
        return self.lake.time

    @cached_property
    def _deltas(self) -> Mapping[str, DeltaTable]:
        return {name: self.lake.tables[name] for name in (*self.lake.tables, LEDGER.name) if name in BY_NAME}

    @property
    def versions(self) -> Mapping[str, int]:
        """The Delta version of every table that the newest publication names, and of the ledger."""
        return {name: delta.version() for name, delta in self._deltas.items()}

    def table(self, name: str) -> DataFrame:
        """The rows that are true at the offset; of a table without intervals, such as records, all rows until then.

        Through Delta Lake if the session has it. Otherwise Spark reads the Parquet files of the same version, which
        hold the same rows. Raises UsageError for a table that the lake does not have.
        """
        rows = self._version(name)
        return rows.where(true_at(str(self.offset))) if BY_NAME[name].history else self.history(name)

    def history(self, name: str) -> DataFrame:
        """All rows until the offset. Of rows that ended later, the end is null. Raises UsageError like ``table``.

        Requests and their rejects do not have offsets of the log; they are returned as they are.
        """
        rows = self._version(name)
        where, columns = rows_until(BY_NAME[name], str(self.offset))
        return rows.where(where).selectExpr(*columns)

    def _version(self, name: str) -> DataFrame:
        """All rows of a table at its version, whatever the offset."""
        delta = self._deltas.get(name)
        if delta is None:
            raise UsageError(f"{self.lake.path}: no table {name}: there are {', '.join(sorted(self._deltas))}")
        if self.has_delta:
            rows = self.spark.read.format("delta").option("versionAsOf", delta.version()).load(self._location(name))
        else:
            rows = files_of(self.spark, self.lake.path, name, delta)
        return rows.select(*BY_NAME[name].schema.names)

    def create_views(self, prefix: str = "") -> list[str]:
        """Creates temporary views and table functions as of the offset. Returns their names, sorted.

        ``T`` for each table: its rows until the offset. For each history table also ``T_now`` and ``T_at(offset)``: the
        rows that are true then; ``offset_at(time)``. ``offline_now`` is ``offline_replicas_now``. Each name begins with
        ``prefix``. Functions need Spark 4.
        """
        relations = {name: f"{prefix}{name}" for name in self.versions}
        for name, view in relations.items():
            self.history(name).createOrReplaceTempView(view)
        made = [*relations.values()]
        for name, _, query in views(relations):
            self.spark.sql(query).createOrReplaceTempView(f"{prefix}{name}")
            made.append(f"{prefix}{name}")
        bounds = Bounds(str(self.lake.first), str(self.offset))
        for signature, query in functions(relations, bounds):
            self.spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {prefix}{signature} RETURN {query}")
            made.append(f"{prefix}{signature.partition('(')[0]}")
        return sorted(made)

    @cached_property
    def has_delta(self) -> bool:
        """Whether the session can read Delta tables."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, PySparkException

        try:
            self.spark.read.format("delta").load(self._location(LEDGER.name)).schema  # noqa: B018  Connect is lazy
        except AnalysisException:
            return False
        except (PySparkException, Py4JJavaError) as problem:
            # PySpark 4.2 has no class of its own for SparkClassNotFoundException.
            if "DATA_SOURCE_NOT_FOUND" not in str(problem):
                raise
            return False
        return True

    def _location(self, name: str) -> str:
        return for_spark(f"{self.lake.path}/{name}")


def files_of(spark: SparkSession, lake: LakeUri, name: str, table: DeltaTable) -> DataFrame:
    """All rows of a table's version, read as Parquet. Its files are those that Delta's log names."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(BY_NAME[name].schema)
    paths = [f"{lake}/{name}/{file['path']}" for file in data_files(table)]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


@dataclass(frozen=True)
class Bounds:
    """The offsets that a question may name, as SQL: the oldest and the newest."""

    first: str
    last: str


def true_at(offset: str) -> str:
    """The condition of history rows that are true at an offset, an SQL expression."""
    return f"from_offset <= {offset} AND (to_offset IS NULL OR to_offset > {offset})"


def rows_until(table: Table, offset: str) -> tuple[str, list[str]]:
    """Condition and columns of a table as it was at an offset. Later ends are null; requests have no offset."""
    names = table.schema.names
    if table.history:
        hidden = [f"CASE WHEN to_offset <= {offset} THEN {name} END AS {name}" for name in _ENDS if name in names]
        kept = {expression.rpartition(" ")[2]: expression for expression in hidden}
        return f"from_offset <= {offset}", [kept.get(name, name) for name in names]
    position = next((name for name in ("log_offset", "start_offset") if name in names), None)
    return ("true" if position is None else f"{position} <= {offset}"), names


def views(tables: Mapping[str, str]) -> Iterator[tuple[str, Table, str]]:
    """(name, table, query) of the views of what is true now. ``tables``: each table and the relation of its rows.

    The relations show later ends as null (``rows_until``).
    """
    for name, relation in tables.items():
        table = BY_NAME[name]
        if table.history:
            query = f"SELECT {', '.join(table.schema.names)} FROM {relation} WHERE to_offset IS NULL"
            yield f"{name}_now", table, query
            if name == "offline_replicas":
                yield OFFLINE_NOW, table, query


def functions(tables: Mapping[str, str], bounds: Bounds) -> Iterator[tuple[str, str]]:
    """(signature with RETURNS, query) of the functions: ``offset_at``, and ``T_at`` of each history table."""
    by_then = f"SELECT max(log_offset) FROM {tables['records']} WHERE append_time <= at_time"
    yield "offset_at(at_time TIMESTAMP) RETURNS BIGINT", by_then
    message = f"'this lake knows the offsets ' || {bounds.first} || ' to ' || {bounds.last}"
    known = f"IF(at BETWEEN {bounds.first} AND {bounds.last}, at, CAST(raise_error({message}) AS BIGINT))"
    for name, relation in tables.items():
        if BY_NAME[name].history:
            yield f"{name}_at(at BIGINT) RETURNS TABLE", f"SELECT * FROM {relation} WHERE {true_at(known)}"
