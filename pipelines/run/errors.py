"""The error of a run: behind Spark's report, of several the first, of a cluster; and what a run does about it.

docs/spark.md says what a cluster needs.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, Retriable, UsageError, restored
from pipelines.fold.pack import CorruptState
from pipelines.lake.uris import LakeUri
from pipelines.source.log_dir import snapshot_end
from pipelines.source.scan import WRITTEN_SO
from pipelines.spark.session import fault_of_connect, fault_of_jvm, is_of_client
from pipelines.storage.objects import fault_of_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ATTEMPTS = 3
"""How often a log is read again without a new micro-batch if it changes while it is read."""
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
    if match := _PYTHON.search(text):
        reason = next(filter(None, match.groups()))
        return UsageError(f"Spark's workers cannot start: {reason}: PYSPARK_PYTHON names a Python with jbod in it")
    if match := _LOST.search(text):
        return JbodError(
            f"Spark gave up a task that lost its executor {match[1]} times ({match[2]}): see the executors' logs and "
            "run again; what was published is whole and stays"
        )
    return None


def waits_for_executors(spark: SparkSession) -> bool:
    """Whether the session still has no executor on the cluster."""
    from pipelines.spark.jvm import executors
    from pipelines.spark.session import is_local

    return not is_local(str(spark.sparkContext.master)) and executors(spark) < 2


def explained(lake: LakeUri, problem: Exception) -> Exception:
    """Returns jbod's error behind Spark's report of a failed query, or ``problem`` itself if there is none."""
    if isinstance(problem, JbodError):  # of a load: a segment that cannot be read is no fault of the lake's disk
        return problem
    faults = (fault_of_disk(lake, problem), fault_of_jvm(problem), fault_of_connect(problem), fault_of_cluster(problem))
    return restored(str(problem)) or next(filter(None, faults), problem)


def without_checkpoint(checkpoint: str, problem: Exception) -> Exception:
    """The error for a checkpoint that was removed while Spark used it, as jbod rebuild does; else the same problem."""
    if f"{checkpoint}/" in str(problem) and os.strerror(errno.ENOENT) in str(problem):
        return Retriable(f"{checkpoint}: was removed during the run, as jbod rebuild does: start the run again")
    return problem


def refused_at(problem: MalformedLog | ReplayViolation) -> int | None:
    """Returns the offset from which on a log is refused, None if it is unknown.

    All records of a snapshot have the offset before its end (R-LOG-6).
    """
    end = snapshot_end(problem.file) if isinstance(problem, MalformedLog) else None
    offset = problem.offset if end is None else end - 1
    return offset if offset >= 0 else None


def first_error(errors: Iterable[JbodError]) -> JbodError:
    """The error to raise for a micro-batch: unreadable bytes first, as others may follow from them; then by offset."""

    def rank(problem: JbodError) -> tuple[bool, int]:
        offset = problem.offset if isinstance(problem, (MalformedLog, ReplayViolation)) else -1
        return not isinstance(problem, MalformedLog), offset

    return min(errors, key=rank)


class Attempts:
    """The policy for a log that changes, or is refused, while it is read (R-READ-1).

    A log that changes is read again, up to ATTEMPTS times in a row without a new micro-batch. A log that is refused is
    read again up to the offset of the error, and the error is raised after that.
    """

    def __init__(self, has_more: Callable[[int], bool] = lambda _: True) -> None:
        """``has_more``: whether any record below an offset is still to be read."""
        self.limit: int | None = None
        """Nothing from this offset on is read."""
        self.refusal: JbodError | None = None
        """The error to raise once everything before ``limit`` is read."""
        self._has_more = has_more
        self._failures = 0
        self._batches = 0

    def failed(self, problem: MalformedLog | ReplayViolation, batches: int = 0) -> None:
        """Returns if the log is to be read again, up to ``limit``. Otherwise raises the problem.

        ``batches``: the micro-batches so far.
        """
        if isinstance(problem, LogChanged):
            self._failures = self._failures + 1 if batches == self._batches else 1
            self._batches = batches
            if self._failures > ATTEMPTS:
                raise problem
            return
        if isinstance(problem, ReplayViolation) and not problem.problem.endswith(WRITTEN_SO):
            problem = ReplayViolation(problem.offset, f"{problem.problem}: {WRITTEN_SO}")
        offset = refused_at(problem)
        if offset is None or (self.limit is not None and offset >= self.limit) or not self._has_more(offset):
            raise problem
        self.limit, self.refusal = offset, problem


def is_sparks(problem: Exception) -> bool:
    """Whether Spark itself refused its checkpoint, or the state that it returned is corrupt."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException, StreamingQueryException

    if is_of_client(problem):
        # Other errors of a client say nothing about a checkpoint: the server may be gone.
        return isinstance(problem, StreamingQueryException)
    return isinstance(problem, (PySparkException, Py4JJavaError, CorruptState))
