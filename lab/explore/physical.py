"""The invariants of the disks and logs themselves, whatever the metadata says (R-INV-31, R-INV-36 to R-INV-40).

The logs of a machine are those that its process has open and those that no process has open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jbod_model.broker.assignments import Replica
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from lab.explore.controller_part import Metadata
from lab.explore.invariants import Breach, partitions
from lab.explore.machine import READ, Machine, end_of, seen_in


def dead_log(machine: Machine, replica: Replica) -> Uuid | None:
    """The directory of the replica's log if the log lies on a dead disk and on no working one."""
    if machine.broker is not None and replica in machine.broker.replicas.disks.current:
        return None
    lying = [where for log, where, future in machine.stored if log == replica and not future]
    if any(where in machine.working for where in lying):
        return None
    return min((where for where in lying if where not in machine.working), default=None)


def led_from_dead_disks(image: Image, machine: Machine) -> Iterator[Replica]:
    """The partitions that a running broker leads according to the metadata, and whose log lies on a dead disk."""
    if machine.broker is not None:
        for (topic_id, number), partition in partitions(image):
            replica = Replica(topic_id, number)
            if partition.leader == machine.broker_id and dead_log(machine, replica) is not None:
                yield replica


def at_rest(image: Image, machine: Machine) -> bool:
    """Whether the broker has nothing left to do: it is registered, has read all metadata and reported everything."""
    broker = machine.broker
    if broker is None or not broker.life.registered or broker.life.in_flight or machine.wire:
        return False
    done = broker.metadata_offset == READ and machine.seen == seen_in(image, machine.broker_id)
    if not done or broker.queue.pending or broker.replicas.moves:
        return False
    registered = image.brokers[machine.broker_id]
    return not registered.fenced and not set(registered.directories) & broker.replicas.disks.failed


# STATES


def check_pair(image: Image, machine: Machine) -> tuple[Breach, ...]:
    """Breaches of a machine and the metadata: R-INV-31, R-INV-36."""
    if not at_rest(image, machine):
        return ()
    breaches = [Breach(31, problem) for problem in replicas_are_where_they_are_said(image, machine)]
    breaches += [
        Breach(36, f"partition {replica.partition}: leader {machine.broker_id} is on a dead disk, and nobody tells")
        for replica in led_from_dead_disks(image, machine)
    ]
    return tuple(breaches)


def replicas_are_where_they_are_said(image: Image, machine: Machine) -> Iterator[str]:
    """R-INV-31: a broker with nothing left to do has exactly its replicas, in the directories that the metadata
    says."""
    assert machine.broker is not None
    current = machine.broker.replicas.disks.current
    for (topic_id, number), each in partitions(image):
        replica = Replica(topic_id, number)
        hosted = machine.broker_id in each.replicas and replica in current
        if hosted and current[replica] != each.directory(machine.broker_id):
            yield f"broker {machine.broker_id}: partition {number} is elsewhere, and nobody tells"
    for replica in current:
        partition = image.partition(replica.topic_id, replica.partition)
        if partition is None or machine.broker_id not in partition.replicas:
            yield f"broker {machine.broker_id}: partition {replica.partition} is not its any more, and its log stays"


def check_records(metadata: Metadata, machines: Sequence[Machine], *, thrown_away: bool) -> tuple[Breach, ...]:
    """R-INV-38: a leader that serves has every acknowledged record.

    If operators discard disks (``thrown_away``), it has every acknowledged record that a disk of the cluster still has.
    """
    breaches = []
    for (topic_id, number), partition in partitions(metadata.image):
        replica = Replica(topic_id, number)
        acknowledged = metadata.acknowledged.get(replica, 0)
        leader = next((each for each in machines if each.broker_id == partition.leader), None)
        broker = None if leader is None else leader.broker
        if leader is None or broker is None or replica not in broker.replicas.disks.current:
            continue
        end = end_of(leader, (replica, broker.replicas.disks.current[replica], False))
        kept = max((end for each in machines for log, end in each.ends if log[0] == replica), default=0)
        if end < (min(acknowledged, kept) if thrown_away else acknowledged):
            breaches.append(Breach(38, f"partition {number}: leader {leader.broker_id} lacks acknowledged records"))
    return tuple(breaches)


# STEPS


def check_delivery(image: Image, before: Machine, after: Machine) -> tuple[Breach, ...]:
    """R-INV-37: the log of an assigned replica is not created while a disk of the broker holds one.

    By the KIP and by Kafka, a replica that is unassigned, or assigned to a working directory, is created whatever the
    other disks hold (R-DECIDE-1, R-DECIDE-5).
    """
    if before.broker is None or after.broker is None:
        return ()
    breaches = []
    for replica in after.broker.replicas.disks.current.keys() - before.broker.replicas.disks.current.keys():
        topic = image.topics.get(replica.topic_id)
        if topic is None or replica in before.broker.replicas.disks.future:
            continue
        assigned = topic.partitions[replica.partition].directory(after.broker_id)
        lies = any(log == replica and not future and where in after.log_dirs for log, where, future in before.stored)
        if lies and assigned != image.ids.unassigned and assigned not in before.broker.replicas.disks.online:
            problem = f"broker {after.broker_id}: partition {replica.partition} is created again, its log is on a disk"
            breaches.append(Breach(37, problem))
    return tuple(breaches)


def check_move(before: Machine, after: Machine) -> tuple[Breach, ...]:
    """R-INV-40: no future log is created while a directory is offline: there may be one in that directory."""
    if before.broker is None or after.broker is None or not before.broker.replicas.disks.has_offline:
        return ()
    return tuple(
        Breach(40, f"broker {after.broker_id}: a copy of partition {replica.partition} begins beside an offline disk")
        for replica in after.broker.replicas.disks.future.keys() - before.broker.replicas.disks.future.keys()
    )


def check_swap(image: Image, before: Machine, after: Machine) -> tuple[Breach, ...]:
    """R-INV-39: a move swaps only if the metadata has its target."""
    if before.broker is None or after.broker is None:
        return ()
    breaches = []
    for replica, move in before.broker.replicas.moves.items():
        partition = image.partition(replica.topic_id, replica.partition)
        if partition is None or before.broker_id not in partition.replicas:
            continue
        swapped = after.broker.replicas.disks.current.get(replica) == move.target != move.original
        if swapped and partition.directory(before.broker_id) != move.target:
            problem = f"broker {before.broker_id}: partition {replica.partition} swaps before the controller knows"
            breaches.append(Breach(39, problem))
    return tuple(breaches)
