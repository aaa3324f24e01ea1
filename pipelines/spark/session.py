"""The Spark session, configured for many small tables: on this machine, as the driver of a cluster, or over Connect.

A client of Spark Connect has no JVM and no SparkContext, and its functions for foreachBatch run on the server.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, UsageError, first_line_of
from pipelines.java import Java, use_java
from pipelines.spark.jvm import Jvm, exit_code, session_of, start_jvm, user_has_entry
from pipelines.spark.versions import NOT_FETCHED, with_delta
from pipelines.start.process import PLAIN, PRELOAD, are_plain, choose, cores, is_on
from pipelines.start.session import JAVA_OPTIONS, SPARK_OPTIONS, class_archive, use_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.settings import Spark


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_OF_SESSIONS = {
    "spark.sql.session.timeZone": "UTC",
    _PROVIDER: _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.databricks.delta.snapshotPartitions": "2",
    # With simplified tracebacks the workers of mapInArrow and of the stateful stage have different parents.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # A retried task writes new file names with identical contents, so a checksum mismatch is harmless. Spark would fail
    # the query where the task had already finished.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
"""The settings that every session of jbod has, beside those of its JVM."""
_OURS = "spark.jbod.session"
"""The setting that marks the sessions that jbod started."""

# A socket's path has at most about a hundred bytes, and Spark appends a name to the temporary directory.
_SOCKET_FOLDER = 50
# Each partition of the state costs a task and a state store, even if it has little to do.
_MOST_PARTITIONS = 8


def spark_session(
    settings: Spark | None = None,
    *,
    delta: bool = False,
    brief: bool = False,
    archive: bool = True,
    preload: str = "",
) -> SparkSession:
    """The session of this process, created at the first call. ``delta`` adds Delta Lake (pipelines.spark.versions).

    If others started a session in this process (a notebook, a job of Databricks), jbod works in a new session beside
    it, on the same SparkContext: theirs keeps its settings, and decides about ``delta`` and the JVM. A session of Spark
    Connect that exists is used as it is. ``spark.remote`` names the server of a new one, which decides the same.

    ``brief``: the session serves one command and ends with it (pipelines.start.session). ``archive``: load Spark's
    classes from the archive of pipelines.upkeep.warm if it exists. ``preload``: a module whose ``warm()`` the parent of
    the Python workers calls before it forks. Raises UsageError if there is no Java, or no cluster. Workers run this
    interpreter unless PYSPARK_PYTHON names another one, so they find the same packages.
    """
    from pipelines.settings import Spark

    wanted = settings or Spark()
    theirs = _theirs()
    if theirs is not None:
        return _beside(theirs, wanted)
    if remote := remote_of(wanted):
        return _connect_session(wanted, remote)
    return _session(
        wanted, _options(wanted, use_java(), brief=brief, archive=archive, preload=preload), None, delta=delta
    )


def _session(wanted: Spark, options: dict[str, str], jvm: Jvm | None, *, delta: bool = False) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config(map={**options})
    if delta:
        builder = with_delta(builder, options)
    session = _made(builder, wanted.master, jvm)
    session.sparkContext.setLogLevel(wanted.conf.get("spark.log.level", "ERROR"))
    return session


def _theirs() -> SparkSession | None:
    """The active session, if it was not jbod that started it."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    return None if active is None or active.conf.get(_OURS, "") == "true" else active


def _beside(theirs: SparkSession, wanted: Spark) -> SparkSession:
    """A new session on the context of ``theirs``, with the settings of jbod that a session can have of its own.

    A session of Spark Connect is returned as it is: its server decides about settings.
    """
    return theirs if is_connect(theirs) else _with_settings(theirs.newSession(), wanted)


def _with_settings(session: SparkSession, wanted: Spark) -> SparkSession:
    for name, value in {**_OF_SESSIONS, **wanted.conf}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def _connect_session(wanted: Spark, remote: str) -> SparkSession:
    if not is_local(remote):
        session = _with_settings(connected(remote, {}), wanted)
        session.conf.set(_OURS, "true")
    else:
        options = _options(replace(wanted, master=remote), use_java(), brief=False, archive=False)
        del options["spark.master"]  # PySpark refuses it beside a remote
        session = connected(remote, options)
    return session


