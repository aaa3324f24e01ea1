"""The user's cache on this machine, which makes later starts faster."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path

from pipelines.java import Java


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


def prepared(java: Java) -> Path:
    """The file that exists once this jbod has prepared the machine for this Java and this Spark."""
    version = importlib.metadata.version("jbod")
    return class_archive(java).with_name(f"{class_archive(java).stem}-jbod-{version}.prepared")
