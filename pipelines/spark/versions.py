"""Which Spark can do what, and the jars of Delta Lake for it.

Questions need no Spark; reading needs 4.0.1; a stream of a log, and so a replay, needs 4.2. Before 4.2 a Python source
cannot limit its micro-batches: Spark calls ``latestOffset`` without the stream's position, so after a restart the
source does not know where the next batch begins. Delta's jars are those kept on this machine, or else those that Spark
fetches with Ivy. ``make setup`` and ``jbod warm --delta`` keep them, so that sessions with Delta Lake need no network.

Every process of a query imports this module: keep it light.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jbod_model.errors import UsageError
from pipelines.start.session import cache_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_STREAMS = (4, 2)


def check_version(version: str, what: str = "a replay") -> None:
    """Raises UsageError for a Spark without streams of a log."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OF_STREAMS:
        raise UsageError(
            f"Spark {version}: {what} needs Spark 4.2 or later, where a Python source can limit its batches; "
            "questions to a lake or a log need no Spark"
        )


def check_installed() -> None:
    """Raises UsageError if the installed PySpark cannot replay."""
    import pyspark

    check_version(pyspark.__version__)


def check_streams() -> None:
    """Raises UsageError if the installed PySpark cannot stream a log."""
    import pyspark

    check_version(pyspark.__version__, "a stream of a log")


SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The settings of a session with Delta Lake."""
NOT_FETCHED = "[unresolved dependency: io.delta#"
"""A part of the message with which Spark ends where Ivy reaches no repository."""


def folder() -> Path:
    """The folder of the kept jars, for the installed versions of delta-spark and pyspark."""
    versions = "-".join(f"{name}-{importlib.metadata.version(name)}" for name in ("delta-spark", "pyspark"))
    return cache_dir() / versions


def with_delta(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession.Builder:
    """A builder of a session with Delta Lake, beside the jars and packages that ``conf`` names."""
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if kept := sorted(map(str, folder().glob("*.jar"))):
        return builder.config("spark.jars", ",".join([*kept, *_listed(conf, "spark.jars")]))
    from delta import configure_spark_with_delta_pip

    return configure_spark_with_delta_pip(builder, extra_packages=_listed(conf, "spark.jars.packages"))


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
