"""Finds the error of a run behind Spark's report, and the log offset from which on it applies."""

from __future__ import annotations

from jbod_model.errors import MalformedLog, ReplayViolation, restored
from pipelines.lake.faults import fault_of_disk
from pipelines.replay.cluster import fault_of_cluster
from pipelines.replay.pack import CorruptState


def explained(lake: str, problem: Exception) -> Exception:
    """Returns jbod's error behind Spark's report of a failed query, or ``problem`` itself if there is none."""
    return restored(str(problem)) or fault_of_disk(lake, problem) or fault_of_cluster(problem) or problem


def refused_at(problem: MalformedLog | ReplayViolation) -> int | None:
    """Returns the offset from which on a log is refused, None if it is unknown or is an offset in a snapshot."""
    if isinstance(problem, MalformedLog) and problem.file.endswith(".checkpoint"):
        return None
    return problem.offset if problem.offset >= 0 else None


def is_sparks(problem: Exception) -> bool:
    """Whether Spark itself refused its checkpoint, or the state that it returned is corrupt."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    return isinstance(problem, (PySparkException, Py4JJavaError, CorruptState))
