"""One Spark session for the whole run, and one of another process that has Delta Lake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

from pipelines.settings import Spark
from pipelines.spark.session import spark_session
from tests.support.paths import ROOT
from tests.support.spark_engine import SparkEngine, spark_engine


class BySession(LoadFileScheduling):
    """One worker runs a file (``--dist loadfile``), and all files whose tests have the same session.

    The first query of a session takes seconds, the hundredth a fraction of one.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return session_of(file) or file


@cache
def session_of(file: str) -> str:
    """The session that tests of the file have; empty if they have none."""
    session = re.search(r"\b(spark: SparkSession|engine: SparkEngine)\b", (ROOT / file).read_text())
    return session[1] if session else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySession:
    """The scheduler of a run with integration tests."""
    return BySession(config, log)


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkEngine]:
    """Spark with Delta Lake, in a process of its own."""
    with spark_engine() as process:
        yield process


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Each query runs once or twice: what it takes to generate and to optimize its code is not won back.
    settings = Spark(
        master="local[2]",
        driver_memory="2g",
        java_options="-XX:+UseParallelGC",
        conf={"spark.sql.shuffle.partitions": "2"},
    )
    session = spark_session(settings, brief=True, preload="pipelines.run.preload")
    yield session
    session.stop()
    # Py4J keeps the functions of foreachBatch, and PySpark the error of one that failed, with all that its frames hold.
    SparkContext._gateway.gateway_property.pool.clear()  # type: ignore[union-attr]
