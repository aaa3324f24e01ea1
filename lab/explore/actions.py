"""Everything that can happen to a small cluster, by kind (R-EXPLORE-1, R-EXPLORE-6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image


class Action(NamedTuple):
    """Something that can happen. ``kind`` names it (:data:`KINDS`); the other fields say to whom."""

    kind: str
    broker_id: int
    replica: Replica | None = None
    directory: Uuid | None = None
    detail: str = ""

    @property
    def fair(self) -> bool:
        """Whether the protocol eventually takes the step if it stays possible (R-EXPLORE-6)."""
        return KINDS[self.kind].fair


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of action: its text, and whether weak fairness holds for it.

    An unfair action is a fault, an operator's action or a step that is too early: it may never happen in a run.
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
    "shrink": Kind("the leader of partition {partition} gives up the replica on broker {broker}", True),
    "handle": Kind("the controller handles {detail} of broker {broker}", True),
    "hear": Kind("broker {broker} hears the answer to its {detail}", True),
    "failure timeout": Kind("the failure of directory {directory} of broker {broker} should be reported by now", True),
    "assignment timeout": Kind("an assignment of broker {broker} should be reported by now", True),
    # FAULTS AND TIME
    "expire early": Kind("the session of broker {broker}, which lives, expires", False),
    "start": Kind("broker {broker} starts", False),
    "crash": Kind("broker {broker} is killed", False),
    "fail": Kind("directory {directory} of broker {broker} fails", False),
    "assign, answer lost": Kind("broker {broker} reports its assignments and does not hear the answer", False),
    "register, answer lost": Kind("broker {broker} registers, and does not hear the answer", False),
    "heartbeat, request lost": Kind("heartbeat of broker {broker}, which nobody hears", False),
    "heartbeat, answer lost": Kind("heartbeat of broker {broker}, which does not hear the answer", False),
    "assign, request lost": Kind("broker {broker} reports its assignments, and nobody hears it", False),
    "give up": Kind("broker {broker} waits no longer for the answer to its {detail}", False),
    "handle twice": Kind("the controller handles {detail} of broker {broker}, which will arrive again", False),
    "cut off": Kind("broker {broker} is cut off from the controller", False),
    "fail over": Kind("another controller takes over", False),
    "repair": Kind("directory {directory} of broker {broker} works again", False),
    # OPERATORS
    "replace": Kind("the disk of directory {directory} of broker {broker} is replaced", False),
    "add": Kind("directory {directory} is added to broker {broker}", False),
    "remove": Kind("directory {directory} is removed from broker {broker}", False),
    "stop": Kind("broker {broker} is asked to stop", False),
    "reassign": Kind("partition {partition} is reassigned to {detail}", False),
    "delete": Kind("the topic is deleted", False),
    "write": Kind("a record is written to partition {partition} and acknowledged", False),
    "move": Kind("broker {broker} is asked to move partition {partition} to directory {directory}", False),
}


def plain_names(names: Mapping[int, tuple[Uuid, ...]]) -> dict[Uuid, str]:
    """Names for directories: 1a, 1b and so on for those of broker 1."""
    return {name: f"{b}{chr(ord('a') + i)}" for b, each in names.items() for i, name in enumerate(each)}


def describe(action: Action, after: Image, names: Mapping[Uuid, str]) -> str:
    """A step in words: what happens, and the metadata after it."""
    what = KINDS[action.kind].sentence.format(
        broker=action.broker_id,
        partition=None if action.replica is None else action.replica.partition,
        directory=None if action.directory is None else names[action.directory],
        detail=action.detail,
    )
    return f"{what}: {summary(after, names)}"


def summary(image: Image, names: Mapping[Uuid, str]) -> str:
    """The brokers and partitions of the metadata, in words."""
    special = {image.ids.unassigned: "unassigned", image.ids.lost: "lost", image.ids.migrating: "migrating"}
    shown = {**special, **names}
    brokers = [
        f"broker {b.broker_id} {'' if b.fenced else 'un'}fenced with {_joined(shown[d] for d in b.directories)}"
        for b in image.brokers.values()
    ]
    partitions = [
        f"partition {n} leader {p.leader} isr {list(p.isr)} in {', '.join(shown[d] for d in p.directories)}"
        for topic in image.topics.values()
        for n, p in topic.partitions.items()
    ]
    return "; ".join([*brokers, *partitions])


def _joined(names: Iterable[str]) -> str:
    return "+".join(sorted(names)) or "no directory"
