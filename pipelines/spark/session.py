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
from typing import TYPE_CHECKING, Any

from jbod_model.errors import UsageError
from pipelines.java import Java, class_archive, use_java
from pipelines.spark.start.home import use_spark_home
from pipelines.spark.start.launch import Jvm, start_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.settings import Spark

PRELOAD = "JBOD_PRELOAD"
"""The variable of the workers' environment that names the module to preload, see pipelines.spark.start.daemon."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Arrow checks every access to a column that Spark has bounded by the number of rows: a fifth of the JVM's time.
ARROW_UNCHECKED = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
# A socket's path has room for about a hundred bytes; Spark adds a name to the temporary directory.
_SOCKET_FOLDER = 50
# Each partition of the state is a task and a store of its own, also where there is little to do.
_MOST_PARTITIONS = 8


def spark_session(
    settings: Spark | None = None,
    *,
    delta: bool = False,
    brief: bool = False,
    archive: bool = True,
    preload: str = "",
) -> SparkSession:
    """The session of this process, made at the first call. ``delta`` adds Delta Lake, fetched at the first use.

    ``brief``: the JVM only moves bytes and is soon done, so it leaves the cores to the workers instead of optimising
    its code. ``archive``: load Spark's classes from the archive of pipelines.upkeep.warm where there is one.
    ``preload``: a module whose ``warm()`` the parent of the Python workers calls before it forks.
    UsageError where there is no Java, or no cluster. Workers run this very interpreter unless PYSPARK_PYTHON names
    another, so they find the same packages.
    """
    from pipelines.settings import Spark

    wanted = settings or Spark()
    return _session(
        wanted, _options(wanted, use_java(), brief=brief, archive=archive, preload=preload), None, delta=delta
    )


def _session(wanted: Spark, options: dict[str, str], jvm: Jvm | None, *, delta: bool = False) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if delta:
        from delta import configure_spark_with_delta_pip

        builder = configure_spark_with_delta_pip(
            builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
                "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
            )
        )
    for name, value in options.items():
        builder = builder.config(name, value)
    session = _made(builder, wanted.master, jvm)
    session.sparkContext.setLogLevel(wanted.log_level)
    return session


def _options(wanted: Spark, java: Java, *, brief: bool, archive: bool = True, preload: str = "") -> dict[str, str]:
    """Spark's settings of a session, by name, those of ``wanted.conf`` last; sets the variables that Spark looks at."""
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
    found = {
        "spark.app.name": "jbod",
        "spark.master": wanted.master,
        "spark.driver.memory": wanted.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(wanted.shuffle_partitions or _partitions(wanted.master)),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.databricks.delta.snapshotPartitions": "2",
        # Workers fork from a parent that has the engine loaded.
        "spark.python.daemon.module": "pipelines.spark.start.daemon",
        # With simplified tracebacks the workers of mapInArrow and of the stateful stage have different parents.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.python.unix.domain.socket.enabled": str(_sockets_fit(wanted.master)).lower(),
        # A slice that is decoded again, its executor being lost, names other files, which say the same: nothing else
        # has to be done again. Spark would rather give up where a task had finished.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        "spark.buffer.size": str(1 << 20),
        "spark.driver.extraJavaOptions": " ".join(ours),
        "spark.executor.extraJavaOptions": " ".join(options),
    }
    if preload:
        found[f"spark.executorEnv.{PRELOAD}"] = preload
    if brief:
        # A few thousand rows are not worth the compiling of code for them.
        found |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    return found | wanted.conf


def is_local(master: str) -> bool:
    """Whether workers run on this machine, in the driver's JVM."""
    return master == "local" or master.startswith("local[")


def spark_session_soon(wanted: Spark, preload: str = "") -> Callable[[], SparkSession]:
    """Begin to start a brief session beside what this process does; what is returned waits for it.

    The JVM dies with this process, whether or not anybody calls.
    """
    java = use_java()
    options = _options(wanted, java, brief=True, preload=preload)
    jvm = start_jvm(java, options, _log()) if is_local(wanted.master) else None
    import pyspark.sql  # noqa: F401  before the thread, which would share the interpreter while the JVM waits

    soon: Future[SparkSession] = Future()

    def run() -> None:
        try:
            session = _session(wanted, options, jvm)
            _skip_installed_sources(session)
            soon.set_result(session)
        except BaseException as problem:
            soon.set_exception(problem)
        finally:
            sys.setswitchinterval(interval)

    # The JVM answers in microseconds; with each answer the thread would wait 5 ms for those who import.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    threading.Thread(target=run, daemon=True).start()
    return soon.result


def _skip_installed_sources(session: SparkSession) -> None:
    """Spare Spark the Python process in which it looks for data sources among the packages, which takes 0.3 s.

    The command's own source is registered by name. A Spark that keeps them elsewhere looks as ever.
    """
    with suppress(Exception):
        jvm: Any = session.sparkContext._jvm
        kept = getattr(getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$"), "MODULE$")
        getattr(kept, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(jvm.PythonUtils.toScalaMap({})))


def _log() -> Path:
    """What the JVM and its workers say goes to a file of the temporary directory; our output ends with us."""
    return Path(tempfile.gettempdir(), f"jbod-spark-{os.getpid()}.log")


def _made(builder: SparkSession.Builder, master: str, jvm: Jvm | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    try:
        if SparkContext._gateway is None:
            conf = SparkConf().setAll(list(builder._options.items()))
            gateway = jvm.gateway(conf) if jvm else None
            if gateway is None:
                with _log().open("ab") as log:
                    gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        return builder.getOrCreate()
    except Exception:
        if is_local(master):
            raise
        raise UsageError(
            f"spark.master {master}: no Spark session comes about there; what Spark said: {_log()}"
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
