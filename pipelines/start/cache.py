"""Where what makes later starts faster is kept, on this machine and for this user."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path

from pipelines.java import Java


def cache_dir() -> Path:
    """Where what makes later runs faster is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jbod"


def class_archive(java: Java) -> Path:
    """Where the classes that Spark loads are archived for this Java and this Spark (pipelines.upkeep.warm writes it).

    An archive holds for the paths it was made with: another environment's PySpark has its own.
    """
    spark = importlib.metadata.distribution("pyspark")
    places = f"{java.home} {spark.locate_file('pyspark')}"
    place = hashlib.sha256(places.encode()).hexdigest()[:12]
    return cache_dir() / f"spark-{spark.version}-java-{java.version}-{place}.jsa"
