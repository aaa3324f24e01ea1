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


def is_new_advice(java: Java) -> bool:
    """Whether to tell the user of ``jbod warm``: this machine has no archive of classes, and nobody was told so."""
    told = class_archive(java).with_suffix(".told")
    if class_archive(java).exists() or told.exists():
        return False
    try:
        told.parent.mkdir(parents=True, exist_ok=True)
        told.touch()
    except OSError:
        return False  # without a cache there is no archive
    return True
