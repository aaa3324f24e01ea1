"""What the log says of the partitions of reassignment files: where they are going, and where their replicas are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from pipelines.ask.plan_check import ReassignedPartition
from pipelines.ask.starting import not_taken_back
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


class Phase(NamedTuple):
    """A time in which a partition was going to, or at, the same replicas."""

    aims: bool
    """Whether it is at the target of the file, or on the way to it."""
    moving: bool
    """Whether a reassignment is under way."""
    offset: int
    time: datetime
    toward: Sequence[int]


class Now(NamedTuple):
    """A partition at the offset."""

    replicas: Sequence[int]
    isr: Sequence[int]
    leader: int
    adding: Sequence[int]
    removing: Sequence[int]


@dataclass(frozen=True)
class PartitionPhases:
    """A partition at the offset, and how it came there."""

    now: Now
    phases: Sequence[Phase]
    """The oldest first; the last one is that of the offset."""

    @property
    def begun(self) -> Phase | None:
        """The phase in which the reassignment to the target began, if it is done or under way."""
        *before, now = self.phases
        if not now.aims or not before:
            return None
        return before[-1] if before[-1].aims else now

    @property
    def before(self) -> Sequence[int]:
        """The brokers before that reassignment began; those of the oldest phase if none did."""
        aims = [phase.aims for phase in self.phases]
        first = len(aims) - aims[::-1].index(False) if False in aims else 0
        return self.phases[max(0, first - 1)].toward


def stories(lake: Lake) -> Mapping[tuple[str, int], PartitionPhases]:
    """The phases of the partitions of plan_wanted that exist."""
    rows = lake.query(
        f"""
        WITH now AS (SELECT p.* FROM {lake.at("partitions")} p JOIN plan_wanted USING (topic, partition)),
        history AS (
            SELECT p.topic_id, p.partition, p.from_offset, p.from_time, w.target,
                   len(p.adding) + len(p.removing) > 0 AS moving,
                   list_filter(p.replicas, lambda b: NOT list_contains(p.removing, b)) AS toward
            FROM {lake.until("partitions")} p JOIN plan_wanted w USING (topic, partition)
        ),
        phases AS (
            SELECT topic_id, partition, toward = target AS aims, moving, from_offset, from_time, toward FROM history
            QUALIFY (toward, moving) IS DISTINCT FROM
                    lag((toward, moving)) OVER (PARTITION BY topic_id, partition ORDER BY from_offset)
        )
        SELECT any_value(n.topic), partition, any_value(n.replicas), any_value(n.isr), any_value(n.leader),
               any_value(n.adding), any_value(n.removing),
               list((h.aims, h.moving, h.from_offset, epoch_us(h.from_time), h.toward) ORDER BY h.from_offset)
        FROM now n JOIN phases h USING (topic_id, partition) GROUP BY topic_id, partition
        """
    )
    return {
        (topic, number): PartitionPhases(
            Now(replicas, isr, leader, adding, removing),
            [Phase(aims, moving, at, time_of(micros), toward) for aims, moving, at, micros, toward in phases],
        )
        for topic, number, replicas, isr, leader, adding, removing, phases in rows
    }


class PlacedReplica(NamedTuple):
    """Where a replica is that the files place."""

    directory: str | None
    """None if the log does not know it."""
    offset: int
    time: datetime
    moved: bool
    """Whether it came from another directory of the broker."""


def select_moves(
    lake: Lake, entries: Mapping[tuple[str, int], ReassignedPartition], paths: Mapping[tuple[int, str], str]
) -> None:
    """Makes the temporary table plan_moves: the replicas for which the files name a directory that is known."""
    rows = [
        (topic, number, broker, paths[broker, path])
        for (topic, number), entry in entries.items()
        for broker, path in zip(entry.replicas, entry.log_dirs, strict=False)
        if (broker, path) in paths
    ]
    lake.make("plan_moves", "topic VARCHAR, partition INT, broker_id INT, target VARCHAR", rows)


def places_of(lake: Lake) -> Mapping[tuple[str, int, int], PlacedReplica]:
    """The replicas of plan_moves: topic, partition, broker -> where it is, or was last."""
    rows = lake.query(
        f"""
        WITH came AS (
            SELECT a.*, lag(a.kind) OVER replica = 'assigned' AS moved
            FROM {lake.until("assignments")} a JOIN plan_moves USING (topic, partition, broker_id)
            WINDOW replica AS (PARTITION BY topic_id, partition, broker_id ORDER BY from_offset)
            QUALIFY a.directory_id IS DISTINCT FROM lag(a.directory_id) OVER replica
        )
        SELECT topic, partition, broker_id, CASE WHEN kind = 'assigned' THEN directory_id END, from_offset,
               epoch_us(from_time), coalesce(moved, false) FROM came
        QUALIFY row_number() OVER (PARTITION BY topic, partition, broker_id ORDER BY from_offset DESC) = 1
        """
    )
    return {
        (topic, number, broker): PlacedReplica(directory, at, time_of(micros), moved)
        for topic, number, broker, directory, at, micros, moved in rows
    }


@dataclass(frozen=True)
class Copiers:
    """The brokers and their directories."""

    states: Mapping[int, str]
    """Registered broker -> what keeps it from copying; empty if nothing does."""
    listed: Mapping[str, int]
    """Online directory -> its broker. None of a broker that does not report directories."""
    cordoned: frozenset[str]
    reporting: frozenset[int]
    """Brokers that report their directories."""
    offline: Mapping[tuple[str, int, int], str]
    """Topic, partition, broker -> the directory of the replica, which is offline while its broker runs."""
    not_taken_back: Mapping[tuple[str, int, int], str]
    """Topic, partition, broker -> the directory that failed with the replica, which the broker does not take back until
    it restarts."""

    @classmethod
    def of(cls, lake: Lake) -> Copiers:
        """At the lake's offset."""
        rows = lake.query(
            "SELECT broker_id, fenced, in_controlled_shutdown, log_dirs, coalesce(cordoned_log_dirs, []) "
            f"FROM {lake.at('brokers')}"
        )
        offline = lake.query(
            f"SELECT topic, partition, broker_id, directory_id FROM {lake.at('offline_replicas')} "
            "JOIN plan_wanted USING (topic, partition) WHERE reason LIKE 'directory%'"
        )
        return cls(
            {broker: "fenced" if fenced else "shutting down" if stops else "" for broker, fenced, stops, *_ in rows},
            {directory: broker for broker, _, _, listed, _ in rows for directory in listed},
            frozenset(directory for *_, cordoned in rows for directory in cordoned),
            frozenset(broker for broker, _, _, listed, _ in rows if listed),
            {(topic, number, broker): directory for topic, number, broker, directory in offline},
            not_taken_back(lake),
        )

    @cached_property
    def only(self) -> frozenset[str]:
        """The online directories whose broker has no other."""
        directories = Counter(self.listed.values())
        return frozenset(directory for directory, broker in self.listed.items() if directories[broker] == 1)

    @property
    def by_directory(self) -> Mapping[tuple[int, str], Sequence[str]]:
        """(broker, directory that is offline) -> the partitions with a replica in it."""
        partitions: dict[tuple[int, str], list[str]] = {}
        for (topic, number, broker), directory in sorted(self.offline.items()):
            if not self.trouble(broker):
                partitions.setdefault((broker, directory), []).append(f"{topic}-{number}")
        return partitions

    def trouble(self, broker: int) -> str:
        """Why a broker copies nothing; empty if nothing keeps it from that."""
        if broker not in self.states:
            return f"broker {broker} is not registered"
        return f"broker {broker} is {self.states[broker]}" if self.states[broker] else ""
