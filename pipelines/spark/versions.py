"""What each version of Spark lacks, and the jars of Delta Lake for it. No other module knows versions of Spark.

- Before 4.0: no ``transformWithState``, which keeps the shards' states, so jbod needs Spark 4.0.1.
- Before 4.2: Spark calls a Python source's ``latestOffset`` without the stream's position and without a limit. Whoever
  starts the query says where the stream stands (pipelines.source.limits); a stream that nobody says so for is refused.
  And Spark ends a query after one micro-batch, so ``start`` waits for the end of the source.
- From 4.3 on: Delta Lake has no jars yet, so sessions read a lake's files as Parquet and have no catalog.

Delta's jars are those kept on this machine, or else those that Spark fetches with Ivy. ``make setup`` and ``jbod warm
--delta`` keep them, so that sessions with Delta Lake need no network.

Every process of a query imports this module: keep it light.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jbod_model.errors import UsageError
from pipelines.start.session import cache_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


DELTA = "4.4.0"
"""The version of Delta Lake in sessions that jbod starts."""
_OLDEST = (4, 0)
_LIMITS = (4, 2)
_NEWEST_OF_DELTA = (4, 2)


def limits_batches(version: str) -> bool:
    """Whether this Spark tells a Python source where a stream stands, and how far its next micro-batch may go."""
    return _numbers(version) >= _LIMITS


def check_version(version: str) -> None:
    """Raises UsageError for a Spark that cannot replay."""
    if _numbers(version) < _OLDEST:
        raise UsageError(
            f"Spark {version}: a replay needs Spark 4.0.1 or later, which keeps the state of a stream for Python; "
            "questions to a lake or a log need no Spark"
        )


def check_installed() -> None:
    """Raises UsageError if the installed PySpark cannot replay."""
    check_version(_installed())


def check_protobuf() -> None:
    """Raises UsageError if the installed protobuf is older than what Spark's ``StateMessage_pb2`` was made for."""
    try:
        importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
    except Exception as problem:  # VersionError, or ImportError for a protobuf that has none
        raise UsageError(
            f"protobuf {importlib.metadata.version('protobuf')}: Spark {_installed()} needs a newer one to keep the "
            "state of a stream: pip install --upgrade protobuf"
        ) from problem


def check_streams() -> None:
    """Raises UsageError if the installed PySpark cannot stream a log by itself."""
    if not limits_batches(_installed()):
        raise UsageError(
            f"Spark {_installed()}: a stream of a log needs Spark 4.2 or later, which tells a Python source where the "
            "stream stands; jbod replay and spark.read need no such thing"
        )


def has_jars() -> bool:
    """Whether Delta Lake has jars for the installed PySpark."""
    return _numbers(_installed()) <= _NEWEST_OF_DELTA or any(folder().glob("*.jar"))


def check_delta() -> None:
    """Raises UsageError if Delta Lake has no jars for the installed PySpark."""
    if not has_jars():
        raise UsageError(
            f"Spark {_installed()}: Delta Lake {DELTA} has no jars for it: take Spark 4.2, or read the lake without "
            "Delta Lake (docs/spark.md)"
        )


def _installed() -> str:
    import pyspark

    return pyspark.__version__


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The settings of a session with Delta Lake."""
NOT_FETCHED = "[unresolved dependency: io.delta#"
"""A part of the message with which Spark ends where Ivy reaches no repository."""


def folder() -> Path:
    """The folder of the kept jars, for the installed PySpark."""
    return cache_dir() / f"delta-spark-{DELTA}-pyspark-{importlib.metadata.version('pyspark')}"


def with_delta(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession.Builder:
    """A builder of a session with Delta Lake, beside the jars and packages that ``conf`` names.

    Raises UsageError if Delta Lake has no jars for this Spark.
    """
    check_delta()
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if kept := sorted(map(str, folder().glob("*.jar"))):
        return builder.config("spark.jars", ",".join([*kept, *_listed(conf, "spark.jars")]))
    package = f"io.delta:delta-spark_{'.'.join(map(str, _numbers(_installed())))}_2.13:{DELTA}"
    return builder.config("spark.jars.packages", ",".join([package, *_listed(conf, "spark.jars.packages")]))


def _listed(conf: Mapping[str, str], name: str) -> list[str]:
    return [each for each in conf.get(name, "").split(",") if each]


def keep(jars: list[Path], of_spark: Path) -> Path:
    """Copies the jars that ``of_spark`` has in no version. Returns their folder, which is made whole or not at all."""
    brought = {_artifact(jar) for jar in of_spark.glob("*.jar")}
    there = folder()
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=there.parent) as scratch:
        made = Path(scratch, "jars")
        made.mkdir()
        for jar in jars:
            if _artifact(jar) not in brought:
                shutil.copy(jar, made)
        shutil.rmtree(there, ignore_errors=True)
        made.rename(there)
    return there


def _artifact(jar: Path) -> str:
    """The name without the group that Ivy puts before it, and without version: ``delta-storage``."""
    name = jar.name
    if "_" in name and "." in name.partition("_")[0]:
        name = name.partition("_")[2]
    return re.split(r"-\d", name)[0]


def start(spark: SparkSession, writer: DataStreamWriter, follow_seconds: float | None) -> StreamingQuery:
    """Starts the query. It ends at the present end of its source if ``follow_seconds`` is None.

    Before 4.2, Spark would end it after one micro-batch. Then it goes on until the source,
    which was told to end (pipelines.source.limits), has nothing more.
    """
    if follow_seconds is not None:
        return writer.trigger(processingTime=f"{follow_seconds} seconds").start()
    if limits_batches(spark.version):
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()
    threading.Thread(target=_end, args=(query,), daemon=True).start()
    return query


def _end(query: StreamingQuery) -> None:
    # Whoever waits for the query gets its error.
    with suppress(Exception):
        query.processAllAvailable()
        query.stop()
