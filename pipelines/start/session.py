"""A session of one command: the JVM only moves bytes for a few seconds and ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pipelines.start.switch import is_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow checks every access to a column that Spark has bounded by the number of rows: a fifth of the JVM's time. The
# first compiler is enough for code that runs for seconds, and leaves the cores to the workers.
JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
    "-XX:TieredStopAtLevel=1",
)
# A few thousand rows are not worth the compiling of code for them.
SPARK_OPTIONS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def skip_installed_sources(session: SparkSession) -> None:
    """Spare Spark the Python process in which it looks for data sources among the packages, which takes 0.3 s.

    The command's own source is registered by name. A Spark that keeps the field elsewhere looks for the sources.
    """
    if not is_on("sources"):
        return
    with suppress(Exception):
        jvm: Any = session.sparkContext._jvm
        kept = getattr(getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$"), "MODULE$")
        getattr(kept, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(jvm.PythonUtils.toScalaMap({})))


def wake_workers(session: SparkSession) -> None:
    """Start the parent of the workers and load the state store's library while a query is still being planned.

    To be called after the source is loaded: Spark starts one Python parent at a time, and the source's comes first.
    """
    if not is_on("workers"):
        return

    def run() -> None:
        # Where executors cannot work, the query itself says so.
        with suppress(Exception):
            session.range(2).mapInArrow(lambda batches: batches, "id long").collect()
            session.sparkContext._jvm.org.rocksdb.RocksDB.loadLibrary()  # type: ignore[union-attr]

    threading.Thread(target=run, daemon=True).start()


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns often. The JVM answers in microseconds; a thread waits 5 ms for each turn otherwise."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
