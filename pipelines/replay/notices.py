"""The notices of a run about its log: an incomplete batch at the end, directories that differ."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pipelines.source.log_dir import LogDir
from pipelines.source.log_dirs import Agreed, LogDirs
from pipelines.source.plan import Planner
from pipelines.source.positions import Position, Tail


def end_of_log(log: LogDir, offset: int) -> tuple[Tail | None, list[str]]:
    """Returns the incomplete batch at the end of a log, and a line for each thing that waits there.

    ``offset`` is the lake's end. The scan begins with the segment that holds it.
    """
    planner = Planner(log)
    planner.refresh(Position(offset, base=offset - 1))
    return lines_of_end(planner)


def lines_of_end(planner: Planner) -> tuple[Tail | None, list[str]]:
    """The same for a planner that has scanned the end of its log."""
    log = planner.log
    if planner.tail is not None:
        tail = planner.tail
        return tail, [
            f"{log.location}: the log ends within a batch at offset {tail.offset}: {tail.path} has {tail.size} bytes "
            "of it; it is read when it is complete"
        ]
    empty = [segment for segment in planner.segments[-1:] if segment.size == 0]
    return None, [f"{segment.path}: is empty; it is read when it has records" for segment in empty]


class Standing:
    """Reports how several directories differ. It reports each fact once."""

    def __init__(self) -> None:
        self._told: set[object] = set()
        self._agreed = (-2, 0.0)
        """The last agreed offset, and since when it is so."""

    def news(self, directories: LogDirs, agreed: Agreed, *, patience: float) -> list[str]:
        """Returns new lines. It names the directories that are ahead after ``patience`` seconds without progress."""
        if agreed.end != self._agreed[0]:
            self._agreed = agreed.end, time.monotonic()
        said: dict[object, str] = {line: line for line in _of_log_dirs(directories)}
        if time.monotonic() - self._agreed[1] >= patience:
            said |= {(agreed.end, number): line for number, line in enumerate(agreed.ahead)}
        lines = [line for key, line in said.items() if key not in self._told]
        self._told = set(said)
        return lines


def _of_log_dirs(directories: LogDirs) -> Iterator[str]:
    """A line for each directory that has no vote or differs from another."""
    yield from map(str, directories.forks())
    for location, problem in directories.silent.items():
        yield f"{location}: has no vote now: {problem}"
    voters = ", ".join(map(str, sorted(directories.voters())))
    for location, node in directories.observers().items():
        yield f"{location}: has no vote: node {node} is none of the voters {voters}"
    if unseen := directories.unseen():
        yield (
            f"no directory of {', '.join(map(str, unseen))} of the voters {voters} is given: what the others hold "
            "is published, and may be rolled back"
        )
