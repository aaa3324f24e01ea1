"""The Spark session, set up for many small tables: on this machine, or as the driver of a cluster."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jbod_model.errors import UsageError
from pipelines.jvm import class_archive, use_java
from pipelines.spark_home import use_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.settings import Spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Arrow checks every access to a column that Spark has bounded by the number of rows: a fifth of the JVM's time.
ARROW_UNCHECKED = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
# A socket's path has room for about a hundred bytes; Spark adds a name to the temporary directory.
_SOCKET_FOLDER = 50
# Each partition of the state is a task and a store of its own, also where there is little to do.
_MOST_PARTITIONS = 8


def spark_session(
    settings: Spark | None = None, *, delta: bool = False, brief: bool = False, archive: bool = True
) -> SparkSession:
    """The session of this process, made at the first call. ``delta`` adds Delta Lake, fetched at the first use.

    ``brief``: the JVM only moves bytes and is soon done, so it leaves the cores to the workers instead of optimising
    its code. ``archive``: load Spark's classes from the archive of pipelines.warm where there is one.
    UsageError where there is no Java, or no cluster. Workers run this very interpreter unless PYSPARK_PYTHON names
    another, so they find the same packages.
    """
    from pyspark.sql import SparkSession

    from pipelines.settings import Spark

    wanted = settings or Spark()
    java = use_java()
    options = [wanted.java_options, *ARROW_UNCHECKED]
    if brief:
        options.append("-XX:TieredStopAtLevel=1")
    # What the JVM itself logs would go to standard output, among our data.
    ours = [*options, "-Xlog:disable -Xlog:all=error:stderr"]
    if is_local(wanted.master):
        # Only here: executors elsewhere could not reach the address, and a cluster may ship all of Spark's home.
        use_spark_home()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if archive and class_archive(java).is_file():
            ours.append(f"-XX:SharedArchiveFile={class_archive(java)}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("jbod")
        .master(wanted.master)
        .config("spark.driver.memory", wanted.driver_memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", wanted.shuffle_partitions or _partitions(wanted.master))
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.minBatchesToRetain", 10)
        .config("spark.databricks.delta.snapshotPartitions", 2)
        # Workers fork from a parent that has the engine loaded.
        .config("spark.python.daemon.module", "pipelines.daemon")
        # With simplified tracebacks the workers of mapInArrow and of the stateful stage have different parents.
        .config("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", str(_sockets_fit(wanted.master)).lower())
        # A slice that is decoded again, its executor being lost, names other files, which say the same: nothing else
        # has to be done again. Spark would rather give up where a task had finished.
        .config("spark.sql.shuffle.orderIndependentChecksum.enabled", "false")
        .config("spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch", "false")
        .config("spark.buffer.size", 1 << 20)
        .config("spark.driver.extraJavaOptions", " ".join(ours))
        .config("spark.executor.extraJavaOptions", " ".join(options))
    )
    if brief:
        # A few thousand rows are not worth the compiling of code for them.
        builder = builder.config("spark.sql.codegen.wholeStage", "false")
        builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    if delta:
        from delta import configure_spark_with_delta_pip

        builder = configure_spark_with_delta_pip(
            builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
                "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
            )
        )
    for name, value in wanted.conf.items():
        builder = builder.config(name, value)
    session = _made(builder, wanted.master)
    session.sparkContext.setLogLevel(wanted.log_level)
    return session


def is_local(master: str) -> bool:
    """Whether workers run on this machine, in the driver's JVM."""
    return master == "local" or master.startswith("local[")


def spark_session_soon(settings: Spark) -> Callable[[], SparkSession]:
    """Begin to start a brief session beside what this process does; what is returned waits for it.

    The JVM dies with this process, whether or not anybody calls.
    """
    import pyspark.sql  # noqa: F401  before the thread, which would share the interpreter while the JVM waits

    soon: Future[SparkSession] = Future()

    def run() -> None:
        try:
            soon.set_result(spark_session(settings, brief=True))
        except BaseException as problem:
            soon.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    return soon.result


def _made(builder: SparkSession.Builder, master: str) -> SparkSession:
    """What the JVM and its workers say goes to a file of the temporary directory; our output ends with us."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    name = Path(tempfile.gettempdir(), f"jbod-spark-{os.getpid()}.log")
    try:
        if SparkContext._gateway is None:
            conf = SparkConf().setAll(list(builder._options.items()))
            with name.open("ab") as log:
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        return builder.getOrCreate()
    except Exception:
        if is_local(master):
            raise
        raise UsageError(
            f"spark.master {master}: no Spark session comes about there; what Spark said: {name}"
        ) from None


def _partitions(master: str) -> int:
    """As many as cores, which of a cluster nobody knows before its executors are there."""
    return min(os.cpu_count() or 1, _MOST_PARTITIONS) if is_local(master) else _MOST_PARTITIONS


def _sockets_fit(master: str) -> bool:
    """Whether workers can be talked to through Unix sockets, which cost less than those of the network.

    Executors of a cluster have temporary directories of their own; YARN's paths are longer than a socket's may be.
    """
    return is_local(master) and hasattr(socket, "AF_UNIX") and len(os.fsencode(tempfile.gettempdir())) <= _SOCKET_FOLDER


def wake_workers(session: SparkSession) -> None:
    """Start the parent of the workers and load the state store's library while a query is still being planned.

    To be called after the source is loaded: Spark starts one Python parent at a time, and the source's comes first.
    """

    def run() -> None:
        # Where executors cannot work, the query itself says so.
        with suppress(Exception):
            session.range(2).mapInArrow(lambda batches: batches, "id long").collect()
            session.sparkContext._jvm.org.rocksdb.RocksDB.loadLibrary()  # type: ignore[union-attr]

    threading.Thread(target=run, daemon=True).start()
