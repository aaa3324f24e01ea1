"""Leads-to properties: what must eventually happen, under weak fairness of the protocol (R-EXPLORE-6).

Each property is "P leads to not P". :mod:`lab.explore.lassos` finds the runs that break one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jbod_model.broker.assignments import Replica
from jbod_model.broker.lifecycle import LifecycleState
from jbod_model.replay.image import Image
from lab.explore.cluster import Cluster, serves
from lab.explore.invariants import partitions
from lab.explore.machine import Machine
from lab.explore.physical import dead_log, led_from_dead_disks


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """A property. ``holds`` gives the subjects for which P is true in a state of the metadata and a machine."""

    name: str
    sentence: str
    holds: Callable[[Image, Machine], Iterator[str]]
    alone: bool = False
    """It must hold even if the broker is cut off from the controller."""


def leader_on_dead_disk(image: Image, machine: Machine) -> Iterator[str]:
    """A running process leads a partition whose log lies on a dead disk."""
    for replica in led_from_dead_disks(image, machine):
        yield f"partition {replica.partition}: leader {machine.broker_id} is on a dead disk"


def leader_without_log(image: Image, machine: Machine) -> Iterator[str]:
    """A running process leads a partition and has no log of it on any disk."""
    if machine.broker is None:
        return
    for (topic_id, number), partition in partitions(image):
        replica = Replica(topic_id, number)
        leads = partition.leader == machine.broker_id
        if leads and not serves(machine, replica) and dead_log(machine, replica) is None:
            yield f"partition {number}: leader {machine.broker_id} has no log"


def fenced(image: Image, machine: Machine) -> Iterator[str]:
    """A running process has a working directory and was not asked to stop, and its broker is fenced."""
    broker = machine.broker
    if broker is None or not broker.replicas.disks.online:
        return
    stops = broker.life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN or machine.cut
    if image.brokers[machine.broker_id].fenced and not stops:
        yield f"broker {machine.broker_id} is fenced"


def unassigned(image: Image, machine: Machine) -> Iterator[str]:
    """The metadata has no directory for a replica of a running process."""
    if machine.broker is None:
        return
    unknown = (image.ids.unassigned, image.ids.migrating)
    for (_, number), partition in partitions(image):
        if machine.broker_id in partition.replicas and partition.directory(machine.broker_id) in unknown:
            yield f"partition {number} of broker {machine.broker_id} is unassigned"


def queued(image: Image, machine: Machine) -> Iterator[str]:
    """Assignments wait in a process."""
    del image
    if machine.broker is not None and machine.broker.queue.pending:
        yield f"assignments of broker {machine.broker_id} wait"


def moving(image: Image, machine: Machine) -> Iterator[str]:
    """A process moves a replica between disks."""
    del image
    if machine.broker is not None:
        for replica in machine.broker.replicas.moves:
            yield f"the move of partition {replica.partition} on broker {machine.broker_id} goes on"


def unreported(image: Image, machine: Machine) -> Iterator[str]:
    """In the metadata a failed directory of a running, registered process is online."""
    broker = machine.broker
    if broker is None or not broker.life.registered:
        return
    if set(image.brokers[machine.broker_id].directories) & broker.replicas.disks.failed:
        yield f"a failed directory of broker {machine.broker_id} is online in the metadata"


def misplaced(image: Image, machine: Machine) -> Iterator[str]:
    """A process has a replica in a working directory, and the metadata has it in another."""
    broker = machine.broker
    if broker is None:
        return
    for (topic_id, number), partition in partitions(image):
        where = broker.replicas.disks.current.get(Replica(topic_id, number))
        hosted = where is not None and machine.broker_id in partition.replicas
        if hosted and partition.directory(machine.broker_id) != where:
            yield f"partition {number} of broker {machine.broker_id} is not where the metadata has it"


def gone(image: Image, machine: Machine) -> Iterator[str]:
    """In the metadata a broker leads that has no process."""
    if machine.broker is None:
        for (_, number), partition in partitions(image):
            if partition.leader == machine.broker_id:
                yield f"partition {number}: leader {machine.broker_id} is dead"


def undelivered(image: Image, machine: Machine) -> Iterator[str]:
    """According to the metadata that it has read, a process leads in a failed directory that it has not reported
    (R-LIFE-8)."""
    del image
    broker = machine.broker
    if broker is None or not machine.timed:
        return
    untold = {directory for directory, is_reported in broker.life.offline if not is_reported}
    for replica in broker.replicas.leading:
        if broker.assigned.get(replica) in untold:
            yield f"broker {machine.broker_id} leads partition {replica.partition} where nobody knows of the failure"


def stopping(image: Image, machine: Machine) -> Iterator[str]:
    """A process that was asked to stop still runs."""
    del image
    if machine.broker is not None and machine.broker.life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
        yield f"broker {machine.broker_id} does not stop"


def leaderless(image: Image, machine: Machine) -> Iterator[str]:
    """A process that is not stopping serves an in-sync replica, and the partition has no leader."""
    broker = machine.broker
    if broker is None or broker.life.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
        return
    for (topic_id, number), partition in partitions(image):
        could = machine.broker_id in (partition.isr or partition.eligible_leader_replicas)
        if partition.leader < 0 and could and serves(machine, Replica(topic_id, number)):
            yield f"partition {number} has no leader, though broker {machine.broker_id} could lead"


PROPERTIES: tuple[LeadsTo, ...] = (
    LeadsTo("dead leader", "a leader on a dead disk leads to another or a dead broker", leader_on_dead_disk, True),
    LeadsTo("missing log", "a leader without a log leads to one with a log, another, or none", leader_without_log),
    LeadsTo("fenced", "a fenced broker with a disk that works leads to an unfenced or a dead one", fenced),
    LeadsTo("unassigned", "an unassigned replica of a live broker leads to an assigned one", unassigned),
    LeadsTo("queue", "assignments that wait lead to an empty queue", queued),
    LeadsTo("move", "a move leads to its end", moving),
    LeadsTo("unreported", "a failed directory leads to a registration without it", unreported),
    LeadsTo("misplaced", "a replica that is not where the metadata has it leads to one that is", misplaced),
    LeadsTo("gone leader", "a leader whose process is gone leads to another, or to a process", gone, True),
    LeadsTo("undelivered", "an unreported failure where the broker leads leads to its end", undelivered, True),
    LeadsTo("stopping", "a broker that was asked to stop leads to a dead one", stopping),
    LeadsTo("leaderless", "a replica that is in sync and served leads to a leader", leaderless),
)


class Marks:
    """The truth of each property in each state, as bits; results are cached."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.instances: list[tuple[LeadsTo, str]] = []
        self._bits: dict[tuple[LeadsTo, str], int] = {}
        self._pairs: dict[tuple[int, int], int] = {}

    def of(self, state: tuple[int, ...]) -> int:
        """The bits of a state; bit n is that of ``instances[n]``."""
        bits = 0
        for number in state[1:]:
            key = (state[0], number)
            known = self._pairs.get(key)
            if known is None:
                known = self._pairs[key] = self._pair(*key)
            bits |= known
        return bits

    def _pair(self, controller: int, number: int) -> int:
        image, machine = self.cluster.controller.images[controller], self.cluster.machines.states[number]
        bits = 0
        for each in PROPERTIES:
            if machine.cut and not each.alone:
                continue
            for problem in each.holds(image, machine):
                instance = (each, problem)
                if instance not in self._bits:
                    self._bits[instance] = 1 << len(self.instances)
                    self.instances.append(instance)
                bits |= self._bits[instance]
        return bits
