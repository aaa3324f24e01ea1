"""Errors that occur only on a cluster, as one line each. docs/spark.md says what a cluster needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 30
"""Seconds without any executor after which a run says that it waits."""
WAITS = (
    f"no executor after {PATIENCE} s: is a worker free that has spark.executor.memory and spark.executor.cores? do "
    "executors start (see the worker's log) and reach spark.driver.host?"
)
_PYTHON = re.compile(r'Error from python worker:\s+([^\n]+)|(Cannot run program "[^\n]+)|(\[PYTHON_VERSION_[^\n]+)')
_LOST = re.compile(r"failed (\d+) times, [^\n]*ExecutorLostFailure \([^)]*\) Reason: ([^\n]*)")


def fault_of_cluster(problem: BaseException) -> JbodError | None:
    """Returns a one-line error if Spark reports that workers could not start or were lost, otherwise None."""
    text = str(problem)
    if found := _PYTHON.search(text):
        said = next(filter(None, found.groups()))
        return UsageError(f"Spark's workers cannot start: {said}: PYSPARK_PYTHON names a Python with jbod in it")
    if found := _LOST.search(text):
        return JbodError(
            f"Spark gave up a task that lost its executor {found[1]} times ({found[2]}): see the executors' logs and "
            "run again; what was published is whole and stays"
        )
    return None


def waits_for_executors(spark: SparkSession) -> bool:
    """Whether the session still has no executor on the cluster."""
    from pipelines.spark.jvm import executors
    from pipelines.spark.session import is_local

    return not is_local(str(spark.sparkContext.master)) and executors(spark) < 2
