"""What makes a Spark session start faster: the user's cache on this machine, Spark's home there, and settings.

Spark puts ``python/lib/pyspark.zip`` first on every worker's path. Python does not cache compiled code from a zip, so
each of the seven Python processes of a streaming query compiles PySpark again: half a second each, one after another.
Without the zip they import the installed package, which is the same code. The settings are those of a session for one
command: its JVM only moves bytes for a few seconds and ends.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.java import Java
from pipelines.start.process import is_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cache_dir() -> Path:
    """The folder of the cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jbod"


def class_archive(java: Java) -> Path:
    """The archive of Spark's classes for this Java and this Spark (pipelines.upkeep.warm writes it).

    An archive is valid only for the paths with which it was made, so each environment's PySpark has its own.
    """
    spark = importlib.metadata.distribution("pyspark")
    places = f"{java.home} {spark.locate_file('pyspark')}"
    place = hashlib.sha256(places.encode()).hexdigest()[:12]
    return cache_dir() / f"spark-{spark.version}-java-{java.version}-{place}.jsa"


def is_new_advice(java: Java) -> bool:
    """Whether to tell the user of ``jbod warm``: this machine has no archive of classes, and nobody was told so."""
    marker = class_archive(java).with_suffix(".told")
    if class_archive(java).exists() or marker.exists():
        return False
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError:
        return False  # without a cache there is no archive
    return True


_PARTS = ("bin", "jars", "sbin")


def use_spark_home() -> None:
    """Sets SPARK_HOME, unless it is set, to a folder of links to the installed PySpark. The folder's path is stable."""
    if "SPARK_HOME" in os.environ:
        return
    spark = importlib.metadata.distribution("pyspark")  # not imported: that takes a while
    installed = Path(str(spark.locate_file("pyspark")))
    if not (installed / "jars").is_dir():
        return
    name = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    home = cache_dir() / f"spark-{spark.version}-{name}"
    try:
        _link(installed, home)
    except OSError:
        return  # without a writable cache, starts only take longer
    os.environ["SPARK_HOME"] = str(home)


def _link(installed: Path, home: Path) -> None:
    if all((home / part).exists() for part in _PARTS if (installed / part).exists()):
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=home.name, dir=home.parent))
    for part in _PARTS:
        if (installed / part).exists():
            (scratch / part).symlink_to(installed / part)
    try:
        scratch.rename(home)
    except OSError:
        # Another process was faster, or links to a removed PySpark exist.
        for part in _PARTS:
            if (scratch / part).is_symlink():
                (scratch / part).replace(home / part)
        scratch.rmdir()


# Arrow checks the bounds of every column access, though Spark stays within the number of rows: a fifth of the JVM's
# time. The first compiler is enough for code that runs for seconds, and leaves the cores to the workers. By default it
# has 48 MB for compiled code, less than Spark fills: the JVM would drop code and compile it again.
JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
)
# For a few thousand rows, code generation takes longer than it saves. Each aggregation and each sort of a task takes at
# least a page of memory, by default a 32nd of the heap: the JVM would clear and collect gigabytes for a few rows.
SPARK_OPTIONS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.buffer.pageSize": "1m",
}


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
