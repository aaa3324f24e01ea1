"""Finds the error of a run behind Spark's report, and the log offset from which on it applies."""

from __future__ import annotations

from jbod_model.errors import MalformedLog, ReplayViolation, restored
from pipelines.replay.cluster import fault_of_cluster
from pipelines.replay.pack import CorruptState
from pipelines.spark.connect import fault_of_connect, is_of_client
from pipelines.storage.faults import fault_of_disk


def explained(lake: str, problem: Exception) -> Exception:
    """Returns jbod's error behind Spark's report of a failed query, or ``problem`` itself if there is none."""
    faults = (fault_of_disk(lake, problem), fault_of_connect(problem), fault_of_cluster(problem))
    return restored(str(problem)) or next(filter(None, faults), problem)


def refused_at(problem: MalformedLog | ReplayViolation) -> int | None:
    """Returns the offset from which on a log is refused, None if it is unknown or is an offset in a snapshot."""
    if isinstance(problem, MalformedLog) and problem.file.endswith(".checkpoint"):
        return None
    return problem.offset if problem.offset >= 0 else None


def is_sparks(problem: Exception) -> bool:
    """Whether Spark itself refused its checkpoint, or the state that it returned is corrupt."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException, StreamingQueryException

    if is_of_client(problem):
        # Other errors of a client say nothing about a checkpoint: the server may be gone.
        return isinstance(problem, StreamingQueryException)
    return isinstance(problem, (PySparkException, Py4JJavaError, CorruptState))
