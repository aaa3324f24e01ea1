"""The first micro-batch of a new lake, planned by the driver while Spark starts and handed to the source.

Spark plans in a separate Python process. That process would load the planner and scan the log while the query waits.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jbod_model.errors import JbodError
from pipelines.source.positions import Position, Slice

if TYPE_CHECKING:
    from pipelines.source.plan import Planner

# Spark copies a source's options into every process, so a longer plan (a log of some 30 GB) is not handed over.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class FirstBatch:
    """The slices between two positions. ``max_records``: the limit it was planned with, None for none."""

    start: Position
    end: Position
    max_records: int | None
    is_all: bool
    """Whether nothing after ``end`` may be read."""
    slices: tuple[Slice, ...]

    @classmethod
    def read(cls, text: str) -> FirstBatch | None:
        """What ``plan_ahead`` wrote."""
        if not text:
            return None
        raw = json.loads(text)
        return cls(
            Position(**raw["start"]),
            Position(**raw["end"]),
            raw["max_records"],
            raw["is_all"],
            tuple(Slice.of(piece) for piece in raw["slices"]),
        )


def plan_ahead(planner: Planner, start: str, max_records: int | None) -> str:
    """Returns the first micro-batch as JSON, "" if there is none or it is too long. Raises what the planner raises."""
    planner.freeze()
    begin = planner.begin(start)
    end = planner.advance(begin, max_records)
    if begin == end:
        return ""
    slices = tuple(planner.slices(begin, end))  # before the planner moves on
    try:
        is_all = planner.advance(end) == end
    except JbodError:  # the run publishes what comes before the damage, then fails
        is_all = False
    found = FirstBatch(begin, end, max_records, is_all, slices)
    text = json.dumps(asdict(found))
    return text if len(text) <= _MOST_BYTES else ""
