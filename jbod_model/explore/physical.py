"""What must hold of disks and logs as they are, whatever anybody believes (R-INV-31, R-INV-36, R-INV-37).

The logs on a machine are those that its process has in hand and those stored where none has.
"""

from __future__ import annotations

from collections.abc import Iterator

from jbod_model.broker.assignments import Replica
from jbod_model.explore.invariants import Breach
from jbod_model.explore.machine import READ, Machine, seen_in
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image, Partition


def dead_log(machine: Machine, replica: Replica) -> Uuid | None:
    """The directory of the replica's log where it lies on a disk that is dead, and on none that works."""
    if machine.broker is not None and replica in machine.broker.replicas.disks.current:
        return None
    lying = [where for log, where, future in machine.stored if log == replica and not future]
    if any(where in machine.working for where in lying):
        return None
    return min((where for where in lying if where not in machine.working), default=None)


def on_dead_disk(image: Image, machine: Machine) -> Iterator[tuple[Replica, Partition]]:
    """The partitions that the metadata has a running broker lead, whose log there lies on a dead disk."""
    if machine.broker is None:
        return
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            replica = Replica(topic_id, number)
            if partition.leader == machine.broker_id and dead_log(machine, replica) is not None:
                yield replica, partition


def at_rest(image: Image, machine: Machine) -> bool:
    """Whether the broker has nothing left to do or to say: registered, all read, all reported."""
    broker = machine.broker
    if broker is None or not broker.life.registered or broker.life.in_flight:
        return False
    done = broker.metadata_offset == READ and machine.seen == seen_in(image, machine.broker_id)
    if not done or broker.queue.pending or broker.replicas.moves:
        return False
    registered = image.brokers[machine.broker_id]
    return not registered.fenced and not set(registered.directories) & broker.replicas.disks.failed


def check_machine(machine: Machine) -> tuple[Breach, ...]:
    """Breaches of one machine: R-INV-37."""
    return tuple(Breach(37, problem) for problem in one_log_per_replica(machine))


def check_pair(image: Image, machine: Machine) -> tuple[Breach, ...]:
    """Breaches of a machine and the metadata: R-INV-31, R-INV-36."""
    if not at_rest(image, machine):
        return ()
    found = [Breach(31, problem) for problem in replicas_are_where_they_are_said(image, machine)]
    found += [
        Breach(36, f"partition {replica.partition}: leader {machine.broker_id} is on a dead disk, and nobody tells")
        for replica, _ in on_dead_disk(image, machine)
    ]
    return tuple(found)


def replicas_are_where_they_are_said(image: Image, machine: Machine) -> Iterator[str]:
    """R-INV-31: a broker with nothing left to do has its replicas where the metadata says."""
    assert machine.broker is not None
    disks = machine.broker.replicas.disks
    for topic_id, topic in image.topics.items():
        for number, partition in topic.partitions.items():
            replica = Replica(topic_id, number)
            if machine.broker_id in partition.replicas and replica in disks.current:
                if disks.current[replica] != partition.directory(machine.broker_id):
                    yield f"broker {machine.broker_id}: partition {number} is elsewhere, and nobody tells"


def one_log_per_replica(machine: Machine) -> Iterator[str]:
    """R-INV-37: a log is not created again while the one before lies on a disk of the broker."""
    broker = machine.broker
    if broker is None:
        return
    stored = {replica for replica, where, future in machine.stored if not future and where in machine.log_dirs}
    for replica in sorted(stored & broker.replicas.disks.current.keys()):
        yield f"broker {machine.broker_id}: partition {replica.partition} was created again, its log is on a dead disk"
