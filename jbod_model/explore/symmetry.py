"""Directories of a broker that differ only in their names are one (R-EXPLORE-4).

A state stands for all states with the directories of each broker renamed. The one that is kept has the directories
in the order of what is known about each: whether it works, is registered, reported, assigned, and what lies in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from jbod_model.broker.moves import Move
from jbod_model.broker.replicas import Report
from jbod_model.explore.broker_part import Machine
from jbod_model.ids import Uuid
from jbod_model.replay.image import Image

Names = Mapping[Uuid, Uuid]


def image_marks(image: Image, directory: Uuid) -> tuple[object, ...]:
    """What the metadata says about a directory."""
    registered = any(directory in broker.directories for broker in image.brokers.values())
    assigned = [directory in p.directories for topic in image.topics.values() for p in topic.partitions.values()]
    return registered, *assigned


def machine_marks(machine: Machine, directory: Uuid) -> tuple[object, ...]:
    """What the broker knows about a directory, and what its disk holds."""
    marks: list[object] = [
        directory not in machine.working,
        sorted((replica, future) for replica, where, future in machine.stored if where == directory),
        directory in machine.registered,
        machine.offline.index(directory) if directory in machine.offline else -1,
        [report.replica for report in machine.queue if report.directory == directory],
        [entry[0] for entry in machine.view or () if entry[1] == directory],
    ]
    if machine.process is not None:
        disks = machine.process.disks
        marks += [
            directory in disks.failed,
            *(
                sorted(replica for replica, where in logs.items() if where == directory)
                for logs in (disks.current, disks.future, disks.preferred)
            ),
            sorted((r, m.state.value) for r, m in machine.process.moves.items() if m.original == directory),
            sorted((r, m.state.value) for r, m in machine.process.moves.items() if m.target == directory),
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
    """The machine with its directories renamed."""
    to = _renaming(names)
    process = machine.process
    if process is not None:
        disks = process.disks
        process = replace(
            process,
            disks=replace(
                disks,
                configured=tuple(sorted(map(to, disks.configured))),
                failed=frozenset(map(to, disks.failed)),
                current={replica: to(where) for replica, where in disks.current.items()},
                future={replica: to(where) for replica, where in disks.future.items()},
                preferred={replica: to(where) for replica, where in disks.preferred.items()},
            ),
            moves={r: Move(to(m.original), to(m.target), m.state) for r, m in process.moves.items()},
        )
    return replace(
        machine,
        working=frozenset(map(to, machine.working)),
        stored=frozenset((replica, to(where), future) for replica, where, future in machine.stored),
        process=process,
        registered=tuple(sorted(map(to, machine.registered))),
        offline=tuple(map(to, machine.offline)),
        queue=tuple(Report(report.replica, to(report.directory), report.reason) for report in machine.queue),
        view=None if machine.view is None else tuple((e[0], to(e[1]), *e[2:]) for e in machine.view),
    )


def _renaming(names: Names) -> Callable[[Uuid], Uuid]:
    return lambda directory: names.get(directory, directory)
