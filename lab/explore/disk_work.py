"""Steps of a machine alone: faults, operators, future logs that catch up, checks that are due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jbod_model.broker import process
from jbod_model.broker.assignments import Replica
from jbod_model.broker.disks import MoveState
from jbod_model.broker.process import Broker
from jbod_model.broker.replicas import Hosted
from jbod_model.ids import IdTable, Uuid
from jbod_model.profiles import BrokerRules
from lab.explore import machine as machines
from lab.explore.actions import Action
from lab.explore.bounds import Bounds
from lab.explore.machine import FAR, NOW, Machine

Event = tuple[Action, Machine]


def events(machine: Machine, bounds: Bounds, rules: BrokerRules, ids: IdTable) -> Iterator[Event]:
    """Every step, with the machine after it."""
    if bounds.failures:
        for directory in machine.log_dirs:
            if directory in machine.working:
                yield Action("fail", machine.broker_id, directory=directory), machines.fail(machine, directory)
    broker = machine.broker
    if broker is None:
        if machine.working & set(machine.log_dirs):
            yield Action("start", machine.broker_id), machines.start(machine, rules, ids)
        yield from _disk_work(machine, bounds)
        return
    if bounds.crashes:
        yield Action("crash", machine.broker_id), machines.stop(machine)
    if bounds.cut and not machine.cut:
        yield Action("cut off", machine.broker_id), replace(machine, cut=True, wire=())
    yield from _copies(machine, broker)
    if bounds.moves or bounds.wishes:
        yield from _moves(machine, broker, wishes=bounds.wishes)
    if bounds.timeouts:
        yield from _checks(machine, broker)
    if bounds.shutdown:
        stopping, actions = process.begin_shutdown(broker, NOW)
        yield Action("stop", machine.broker_id), machines.after(machine, stopping, actions)


def _copies(machine: Machine, broker: Broker) -> Iterator[Event]:
    """Future logs catch up with the current ones."""
    disks = broker.replicas.disks
    for replica, move in broker.replicas.moves.items():
        if replica in disks.current and replica in disks.future and move.state is not MoveState.EFFECTIVE:
            end = machines.end_of(machine, (replica, disks.current[replica], False))
            copied = machines.with_end(machine, (replica, disks.future[replica], True), end)
            yield (
                Action("catch up", machine.broker_id, replica),
                machines.after(copied, process.catch_up(broker, replica, NOW)),
            )


def _moves(machine: Machine, broker: Broker, *, wishes: bool) -> Iterator[Event]:
    """Every replica moves to every other directory; a replica that is moving can also be sent back.

    With ``wishes`` also moves that are refused: while a directory is offline, and of replicas that the broker does not
    host although they are assigned to it.
    """
    disks = broker.replicas.disks
    if disks.has_offline and not wishes:
        return
    for replica in sorted({*broker.replicas.hosted, *(broker.assigned if wishes else ())}):
        if broker.replicas.hosted.get(replica) is not Hosted.ONLINE and not wishes:
            continue
        current, future = disks.current.get(replica), disks.future.get(replica)
        for directory in disks.configured:
            if directory != future and (wishes or directory != current or future is not None):
                moved, _ = process.alter_replica_log_dir(broker, replica, directory, NOW)
                yield Action("move", machine.broker_id, replica, directory), machines.after(machine, moved)


def _checks(machine: Machine, broker: Broker) -> Iterator[Event]:
    """Each check whether a failure, or an assignment into a failed directory, was reported in time."""
    life = broker.life
    for check in life.failure_checks:
        others = tuple(each for each in life.failure_checks if each != check)
        due = replace(broker, life=replace(life, failure_checks=((NOW, check[1]), *others)))
        ticked, actions = process.tick(due, NOW)
        action = Action("failure timeout", machine.broker_id, directory=check[1])
        yield action, machines.after(machine, ticked, actions)
    first = min(broker.timers, default=FAR)
    if first < FAR:
        ticked, actions = process.tick(broker, first)
        yield Action("assignment timeout", machine.broker_id), machines.after(machine, ticked, actions)


# DISKS


def _disk_work(machine: Machine, bounds: Bounds) -> Iterator[Event]:
    """Disks are repaired, replaced, removed and added while no process runs."""
    broker_id = machine.broker_id
    dead = [directory for directory in machine.log_dirs if directory not in machine.working]
    spare = next((each for each in machine.spares if each not in machine.log_dirs), None)
    for directory in dead:
        if bounds.repair:
            working = machine.working | {directory}
            yield Action("repair", broker_id, directory=directory), replace(machine, working=working)
        without = _without(machine, directory)
        if bounds.replace and spare is not None:
            yield Action("replace", broker_id, directory=directory), _with(without, spare)
        if bounds.remove and len(machine.log_dirs) > 1:
            yield Action("remove", broker_id, directory=directory), without
    if spare is not None and len(machine.log_dirs) < bounds.directories + bounds.add:
        yield Action("add", broker_id, directory=spare), _with(machine, spare)


def _without(machine: Machine, directory: Uuid) -> Machine:
    """The machine without a directory, and the content of its disk."""
    return replace(
        machine,
        log_dirs=tuple(each for each in machine.log_dirs if each != directory),
        working=machine.working - {directory},
        stored=frozenset(log for log in machine.stored if log[1] != directory),
        ends=frozenset(each for each in machine.ends if each[0][1] != directory),
        spares=(*(each for each in machine.spares if each != directory), directory),
    )


def _with(machine: Machine, directory: Uuid) -> Machine:
    """The machine with one more, empty directory."""
    log_dirs = tuple(sorted((*machine.log_dirs, directory)))
    return replace(machine, log_dirs=log_dirs, working=machine.working | {directory})


def lie(machine: Machine, replica: Replica) -> frozenset[Uuid]:
    """The configured directories whose disks hold a log of the replica (not a future one), whether or not a process
    knows it."""
    logs = machine.stored | machines.in_hand(machine)
    return frozenset(where for log, where, future in logs if log == replica and not future)
