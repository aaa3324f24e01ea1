"""Everything that can happen to a small cluster, by kind (R-EXPLORE-1, R-EXPLORE-6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.ids import Uuid


class Action(NamedTuple):
    """Something that can happen; ``kind`` names it (:data:`KINDS`), the rest says to whom."""

    kind: str
    broker_id: int
    replica: Replica | None = None
    directory: Uuid | None = None
    detail: str = ""

    @property
    def fair(self) -> bool:
        """Whether the protocol takes the step sooner or later where it stays possible (R-EXPLORE-6)."""
        return KINDS[self.kind].fair


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of action: how to say it, and whether weak fairness holds for it.

    What is not fair is a fault, an operator or a moment too early: it may never happen, and a run ends without it.
    """

    sentence: str
    fair: bool


KINDS: dict[str, Kind] = {
    # THE PROTOCOL
    "register": Kind("broker {broker} registers", True),
    "heartbeat": Kind("heartbeat of broker {broker}", True),
    "deliver": Kind("broker {broker} applies the metadata", True),
    "assign": Kind("broker {broker} reports its assignments", True),
    "catch up": Kind("the copy of partition {partition} on broker {broker} has caught up", True),
    "rejoin": Kind("partition {partition} of broker {broker} is in sync again", True),
    "expire": Kind("the session of broker {broker}, which is gone, expires", True),
    # FAULTS AND TIME
    "expire early": Kind("the session of broker {broker}, which lives, expires", False),
    "start": Kind("broker {broker} starts", False),
    "crash": Kind("broker {broker} is killed", False),
    "fail": Kind("directory {directory} of broker {broker} fails", False),
    "assign, answer lost": Kind("broker {broker} reports its assignments and does not hear the answer", False),
    # OPERATORS
    "move": Kind("broker {broker} is asked to move partition {partition} to directory {directory}", False),
}
