"""What a run was refused for: found behind Spark's report, and the log offset from which on it holds."""

from __future__ import annotations

import re
from typing import Any

from jbod_model.errors import JbodError, LogChanged, MalformedLog, ReplayViolation, UsageError
from pipelines.lake.faults import fault_of_disk
from pipelines.replay.cluster import fault_of_cluster
from pipelines.replay.pack import CorruptState

_ERROR = re.compile(r"jbod_model\.errors\.(\w+): ([^\n]*)")


def explained(lake: str, problem: Exception) -> Exception:
    """The refusal behind Spark's report of a failed query, ``problem`` itself where it is no refusal."""
    found = _ERROR.search(str(problem))
    if found is None:
        return fault_of_disk(lake, problem) or fault_of_cluster(problem) or problem
    kinds: dict[str, Any] = {
        "UsageError": UsageError,
        "MalformedLog": _Reported,
        "LogChanged": _Changed,
        "ReplayViolation": _Refused,
    }
    return kinds.get(found[1], JbodError)(found[2])  # type: ignore[no-any-return]


def refused_at(problem: MalformedLog | ReplayViolation) -> int | None:
    """The log offset from which on a log is refused; None where none is known, or the offset is a snapshot's."""
    if isinstance(problem, (_Reported, _Refused)):
        return None
    if isinstance(problem, MalformedLog) and problem.file.endswith(".checkpoint"):
        return None
    return problem.offset if problem.offset >= 0 else None


def is_sparks(problem: Exception) -> bool:
    """Whether Spark refused what it found, or what it gave back is no state."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
    from pyspark.errors import PySparkException

    return isinstance(problem, (PySparkException, Py4JJavaError, CorruptState))


class _Reported(MalformedLog):
    """A malformed log as another process told it: only the text is left."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class _Changed(LogChanged):
    """A log that changed as another process told it: only the text is left."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class _Refused(ReplayViolation):
    """An illegal history as another process told it: only the text is left."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
