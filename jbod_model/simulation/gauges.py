"""The gauge of each broker's queue of assignments over time, under the name its profile gives it (R-SIM-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that a broker's gauge took at a time (milliseconds); None where its process has ended."""

    time_ms: int
    node_id: int
    name: str
    value: int | None


def changed(readings: Sequence[Reading], reading: Reading) -> bool:
    """Whether a reading says anything new: the newest one of the broker has another value, or there is none."""
    newest = next((known.value for known in reversed(readings) if known.node_id == reading.node_id), None)
    return newest != reading.value
