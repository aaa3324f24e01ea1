"""What a reader asks of a log, whether one directory answers (Planner) or several copies of it do (LogCopies).

Order of calls, which the two hold alike:

1. ``limit`` is set, if at all, before anything is asked. ``freeze``, if at all, before ``begin`` or ``advance``.
2. ``begin`` says where a first read begins. A reader that goes on from a position of its own leaves it out.
3. ``advance`` looks at the disk and says where the next micro-batch ends.
4. ``covers``, ``holds``, ``is_quiet``, ``time`` and ``problem`` answer from what ``advance`` saw, and look at nothing.
5. ``slices`` of a micro-batch come after the ``advance`` that gave its end, or another one from its start: ``covers``
   says whether that was done, ``holds`` whether the log still is the one that was planned.

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
        """What the log is refused for after all that may be read, None where it is sound so far."""

    def freeze(self) -> None:
        """Take what is on disk now for all there will be: a run that is to end has an end."""

    def begin(self, start: str = "auto") -> Position:
        """Where a first read begins (``start``: auto, log or snapshot)."""

    def advance(self, position: Position, max_records: int | None = None) -> Position:
        """Where the next micro-batch ends; ``position`` itself where there is nothing new."""

    def covers(self, start: Position, end: Position) -> bool:
        """Whether the batches between two positions were seen."""

    def holds(self, position: Position) -> bool:
        """Whether the batch before ``position`` is the one it names."""

    def is_quiet(self, start: Position, end: Position) -> bool:
        """Whether there are only NoOpRecords between two positions."""

    def time(self, offset: int) -> int:
        """Append time in milliseconds of the last batch before ``offset``, -1 where none was seen."""

    def slices(self, start: Position, end: Position) -> Iterator[Slice]:
        """The slices between two positions, in log order."""
