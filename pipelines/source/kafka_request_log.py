"""The Spark data source ``kafka_request_log``: requests to controllers and their answers, in batch and streaming.

``spark.read.format("kafka_request_log").load("/var/log/kafka/kafka-request.log*")`` gives a row per completed request
of the APIs that change registrations, partitions and directories (``jbod_model.formats.request_log.APIS``). All others
are left out, SCRAM credentials and delegation tokens among them.

Options:
- ``path`` or ``paths``: files and globs, plain or gzip, FILE with its rotations FILE.*; several as a JSON list.
- ``layout``: ``requests``; ``rejects``, the lines that cannot be read; or ``parts``, assignments and rejects, packed
  for the main job.
- ``maxBytes``: of a micro-batch, unpacked.
- ``timeZone``: of the controllers' clocks, for times that name none; by default UTC.
- ``partitions``: the tasks of a read.
- ``stands`` and ``ends``: what Spark before 4.2 does not tell a stream (pipelines.source.limits).

If a log is renamed, copied or compressed while it is followed, reading continues where it was. The last line is read
once its newline is written.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from jbod_model.errors import crossing
from pipelines.source.log_options import PARTS, PARTS_SCHEMA, REQUESTS, RequestOptions


class KafkaRequestLog(DataSource):
    """The data source; register it with ``spark.dataSource.register(KafkaRequestLog)``."""

    @classmethod
    def name(cls) -> str:
        """The short name for ``format``."""
        return "kafka_request_log"

    @crossing()
    def schema(self) -> StructType | str:
        """Columns of the layout."""
        layout = RequestOptions.read(self.options).layout
        if layout == PARTS:
            return PARTS_SCHEMA
        from pyspark.sql.pandas.types import from_arrow_schema

        from pipelines.formats.requests import REJECTS_SCHEMA, REQUESTS_SCHEMA

        return from_arrow_schema(REQUESTS_SCHEMA if layout == REQUESTS else REJECTS_SCHEMA)

    @crossing()
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """A batch read of all whole lines."""
        from pipelines.source.request_readers import RequestBatchReader

        return RequestBatchReader(RequestOptions.read(self.options))

    @crossing()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """A streaming read."""
        from pipelines.source.limits import fit_reader
        from pipelines.source.request_readers import RequestStreamReader

        return fit_reader(RequestStreamReader(RequestOptions.read(self.options)), self.options)


def register(spark: Any) -> None:
    """Make ``format("kafka_request_log")`` known to a session."""
    spark.dataSource.register(KafkaRequestLog)
