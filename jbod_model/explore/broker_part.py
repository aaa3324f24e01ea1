"""A broker as the explorer sees it: the untimed half of its model, with its disks (R-EXPLORE-3).

Time is left out: what a timer would start may happen at any moment instead. What the broker does with its replicas,
moves and failures is :mod:`jbod_model.broker.replicas` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jbod_model.broker import replicas
from jbod_model.broker.assignments import Reason, Replica
from jbod_model.broker.disks import Disks
from jbod_model.broker.replicas import ReplicaChange, Replicas, Report
from jbod_model.explore.controller_part import View
from jbod_model.ids import IdTable, Uuid
from jbod_model.profiles.broker_rules import BrokerRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A broker's disks and, while it runs, its process.

    ``stored`` are the logs on its disks as (replica, directory, future) where no process has them in hand: all of
    them without one, those of failed disks with one. ``registered`` is what the process registers with, ``accepted``
    whether the controller took it. ``queue`` are assignments to report, the newest per replica.
    """

    broker_id: int
    directories: tuple[Uuid, ...]
    working: frozenset[Uuid]
    stored: frozenset[tuple[Replica, Uuid, bool]] = frozenset()
    process: Replicas | None = None
    registered: tuple[Uuid, ...] = ()
    accepted: bool = False
    offline: tuple[Uuid, ...] = ()
    queue: tuple[Report, ...] = ()
    view: View | None = None
    asked_to_unfence: bool = False

    @property
    def wants_fence(self) -> bool:
        """As :func:`jbod_model.broker.lifecycle.heartbeat_request` has it (R-LIFE-3, R-LIFE-9)."""
        if self.view is None or self.process is None:
            return True
        waits = self.process.rules.fence_until_assigned and len(self.registered) > 1 and bool(self.queue)
        return waits and not self.asked_to_unfence


def start(machine: Machine, rules: BrokerRules, ids: IdTable) -> Machine:
    """A process on the disks that work."""
    configured = tuple(d for d in machine.directories if d in machine.working)
    on_disk: dict[bool, dict[Replica, Uuid]] = {True: {}, False: {}}
    kept = set()
    for replica, directory, future in machine.stored:
        if directory in machine.working:
            on_disk[future][replica] = directory
        else:
            kept.add((replica, directory, future))
    disks = Disks(
        configured=configured,
        unreadable=len(machine.directories) - len(configured),
        current=on_disk[False],
        future=on_disk[True],
    )
    return replace(
        machine,
        stored=frozenset(kept),
        process=Replicas(disks=disks, rules=rules, ids=ids),
        registered=configured,
        accepted=False,
        offline=(),
        queue=(),
        view=None,
        asked_to_unfence=False,
    )


def accept(machine: Machine) -> Machine:
    """The controller took the registration."""
    return replace(machine, accepted=True)


def stop(machine: Machine) -> Machine:
    """The process is gone; its logs are on the disks."""
    return replace(
        machine,
        stored=machine.stored | _logs(machine.process, machine.working),
        process=None,
        registered=(),
        accepted=False,
        offline=(),
        queue=(),
        view=None,
        asked_to_unfence=False,
    )


def fail(machine: Machine, directory: Uuid) -> Machine:
    """A disk fails; a process without any left halts."""
    machine = replace(machine, working=machine.working - {directory})
    if machine.process is None or directory not in machine.process.disks.online:
        return machine
    lost = {log for log in _logs(machine.process, machine.working | {directory}) if log[1] == directory}
    process, reports = replicas.fail_directory(machine.process, directory)
    machine = replace(
        machine,
        stored=machine.stored | lost,
        process=process,
        offline=(*machine.offline, directory),
        queue=_queued(machine.queue, reports),
    )
    return machine if process.disks.online else stop(machine)


def deliver(machine: Machine, view: View) -> Machine:
    """The process applies the newest metadata."""
    assert machine.process is not None
    assigned = {replica: directory for replica, directory, _, _ in view}
    before = {entry[0]: entry for entry in machine.view or ()}
    changes = []
    for entry in view:
        replica, directory, leader, _ = entry
        old = before.get(replica)
        if old != entry:
            listed = None if old is not None and old[1] == directory else directory
            changes.append(ReplicaChange(replica, leader == machine.broker_id, listed))
    process = machine.process
    if machine.view is None:
        process = replicas.recover_future_logs(process, assigned)
    process, reports = replicas.apply_metadata(
        process, changes, [replica for replica in before if replica not in assigned]
    )
    return replace(machine, process=process, view=view, queue=_queued(machine.queue, reports))


def move(machine: Machine, replica: Replica, directory: Uuid) -> Machine:
    """AlterReplicaLogDirs."""
    assert machine.process is not None
    process, reports, _ = replicas.alter_replica_log_dir(machine.process, replica, directory)
    return replace(machine, process=process, queue=_queued(machine.queue, reports))


def catch_up(machine: Machine, replica: Replica) -> Machine:
    """The future log of a move has caught up."""
    assert machine.process is not None
    process, reports = replicas.catch_up(machine.process, replica)
    return replace(machine, process=process, queue=_queued(machine.queue, reports))


def take_answer(machine: Machine, accepted: Mapping[Replica, Uuid]) -> Machine:
    """The controller accepted assignments: they leave the queue, and promotions are confirmed."""
    process = machine.process
    assert process is not None
    kept = []
    for report in machine.queue:
        if accepted.get(report.replica) != report.directory:
            kept.append(report)
        elif report.reason is Reason.PROMOTION:
            process = replicas.confirm(process, report.replica, report.directory)
    return replace(machine, process=process, queue=tuple(kept))


def key(machine: Machine) -> object:
    """Everything that tells two machines apart."""
    process = machine.process
    if process is None:
        return machine.broker_id, machine.working, machine.stored
    disks = process.disks
    return (
        machine.broker_id,
        machine.working,
        machine.stored,
        machine.registered,
        machine.accepted,
        machine.offline,
        machine.queue,
        machine.view,
        machine.asked_to_unfence,
        disks.unreadable,
        disks.failed,
        frozenset(disks.current.items()),
        frozenset(disks.future.items()),
        frozenset(disks.preferred.items()),
        frozenset(process.hosted.items()),
        frozenset(process.moves.items()),
        process.leading,
    )


def _logs(process: Replicas | None, working: frozenset[Uuid]) -> frozenset[tuple[Replica, Uuid, bool]]:
    if process is None:
        return frozenset()
    logs = [(replica, where, False) for replica, where in process.disks.current.items()]
    logs += [(replica, where, True) for replica, where in process.disks.future.items()]
    return frozenset(log for log in logs if log[1] in working)


def _queued(queue: tuple[Report, ...], reports: tuple[Report, ...]) -> tuple[Report, ...]:
    """A newer report of a replica takes the place of an older one (R-QUEUE-1)."""
    merged = {report.replica: report for report in (*queue, *reports)}
    return tuple(merged[replica] for replica in sorted(merged))


def ask_to_unfence(machine: Machine) -> Machine:
    """The process has sent a heartbeat that does not want to be fenced."""
    return machine if machine.asked_to_unfence else replace(machine, asked_to_unfence=True)
