"""The Spark data source ``kraft_metadata``: a metadata log as rows, in batch and streaming.

``spark.read.format("kraft_metadata").load(dir)`` gives every record with its typed columns.

Options:
- ``path``: a metadata.log.dir or its ``__cluster_metadata-0``, a URI of pyarrow.fs, or ``kafka://HOST:PORT``.
- ``mirror``: for ``kafka://``, the folder of the copy, which the driver and all executors see. Each read, and each
  micro-batch of a stream, begins with what is committed then. The setting ``quorum.command_config`` has TLS and SASL.
- ``start``: ``auto`` (default), ``log`` or ``snapshot``.
- ``maxRecords``: of a micro-batch; 0 (default) for no limit.
- ``tail``: what to do at a cut-off last batch, ``wait`` (default) or ``stop``.
- ``keepUnknown``: ``true`` keeps records of unknown types, unread; by default ``false``.
- ``partitions``: the most tasks of a read, by default 4. A log of few bytes has two at most.
- ``layout``: ``records`` (default), or ``slices``: the places of the records instead of their content.
- ``settle``: how far the reader stays behind the end of the log, ``100`` records or ``2s``.
- ``idleSeconds``: how long, by the log's time, a stream waits if there are only NoOpRecords; by default 55.
- ``waitSeconds``: how long a stream waits for new records when Spark asks for them; by default 0. Not for a log on
  object storage, where each look is a request.
- ``from``: JSON of the position where a stream begins.
- ``limit``: nothing from this offset on is read.
- ``stands`` and ``ends``: what Spark before 4.2 does not tell a stream (pipelines.source.limits).

Spark creates an instance in a new process for each call on the driver, so the readers are imported only when needed.

The source never reads past the last complete batch or inside an open transaction, nor a record of an aborted one.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from jbod_model.errors import crossing
from pipelines.source.log_options import SLICES, SLICES_SCHEMA, LogOptions


class KraftMetadata(DataSource):
    """The data source; register it with ``spark.dataSource.register(KraftMetadata)``."""

    @classmethod
    def name(cls) -> str:
        """The short name for ``format``."""
        return "kraft_metadata"

    @crossing()
    def schema(self) -> StructType | str:
        """Columns of the layout."""
        if LogOptions.read(self.options).layout == SLICES:
            return SLICES_SCHEMA
        from pyspark.sql.pandas.types import from_arrow_schema

        from pipelines.source.typed import TYPED_SCHEMA

        return from_arrow_schema(TYPED_SCHEMA)

    @crossing()
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """A batch read to the end of what may be read."""
        from pipelines.source.readers import BatchReader

        return BatchReader(LogOptions.read(self.options))

    @crossing()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """A streaming read."""
        from pipelines.source.limits import fit_reader
        from pipelines.source.readers import StreamReader

        return fit_reader(StreamReader(LogOptions.read(self.options)), self.options)


def register(spark: Any) -> None:
    """Make ``format("kraft_metadata")`` known to a session."""
    spark.dataSource.register(KraftMetadata)
