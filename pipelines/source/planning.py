"""What a reader asks of a log. One directory answers (Planner), or several directories of the log (LogDirs).

Both keep this order of calls:

1. The caller sets ``limit``, if at all, before any call, and calls ``freeze``, if at all, before 2 and 3.
2. ``begin`` says where a first read begins. A reader that resumes from its own position skips it.
3. ``advance`` looks at the disk and says where the next micro-batch ends.
4. ``covers``, ``holds``, ``is_quiet``, ``time`` and ``problem`` answer from what ``advance`` saw. They read no file.
5. ``slices`` of a micro-batch need an ``advance`` before, the one that gave its end or another one from its start.
   ``covers`` says whether there was one, ``holds`` whether the log is still the one that was planned.

A Planner that is asked for slices before step 2 or 3 raises RuntimeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from jbod_model.errors import JbodError
from pipelines.source.positions import Position, Slice


class Planning(Protocol):
    """Plans the micro-batches of a reader."""

    limit: int | None
    """Nothing from this offset on may be read."""

    @property
    def problem(self) -> JbodError | None:
        """The error to raise after all that may be read was read, None if the log is sound so far."""

    def freeze(self) -> None:
        """Treats the present files as the whole log, so that a run that must end has an end."""

    def begin(self, start: str = "auto") -> Position:
        """Where a first read begins (``start``: auto, log or snapshot)."""

    def advance(self, position: Position, max_records: int | None = None) -> Position:
        """Returns the end of the next micro-batch, or ``position`` itself if there is nothing new."""

    def covers(self, start: Position, end: Position) -> bool:
        """Whether the batches between two positions were seen."""

    def holds(self, position: Position) -> bool:
        """Whether the batch before ``position`` is the one it names."""

    def is_quiet(self, start: Position, end: Position) -> bool:
        """Whether there are only NoOpRecords between two positions."""

    def time(self, offset: int) -> int:
        """Append time in milliseconds of the last batch before ``offset``, -1 if none was seen."""

    def slices(self, start: Position, end: Position) -> Iterator[Slice]:
        """The slices between two positions, in log order."""
