"""Sessions of Spark Connect: how jbod starts one, and what differs from a classic session.

A client of Spark Connect has no JVM and no SparkContext, and its functions for foreachBatch run on the server.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.settings import Spark

PATIENCE = 10.0
"""Seconds in which a server must accept a connection. PySpark itself would try for minutes."""
_CLIENT = "pyspark.sql.connect."
# More than any cluster's cores, few enough for a job of one second.
_MOST_CORES = 10_000
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NEEDS_ROCKSDB = "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS"
_PROVIDER = (
    "spark.sql.streaming.stateStore.providerClass to "
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
)
_GONE = re.compile(r"StatusCode\.UNAVAILABLE|SESSION_NOT_FOUND|SESSION_CLOSED|RETRIES_EXCEEDED")


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of Spark Connect."""
    return any(kind.__module__.startswith(_CLIENT) for kind in type(spark).__mro__)


def remote_of(wanted: Spark) -> str:
    """The remote of the settings, or of PySpark's variable SPARK_REMOTE; empty for a classic session."""
    return wanted.remote or os.environ.get("SPARK_REMOTE", "")


def is_on_this_machine(remote: str) -> bool:
    """Whether PySpark starts the server itself, in a JVM of this process."""
    return remote == "local" or remote.startswith("local[")


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
            f"spark.remote: Spark Connect needs more packages: pip install 'jbod[connect]' ({_line(problem)})"
        ) from None
    from pyspark.sql import SparkSession

    if is_on_this_machine(remote):
        builder = SparkSession.builder.remote(remote)
        for name, value in options.items():
            builder = builder.config(name, value)
        with warnings.catch_warnings():
            # PySpark sets the options a second time, when those of the JVM are fixed.
            warnings.simplefilter("ignore")
            return builder.getOrCreate()
    _check_answers(remote, shown)
    try:
        session = SparkSession.builder.remote(remote).getOrCreate()
        session.version  # noqa: B018  the first request
    except PySparkException as problem:
        raise UsageError(f"spark.remote: {shown}: no session can start there: {_line(problem)}") from None
    return session


def _check_answers(remote: str, shown: str) -> None:
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        channel = DefaultChannelBuilder(remote).toChannel()
    except PySparkException as problem:
        raise UsageError(f"spark.remote: {shown}: {_line(problem)}") from None
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
    if found := _NO_MODULE.search(text):
        return UsageError(
            f"Spark's workers cannot find the module {found[1]}: install this jbod, with its extra connect, in the "
            "Python that PYSPARK_PYTHON names on the server"
        )
    if _NEEDS_ROCKSDB in text:
        return UsageError(
            f"a replay keeps its state in RocksDB: set {_PROVIDER} in the session, or start jbod with spark.remote"
        )
    if is_of_client(problem) and _GONE.search(text):
        return JbodError(
            f"the Spark Connect server does not answer any more ({_line(problem)[:200]}): run again; what was "
            "published is whole and stays"
        )
    return None


def is_of_client(problem: BaseException) -> bool:
    """Whether the client of Spark Connect raised an error, or one that a server reported."""
    return type(problem).__module__ == "pyspark.errors.exceptions.connect" or type(problem).__module__.startswith(
        "grpc"
    )


def _line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
