"""The gauge of each broker's queue of assignments over time, with the name that the profile gives it (R-SIM-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of a broker's gauge at a time (milliseconds); None after its process has ended."""

    time_ms: int
    node_id: int
    name: str
    value: int | None


def changed(readings: Sequence[Reading], reading: Reading) -> bool:
    """Whether a reading differs from the broker's newest one, or is its first."""
    newest = next((known.value for known in reversed(readings) if known.node_id == reading.node_id), None)
    return newest != reading.value
