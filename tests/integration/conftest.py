"""One Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import Spark
from pipelines.spark.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(
        Spark(master="local[2]", driver_memory="2g", shuffle_partitions=2), preload="pipelines.replay.preload"
    )
    yield session
    session.stop()
