"""Spark's home for local sessions: the installed one without its zip of Python sources.

Spark puts ``python/lib/pyspark.zip`` first on every worker's path. Python does not cache compiled code from a zip, so
each of the seven Python processes of a streaming query compiles PySpark again: half a second each, one after another.
Without the zip they import the installed package, which is the same code.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
from pathlib import Path

from pipelines.start.cache import cache_dir

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
