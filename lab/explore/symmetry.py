"""Directories of a broker that differ only in their names are interchangeable (R-EXPLORE-4).

A state stands for all states in which the directories of each broker are renamed. The kept state has the directories in
the order of their marks: whether each works, is registered, reported or assigned, and what it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from jbod_model.broker.disks import ReplicaMove
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image
from lab.explore.machine import Machine

Names = Mapping[Uuid, Uuid]


def image_marks(image: Image, directory: Uuid) -> tuple[object, ...]:
    """What the metadata says about a directory."""
    registered = any(directory in broker.directories for broker in image.brokers.values())
    assigned = [directory in p.directories for topic in image.topics.values() for p in topic.partitions.values()]
    return registered, *assigned


def machine_marks(machine: Machine, directory: Uuid) -> tuple[object, ...]:
    """What a broker knows about a directory, and the content of its disk."""
    seen = tuple(directory in (entry.directories or ()) for entry in machine.seen)
    if directory not in machine.log_dirs:
        return seen
    marks: list[object] = [
        seen,
        directory not in machine.working,
        sorted((replica, future) for replica, where, future in machine.stored if where == directory),
        sorted((replica, future, end) for (replica, where, future), end in machine.ends if where == directory),
    ]
    if machine.broker is not None:
        broker = machine.broker
        disks, life = broker.replicas.disks, broker.life
        waiting = (*broker.queue.ready.values(), *broker.queue.in_flight.values())
        marks += [
            directory in life.log_dirs,
            [reported for known, reported in life.offline if known == directory],
            directory in life.overdue,
            [due for due, known in life.failure_checks if known == directory],
            sorted((each.replica, each.reason.value, each.untold) for each in waiting if each.directory == directory),
            sorted(replica for replica, where in broker.assigned.items() if where == directory),
            directory in disks.failed,
            *(
                sorted(replica for replica, where in logs.items() if where == directory)
                for logs in (disks.current, disks.future, disks.preferred)
            ),
            sorted((r, m.state.value) for r, m in broker.replicas.moves.items() if m.original == directory),
            sorted((r, m.state.value) for r, m in broker.replicas.moves.items() if m.target == directory),
        ]
    return tuple(marks)


def rename_image(image: Image, names: Names) -> Image:
    """The metadata with directories renamed."""
    to = _renaming(names)
    brokers = {
        broker_id: replace(broker, directories=tuple(sorted(map(to, broker.directories))))
        for broker_id, broker in image.brokers.items()
    }
    topics = {
        topic_id: replace(
            topic,
            partitions={
                number: replace(partition, directories=tuple(map(to, partition.directories)))
                for number, partition in topic.partitions.items()
            },
        )
        for topic_id, topic in image.topics.items()
    }
    return replace(image, brokers=brokers, topics=topics)


def rename_machine(machine: Machine, names: Names) -> Machine:
    """The machine with directories renamed, its own or those of another broker."""
    to = _renaming(names)
    broker = machine.broker
    if broker is not None:
        disks, life, queue = broker.replicas.disks, broker.life, broker.queue
        renamed = replace(
            disks,
            configured=tuple(sorted(map(to, disks.configured))),
            failed=frozenset(map(to, disks.failed)),
            current={replica: to(where) for replica, where in disks.current.items()},
            future={replica: to(where) for replica, where in disks.future.items()},
            preferred={replica: to(where) for replica, where in disks.preferred.items()},
        )
        broker = replace(
            broker,
            life=replace(
                life,
                log_dirs=tuple(sorted(map(to, life.log_dirs))),
                offline=tuple(sorted((to(directory), reported) for directory, reported in life.offline)),
                overdue=frozenset(map(to, life.overdue)),
                failure_checks=tuple(sorted((due, to(directory)) for due, directory in life.failure_checks)),
            ),
            queue=replace(
                queue,
                ready={r: replace(each, directory=to(each.directory)) for r, each in queue.ready.items()},
                in_flight={r: replace(each, directory=to(each.directory)) for r, each in queue.in_flight.items()},
            ),
            replicas=replace(
                broker.replicas,
                disks=renamed,
                moves={r: ReplicaMove(to(m.original), to(m.target), m.state) for r, m in broker.replicas.moves.items()},
            ),
            assigned={replica: to(directory) for replica, directory in broker.assigned.items()},
        )
    return replace(
        machine,
        log_dirs=tuple(sorted(map(to, machine.log_dirs))),
        working=frozenset(map(to, machine.working)),
        stored=frozenset((replica, to(where), future) for replica, where, future in machine.stored),
        ends=frozenset(((replica, to(where), future), end) for (replica, where, future), end in machine.ends),
        broker=broker,
        seen=tuple(
            entry._replace(directories=None if entry.directories is None else tuple(map(to, entry.directories)))
            for entry in machine.seen
        ),
    )


def _renaming(names: Names) -> Callable[[Uuid], Uuid]:
    return lambda directory: names.get(directory, directory)
