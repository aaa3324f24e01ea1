"""Delta Lake's jars for a session: those kept on this machine, or else those that Spark fetches with Ivy.

pipelines.upkeep.delta_jars keeps them.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.start.cache import cache_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
NOT_FETCHED = "[unresolved dependency: io.delta#"
"""A part of the message with which Spark ends where Ivy reaches no repository."""


def folder() -> Path:
    """The folder of the kept jars, for the installed versions of delta-spark and pyspark."""
    versions = "-".join(f"{name}-{importlib.metadata.version(name)}" for name in ("delta-spark", "pyspark"))
    return cache_dir() / versions


def with_delta(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession.Builder:
    """A builder of a session with Delta Lake, beside the jars and packages that ``conf`` names."""
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    if kept := sorted(map(str, folder().glob("*.jar"))):
        return builder.config("spark.jars", ",".join([*kept, *_listed(conf, "spark.jars")]))
    from delta import configure_spark_with_delta_pip

    return configure_spark_with_delta_pip(builder, extra_packages=_listed(conf, "spark.jars.packages"))


def _listed(conf: Mapping[str, str], name: str) -> list[str]:
    return [each for each in conf.get(name, "").split(",") if each]
