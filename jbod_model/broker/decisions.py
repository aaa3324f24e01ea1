"""What a broker does with a replica that the metadata assigns to it (docs/spec/broker.md).

Theory of operation. Three facts decide: what the metadata says about the replica's directory (:class:`Target`), which
logs of the replica the broker has (:class:`Holding`), and whether a directory of the broker is offline, since a missing
log may lie there. :data:`DECISIONS` has every case. Where the KIP's text and Kafka differ, :data:`DIFFERENCES` has the
KIP's answer. A broker with one directory is no special case (R-DECIDE-13).

Source: KIP-858 "Replica management"; Kafka's ``ReplicaManager.applyDelta``, ``Partition``, ``LogManager``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from jbod_model.ids import IdTable, Uuid
from jbod_model.profiles.rules import BrokerRules


class Target(Enum):
    """What the metadata says about the directory of the broker's replica."""

    ONLINE = "an online directory of this broker"
    UNASSIGNED = "none yet"
    MIGRATING = "some, from before assignments"
    UNKNOWN = "lost, or an id that is not online here"
    SAME = "nothing new: the change was about something else"


class Holding(Enum):
    """The logs of the replica in the broker's online directories."""

    NOTHING = "no log"
    IN_TARGET = "the log, in the assigned directory"
    ELSEWHERE = "the log, in another directory"
    FUTURE_IN_TARGET = "the log in another directory, and a future log in the assigned one"


class ReplicaStep(Enum):
    """What happens to the replica's log."""

    KEEP = "use the log that is there"
    CREATE_THERE = "create the log in the assigned directory"
    CREATE_CHOSEN = "choose a directory and create the log there"
    SKIP = "create nothing: the log may lie in a directory that is offline"
    PROMOTE = "let the future log take the place of the current one when it has caught up"


@dataclass(frozen=True, slots=True)
class ReplicaDecision:
    """The step, and whether the broker then reports the log's directory to the controller."""

    step: ReplicaStep
    report: bool
    rule: str


def _rows() -> dict[tuple[Target, Holding, bool], ReplicaDecision]:
    keep, create, choose = ReplicaStep.KEEP, ReplicaStep.CREATE_THERE, ReplicaStep.CREATE_CHOSEN
    table: dict[tuple[Target, Holding, bool], ReplicaDecision] = {}
    for offline in (False, True):
        table |= {
            # The assigned directory is online: the log is created there, or is used there, or the metadata is
            # corrected.
            (Target.ONLINE, Holding.NOTHING, offline): ReplicaDecision(create, False, "R-DECIDE-1"),
            (Target.ONLINE, Holding.IN_TARGET, offline): ReplicaDecision(keep, False, "R-DECIDE-2"),
            (Target.ONLINE, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-3"),
            (Target.ONLINE, Holding.FUTURE_IN_TARGET, offline): ReplicaDecision(keep, True, "R-DECIDE-4"),
            # No directory was assigned yet: a new replica, created even while a directory is offline.
            (Target.UNASSIGNED, Holding.NOTHING, offline): ReplicaDecision(choose, True, "R-DECIDE-5"),
            (Target.UNASSIGNED, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-6"),
            # Assigned before directories were recorded: the broker reports the log's directory.
            (Target.MIGRATING, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-7"),
            # Lost or unknown, but the broker has the log: its directory counts.
            (Target.UNKNOWN, Holding.ELSEWHERE, offline): ReplicaDecision(keep, True, "R-DECIDE-9"),
            # The change was not about the directory: there is nothing to compare or to report.
            (Target.SAME, Holding.NOTHING, offline): ReplicaDecision(choose, False, "R-DECIDE-11"),
            (Target.SAME, Holding.ELSEWHERE, offline): ReplicaDecision(keep, False, "R-DECIDE-12"),
        }
    # No log, and the assignment may mean an offline directory: the log is created again only if no directory is
    # offline.
    table |= {
        (Target.MIGRATING, Holding.NOTHING, False): ReplicaDecision(choose, True, "R-DECIDE-8"),
        (Target.MIGRATING, Holding.NOTHING, True): ReplicaDecision(ReplicaStep.SKIP, False, "R-DECIDE-8"),
        (Target.UNKNOWN, Holding.NOTHING, False): ReplicaDecision(choose, True, "R-DECIDE-10"),
        (Target.UNKNOWN, Holding.NOTHING, True): ReplicaDecision(ReplicaStep.SKIP, False, "R-DECIDE-10"),
    }
    return table


DECISIONS = _rows()

# By the KIP's text a future replica in the assigned directory is promoted once it has caught up, at any time. Kafka
# does so only at start (R-DECIDE-4). While running it corrects the metadata to the current directory.
DIFFERENCES: dict[tuple[Target, Holding, bool], ReplicaDecision] = {
    (Target.ONLINE, Holding.FUTURE_IN_TARGET, offline): ReplicaDecision(ReplicaStep.PROMOTE, False, "R-DECIDE-4")
    for offline in (False, True)
}


def classify_target(directory: Uuid | None, online: Collection[Uuid], ids: IdTable) -> Target:
    """What an assignment means to a broker with the directories ``online``; None for a change without one."""
    if directory is None:
        return Target.SAME
    if directory in online:
        return Target.ONLINE
    if directory == ids.unassigned:
        return Target.UNASSIGNED
    if directory == ids.migrating:
        return Target.MIGRATING
    return Target.UNKNOWN


def classify_holding(directory: Uuid | None, current: Uuid | None, future: Uuid | None) -> Holding:
    """The broker's logs of a replica, from the directories of the current and the future log (None for no log)."""
    if current is None:
        return Holding.NOTHING
    if directory == current:
        return Holding.IN_TARGET
    if directory is not None and directory == future:
        return Holding.FUTURE_IN_TARGET
    return Holding.ELSEWHERE


def decide(target: Target, holding: Holding, has_offline: bool, rules: BrokerRules) -> ReplicaDecision:
    """The row of the table; ``has_offline`` says whether any configured directory of the broker is offline."""
    key = (target, holding, has_offline)
    if not rules.promote_future_at_start and key in DIFFERENCES:
        return DIFFERENCES[key]
    return DECISIONS[key]
