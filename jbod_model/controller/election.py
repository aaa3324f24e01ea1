"""Elects the leader of a partition (docs/spec/controller.md).

Source: the elections of Kafka's ``PartitionChangeBuilder``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

NO_LEADER = -1

Acceptable = Callable[[int], bool]
"""Whether a broker may lead the partition: alive, and with the replica's directory online (R-ELECT-1)."""


class Election(enum.Enum):
    """The kinds of election."""

    ONLINE = "online"
    """Keep the leader if it can lead, else the first in-sync replica that can."""
    PREFERRED = "preferred"
    """Take the first replica if it can lead, else as `ONLINE`."""
    UNCLEAN = "unclean"
    """As `ONLINE`, and as a last resort any replica that can lead, which may lose data."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The input of an election: the partition's leader before the change, and its sets after it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    """Eligible leader replicas. They count only if no replica is in sync."""
    last_known_leader: int | None = None
    """The broker that led when the partition lost its leader, if it may lead again (R-ELECT-4)."""
    last_may_be_fenced: bool = False
    """The last known leader wins even if it cannot lead, as in Kafka 4.0 (R-QUIRK-11)."""


@dataclass(frozen=True, slots=True)
class Elected:
    """The winner, or NO_LEADER."""

    leader: int
    unclean: bool = False


def elect(election: Election, candidates: Candidates, acceptable: Acceptable) -> Elected:
    """Hold an election (R-ELECT-2, R-ELECT-3, R-ELECT-4, R-ELECT-5). The caller writes the result."""

    def valid(replica: int) -> bool:
        in_sync = replica in candidates.isr or (not candidates.isr and replica in candidates.eligible)
        return in_sync and acceptable(replica)

    order = (candidates.leader, *candidates.replicas)
    if election is Election.PREFERRED:
        order = (candidates.replicas[0], *order)
    for replica in order:
        if valid(replica):
            return Elected(replica)
    last = candidates.last_known_leader
    # Kafka 4.0 asks as well, and ignores the answer: a broker that is no replica is a fault there, too (R-QUIRK-3).
    alone = last is not None and not candidates.isr and not candidates.eligible
    if last is not None and alone and (acceptable(last) or candidates.last_may_be_fenced):
        return Elected(last, unclean=True)
    if election is Election.UNCLEAN:
        for replica in candidates.replicas:
            if acceptable(replica):
                return Elected(replica, unclean=True)
    return Elected(NO_LEADER)
