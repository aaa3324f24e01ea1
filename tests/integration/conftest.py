"""One Spark session for the whole run, and one of another process that has Delta Lake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import Spark
from pipelines.spark.session import spark_session
from pipelines.start.session import SPARK_OPTIONS
from tests.support.spark_engine import SparkEngine, spark_engine


def pytest_configure() -> None:
    """Import Great Expectations where PySpark does not take the process for one of its doctests.

    PySpark ends a process without ``__main__.__file__``, which workers of pytest-xdist are, when its Connect client is
    imported and grpc is missing.
    """
    main: Any = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        main.__file__ = __file__
        try:
            import great_expectations.compatibility.pyspark  # noqa: F401
        finally:
            del main.__file__


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file together (``--dist loadgroup``), and those of all files that use the same session.

    The first query of a session takes seconds, the hundredth a fraction of one.
    """
    session = {
        item.path: fixture
        for item in items
        for fixture in ("spark", "engine")
        if fixture in getattr(item, "fixturenames", ())
    }
    for item in items:
        item.add_marker(pytest.mark.xdist_group(session.get(item.path, item.path.name)))


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkEngine]:
    """Spark with Delta Lake, in a process of its own."""
    with spark_engine() as found:
        yield found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Each query runs once or twice: what it takes to generate and to optimize its code is not won back.
    settings = Spark(
        master="local[2]",
        driver_memory="2g",
        shuffle_partitions=2,
        java_options="-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        conf=SPARK_OPTIONS,
    )
    session = spark_session(settings, preload="pipelines.replay.preload")
    yield session
    session.stop()
