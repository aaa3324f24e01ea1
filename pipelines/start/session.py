"""Settings of a session for one command: the JVM only moves bytes for a few seconds and ends."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from pipelines.start.switch import is_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow checks the bounds of every column access, though Spark stays within the number of rows: a fifth of the JVM's
# time. The first compiler is enough for code that runs for seconds, and leaves the cores to the workers. By default it
# has 48 MB for compiled code, less than Spark fills: the JVM would drop code and compile it again.
JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
)
# For a few thousand rows, code generation takes longer than it saves.
SPARK_OPTIONS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def wake_workers(session: SparkSession) -> None:
    """Starts the parent of the workers while a query is being planned.

    Call it after the source is loaded: Spark starts one Python parent at a time, and the source needs one first.
    """
    if not is_on("workers"):
        return

    def run() -> None:
        # If executors cannot work, the query itself reports it.
        with suppress(Exception):
            session.range(2).mapInArrow(lambda batches: batches, "id long").collect()

    threading.Thread(target=run, daemon=True).start()
