"""The tables of a lake or of a log in Python: as Arrow tables, as pandas DataFrames, and in a Spark session.

    from pipelines import open_lake, read_log

    open_lake("lake").table("offline_replicas").to_pandas()
    read_log("/var/lib/kafka/metadata", at_offset=231).table("assignments").where("broker_id = 3").to_arrow()
    open_lake("lake").in_spark().table("offline_replicas").show()

docs/python.md shows more. The tables and their columns are declared in pipelines.lake.tables.
"""

from __future__ import annotations

import os
import warnings
import weakref
from dataclasses import dataclass
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from jbod_model.errors import UsageError, first_line_of
from pipelines.lake.delta import read_parquet, reading
from pipelines.lake.reader import Lake
from pipelines.lake.tables import BY_NAME, HISTORY, LEDGER, RECORDS
from pipelines.spark.lake import SparkLake, rows_until

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession


def open_lake(
    path: str | os.PathLike[str], at_offset: int | None = None, at_time: datetime | str | None = None
) -> LakeFrames:
    """The lake at ``path`` after the record at ``at_offset``, or after the last one appended by ``at_time`` (UTC).

    Without either, after the newest published record. ``at_time`` may be a text, as --at-time takes it: ``-10m``.
    Raises UsageError if there is no lake, if it does not know that offset or time, or if both are given.
    """
    _refuse_both(at_offset, at_time)
    return LakeFrames(Lake.open(path, at_offset, at_time))


def read_log(
    path: str | os.PathLike[str], at_offset: int | None = None, at_time: datetime | str | None = None
) -> Frames:
    """The log at ``path``, replayed in memory; ``path`` is a metadata.log.dir, its log, a URI, or kafka://HOST:PORT.

    Of a quorum it is what is committed now; the setting ``quorum.command_config`` has TLS and SASL.

    ``at_offset`` and ``at_time`` as for ``open_lake``. A warning names what waits at the end of the log, such as an
    incomplete batch. Raises UsageError if there is no log. Raises the error of a damaged log, which names the offset,
    unless ``at_offset`` or ``at_time`` is before the damage.
    """
    from pipelines.quorum import KAFKA
    from pipelines.run.log_lake import LogLake
    from pipelines.source.log_options import LogOptions

    _refuse_both(at_offset, at_time)
    place = os.fspath(path)
    copy = _committed(place) if place.startswith(KAFKA) else None
    lake = LogLake.of(LogOptions(path=place if copy is None else copy.name), at_offset, at_time)
    if copy is not None:
        weakref.finalize(lake, copy.cleanup)
    if lake.log.refusal is not None and at_offset is None and lake.offset == lake.log.end_offset - 1:
        raise lake.log.refusal  # the records of a later time may be behind the damage
    for line in lake.log.notices:
        warnings.warn(line, stacklevel=2)
    return Frames(lake)


def _refuse_both(at_offset: int | None, at_time: datetime | str | None) -> None:
    if at_offset is not None and at_time is not None:
        raise UsageError("at_offset and at_time: give one of them")


def _committed(url: str) -> TemporaryDirectory[str]:
    """A private folder with all that a quorum has committed now."""
    from pipelines.mirror.follow import committed
    from pipelines.settings import load

    return committed(url, load().quorum.command_config, warnings.warn)[0]


@dataclass(frozen=True)
class Frames:
    """The tables of a lake or a log as of one offset. All of them are consistent with each other."""

    lake: Lake

    @property
    def offset(self) -> int:
        """The offset of the last record that the tables include."""
        return self.lake.offset

    @property
    def time(self) -> datetime:
        """When that record was appended."""
        return self.lake.time

    @property
    def names(self) -> list[str]:
        """The names of the tables, sorted."""
        return sorted((RECORDS.name, *(table.name for table in HISTORY)))

    def table(self, name: str) -> Rows:
        """The rows that are true at the offset; of a table without intervals, such as records, all rows until then.

        Raises UsageError for a table that is not there.
        """
        self._check(name)
        return self._rows(name, self.lake.at(name) if BY_NAME[name].history else self._all_until(name))

    def history(self, name: str) -> Rows:
        """All rows until the offset. Of rows that ended later, the end is null. Raises UsageError like ``table``."""
        self._check(name)
        return self._rows(name, self.lake.until(name) if BY_NAME[name].history else self._all_until(name))

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise UsageError(f"{self.lake.path}: no table {name}: there are {', '.join(self.names)}")

    def _rows(self, name: str, relation: str) -> Rows:
        return Rows(self.lake, name, f"SELECT {', '.join(BY_NAME[name].schema.names)} FROM {relation}")

    def _all_until(self, name: str) -> str:  # noqa: ARG002  of a log, only records have no intervals
        """SQL for the rows of a table without intervals until the offset."""
        return self.lake.records()


class LakeFrames(Frames):
    """The tables of a lake, which Spark can read as well."""

    @property
    def names(self) -> list[str]:
        """The names of the tables, sorted."""
        return sorted((*(name for name in self.lake.tables if name in BY_NAME), LEDGER.name))

    def in_spark(self, spark: SparkSession | None = None) -> SparkLake:
        """The same tables as Spark's DataFrames, with ``table`` and ``history`` as here, and as views for SQL.

        Without ``spark``, in the active session; if there is none, jbod starts one with Delta Lake. This process reads
        the ledger, so it must reach the lake under the same path as Spark.
        """
        return SparkLake.of(self.lake, spark)

    def _all_until(self, name: str) -> str:
        if name == RECORDS.name:
            return self.lake.records()
        where, _ = rows_until(BY_NAME[name], str(self.offset))
        return f"{read_parquet(self.lake.path, name, self.lake.tables[name], by_name=True)} WHERE {where}"


@dataclass(frozen=True)
class Rows:
    """Rows of a table. They are read when they are converted.

    polars and DuckDB take them as they are (``pl.DataFrame(rows)``), by Arrow's PyCapsule interface.
    """

    lake: Lake
    name: str
    query: str

    def where(self, condition: str) -> Rows:
        """Those rows for which a condition in DuckDB's SQL holds, such as ``broker_id = 3``."""
        return Rows(self.lake, self.name, f"SELECT * FROM ({self.query}) WHERE ({condition})")

    def to_arrow(self) -> pa.Table:
        """An Arrow table with the columns and types of pipelines.lake.tables; times are in UTC.

        Raises UsageError for a condition that DuckDB does not accept, and if a file of the lake is damaged or gone.
        """
        with reading(self.lake.path):
            try:
                table: pa.Table = self.lake.connection.sql(self.query).to_arrow_table()
            except (duckdb.ParserException, duckdb.BinderException, duckdb.ConversionException) as problem:
                raise UsageError(f"{self.name}: {first_line_of(problem)}") from None
        return table.cast(BY_NAME[self.name].schema)

    def to_pandas(self) -> pd.DataFrame:
        """A pandas DataFrame. Whole numbers and booleans have the types Int32, Int64 and boolean, which can be null."""
        import pandas as pd
        import pyarrow as pa

        kinds = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        frame: pd.DataFrame = self.to_arrow().to_pandas(types_mapper=kinds.get)
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for other libraries, by Arrow's PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