def _options(wanted: Spark, java: Java, *, brief: bool, archive: bool = True, preload: str = "") -> dict[str, str]:
    """Spark's settings of a session, by name. Those of ``wanted.conf`` win. Also sets Spark's environment."""
    choose(wanted.fast_start)
    options = [wanted.java_options]
    brief = brief and is_on("jvm")
    if brief:
        options += JAVA_OPTIONS
    # Otherwise the JVM's own log would go to standard output, into jbod's data, and a report of its crash to a file in
    # the current directory.
    ours = [*options, "-Xlog:disable -Xlog:all=error:stderr", "-XX:+ErrorFileToStderr"]
    if not user_has_entry():
        ours.insert(0, f"-Duser.home={Path.home()}")
    if is_local(wanted.master):
        # Only for a local session: remote executors could not reach the address, and a cluster may ship SPARK_HOME.
        if is_on("home"):
            use_spark_home()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if archive and is_on("archive") and class_archive(java).is_file():
            ours.append(f"-XX:SharedArchiveFile={class_archive(java)}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # With a JVM thread for each thread of Python, each query leaves a connection and a thread until Java collects them.
    os.environ.setdefault("PYSPARK_PIN_THREAD", "false")
    settings = {
        "spark.app.name": "jbod",
        _OURS: "true",
        "spark.master": wanted.master,
        "spark.driver.memory": wanted.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_OF_SESSIONS,
        "spark.sql.shuffle.partitions": str(_partitions(wanted.master)),
        "spark.python.unix.domain.socket.enabled": str(_sockets_fit(wanted.master)).lower(),
        "spark.buffer.size": str(1 << 20),
        "spark.driver.extraJavaOptions": " ".join(ours),
        "spark.executor.extraJavaOptions": " ".join(options),
    }
    if is_on("workers"):
        # Workers fork from a parent that has the engine loaded.
        settings["spark.python.daemon.module"] = "pipelines.start.daemon"
        if preload:
            settings[f"spark.executorEnv.{PRELOAD}"] = preload
    if are_plain():
        settings[f"spark.executorEnv.{PLAIN}"] = "1"
    if brief:
        settings |= SPARK_OPTIONS
    return settings | wanted.conf


def is_local(master: str) -> bool:
    """Whether a master, or a remote of Spark Connect, is a JVM of this process, with its workers."""
    return master == "local" or master.startswith("local[")


def tasks_of(master: str) -> int:
    """How many tasks a local master runs at once."""
    number = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(number or 1) if number != "*" else cores()


def is_of_this_process(wanted: Spark) -> bool:
    """Whether a session would run in a JVM that this process starts, with its workers."""
    return _theirs() is None and not remote_of(wanted) and is_local(wanted.master)


def spark_session_soon(wanted: Spark, preload: str = "") -> Callable[[], SparkSession]:
    """Starts a brief session in the background. Returns a function that waits for it.

    The JVM ends with this process, even if the function is never called.
    """
    theirs = _theirs()
    if theirs is not None:
        return lambda: _beside(theirs, wanted)
    if remote_of(wanted):
        return lambda: spark_session(wanted)
    options = _options(wanted, use_java(), brief=True, preload=preload)
    jvm = start_jvm(options, _log()) if "pyspark" not in sys.modules else None
    import pyspark.sql  # noqa: F401  before the thread, which would share the interpreter while the JVM waits

    soon: Future[SparkSession] = Future()

    def run() -> None:
        try:
            soon.set_result(_session(wanted, options, jvm))
        except BaseException as problem:
            soon.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    return soon.result


@cache
def _log() -> Path:
    """The file for the output of the JVM and its workers, which may outlive this process's output."""
    handle, name = tempfile.mkstemp(prefix="jbod-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def discard_log() -> None:
    """Removes the file of a command that succeeded, or that a signal ended."""
    if _log.cache_info().currsize:
        _log().unlink(missing_ok=True)


_ENDS_SECONDS = 5.0
"""The connections of a JVM end a moment before its process does."""
_INVALID = re.compile(r"\[INVALID_CONF_VALUE[.\w]*\] (.+?)(?: SQLSTATE:.*)?$", re.MULTILINE)


def _made(builder: SparkSession.Builder, master: str, jvm: Jvm | None) -> SparkSession:
    try:
        session = session_of(builder, jvm, _log())
        session.conf.get(_OURS)  # Spark checks the values of a session's conf at its first use
        return session
    except Exception as problem:
        if invalid := _INVALID.search(str(problem)):
            raise UsageError(f"spark.conf: {invalid[1]}") from None
        if _log().is_file() and NOT_FETCHED in _log().read_text(errors="replace"):
            raise UsageError(
                "Delta Lake's jars: no repository of Maven can be reached: run jbod warm --delta once where one can "
                f"be, or set spark.jars in the section spark.conf; Spark's output: {_log()}"
            ) from None
        if fault := fault_of_jvm(problem):
            raise fault from None
        if is_local(master):
            raise
        raise UsageError(f"spark.master {master}: no Spark session can start there; Spark's output: {_log()}") from None


def fault_of_jvm(problem: BaseException) -> JbodError | None:
    """Returns a one-line error if the JVM of this process has ended, otherwise None."""
    from py4j.protocol import Py4JNetworkError

    code = exit_code(_ENDS_SECONDS) if isinstance(problem, Py4JNetworkError) else None
    if code is None:
        return None
    why = (
        "was killed, as the kernel does if memory is short: give this machine or pod more, or Spark less "
        "(spark.driver_memory)"
        if code == -signal.SIGKILL
        else f"ended with exit code {code}: its output is in {_log()}"
    )
    return JbodError(f"Spark's JVM {why}; run again: what was published is whole and stays")


def _partitions(master: str) -> int:
    """As many as cores. For a cluster this is unknown before its executors start."""
    return min(cores(), _MOST_PARTITIONS) if is_local(master) else _MOST_PARTITIONS


def _sockets_fit(master: str) -> bool:
    """Whether Unix sockets can connect the workers. They cost less than network sockets.

    Executors of a cluster have other temporary directories, and YARN's paths are too long for a socket.
    """
    return is_local(master) and hasattr(socket, "AF_UNIX") and len(os.fsencode(tempfile.gettempdir())) <= _SOCKET_FOLDER


PATIENCE = 10.0
"""Seconds in which a server must accept a connection. PySpark itself would try for minutes."""
_CLIENT = "pyspark.sql.connect."
# More than any cluster's cores, few enough for a job of one second.
_MOST_CORES = 10_000
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NEEDS_ROCKSDB = "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"
_GONE = re.compile(r"StatusCode\.UNAVAILABLE|SESSION_NOT_FOUND|SESSION_CLOSED|RETRIES_EXCEEDED")


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of Spark Connect."""
    return any(kind.__module__.startswith(_CLIENT) for kind in type(spark).__mro__)


def remote_of(wanted: Spark) -> str:
    """The remote of the settings, or of PySpark's variable SPARK_REMOTE; empty for a classic session."""
    return wanted.remote or os.environ.get("SPARK_REMOTE", "")


def connected(remote: str, options: dict[str, str]) -> SparkSession:
    """A session of the server at ``remote`` (``sc://host:port``), or of one that PySpark starts for ``local[...]``.

    ``options`` are for a server that PySpark starts. Raises UsageError if a package for Spark Connect is missing, or if
    no server answers.
    """
    from pyspark.errors import PySparkException

    shown = remote.partition(";")[0]  # parameters may hold a token
    try:
        import pyspark.sql.connect.session  # noqa: F401
    except (PySparkException, ImportError) as problem:
        raise UsageError(
            f"spark.remote: Spark Connect needs more packages: pip install 'jbod[connect]' ({first_line_of(problem)})"
        ) from None
    from pyspark.sql import SparkSession

    if is_local(remote):
        builder = SparkSession.builder.remote(remote).config(map={**options})
        with warnings.catch_warnings():
            # PySpark sets the options a second time, when those of the JVM are fixed.
            warnings.simplefilter("ignore")
            return builder.getOrCreate()
    _check_answers(remote, shown)
    try:
        session = SparkSession.builder.remote(remote).getOrCreate()
        session.version  # noqa: B018  the first request
    except PySparkException as problem:
        raise UsageError(f"spark.remote: {shown}: no session can start there: {first_line_of(problem)}") from None
    return session


def _check_answers(remote: str, shown: str) -> None:
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        channel = DefaultChannelBuilder(remote).toChannel()
    except PySparkException as problem:
        raise UsageError(f"spark.remote: {shown}: {first_line_of(problem)}") from None
    try:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE)
    except grpc.FutureTimeoutError:
        raise UsageError(
            f"spark.remote: {shown}: no Spark Connect server accepts a connection there within {PATIENCE:.0f} s"
        ) from None
    finally:
        channel.close()


def cores_of(spark: SparkSession) -> int:
    """The number of tasks that the session runs beside each other."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    # Spark divides a range among the cores.
    parts = spark.range(_MOST_CORES).selectExpr("spark_partition_id() AS part")
    last = parts.selectExpr("max(part)").collect()[0][0]
    return int(last or 0) + 1


def fault_of_connect(problem: BaseException) -> JbodError | None:
    """Returns a one-line error if a server of Spark Connect cannot run a replay or went away, otherwise None."""
    text = str(problem)
    if match := _NO_MODULE.search(text):
        return UsageError(
            f"Spark's workers cannot find the module {match[1]}: install this jbod, with its extra connect, in the "
            "Python that PYSPARK_PYTHON names on the server"
        )
    if _NEEDS_ROCKSDB in text:
        return UsageError(
            f"a replay keeps its state in RocksDB: set {_PROVIDER} to {_ROCKSDB} in the session, or start jbod with "
            "spark.remote"
        )
    if is_of_client(problem) and _GONE.search(text):
        return JbodError(
            f"the Spark Connect server does not answer any more ({first_line_of(problem)[:200]}): run again; what was "
            "published is whole and stays"
        )
    return None


def is_of_client(problem: BaseException) -> bool:
    """Whether the client of Spark Connect raised an error, or one that a server reported."""
    return type(problem).__module__ == "pyspark.errors.exceptions.connect" or type(problem).__module__.startswith(
        "grpc"
    )
