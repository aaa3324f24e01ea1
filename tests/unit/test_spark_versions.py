"""Which Spark can replay."""

from __future__ import annotations

import pytest

from jbod_model.errors import UsageError
from pipelines.spark.session import check_version


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0-SNAPSHOT", "5.0.1"])
def test_spark_that_can_limit_batches_of_a_python_source_is_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.4", "4.0.1", "4.1.1"])
def test_older_spark_is_refused_with_the_version_that_a_replay_needs(version: str) -> None:
    with pytest.raises(UsageError, match=rf"^Spark {version}: a replay needs Spark 4\.2 or later"):
        check_version(version)
