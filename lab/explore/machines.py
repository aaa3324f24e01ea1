"""Every machine state so far, by number, with the result of each event (R-EXPLORE-3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from jbod_model.broker import process
from jbod_model.broker.assignments import Assignment, GlobalFailure, Replica
from jbod_model.broker.lifecycle import LifecycleState, Shutdown
from jbod_model.formats.records import BrokerFeature
from jbod_model.formats.requests import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Request,
)
from jbod_model.formats.responses import (
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    RequestRefused,
    Response,
)
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles import REFERENCE, SUPPORTED_FEATURES, BrokerRules
from jbod_model.replay.image import Image
from lab.explore import machine as machines
from lab.explore.actions import Action
from lab.explore.bounds import Bounds
from lab.explore.disk_work import events
from lab.explore.machine import NOW, READ, Log, Machine

Answer = Response | RequestRefused | None
"""What a broker receives: an answer, an error, or a timeout."""

FEATURES = tuple(
    BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
    for name, (least, most) in SUPPORTED_FEATURES[REFERENCE].items()
)


class Machines:
    """Machine states by number. Each event on each state is computed once."""

    def __init__(self, rules: BrokerRules, bounds: Bounds, ids: IdTable = KAFKA_IDS) -> None:
        self.rules = rules
        self.bounds = bounds
        self.ids = ids
        self.states: list[Machine] = []
        self._numbers: dict[object, int] = {}
        self._events: dict[tuple[int, object], int] = {}
        self._sent: dict[tuple[int, str], tuple[int, Request | None]] = {}
        self._delivered: dict[tuple[int, int], tuple[tuple[Uuid | None, int], ...]] = {}
        self._options: dict[int, tuple[tuple[Action, int], ...]] = {}
        self._behind: dict[tuple[int, frozenset[Replica]], int] = {}

    def number(self, machine: Machine) -> int:
        """The number of a state."""
        machine = machines.settled(machine)
        key = (machine.broker_id, _key(machine))
        state_number = self._numbers.get(key)
        if state_number is None:
            state_number = len(self.states)
            self._numbers[key] = state_number
            self.states.append(machine)
        return state_number

    def after(self, machine: int, key: object, event: Callable[[Machine], Machine]) -> int:
        """The state after the event with this ``key``."""
        next_machine = self._events.get((machine, key))
        if next_machine is None:
            state = self.states[machine]
            next_machine = self.number(event(state))
            self._events[machine, key] = next_machine
        return next_machine

    # MESSAGES

    def send(self, machine: int, timer: str) -> tuple[int, Request | None]:
        """The state after a timer ("communicate" or "assign") was due, and the request that goes out."""
        machine_and_request = self._sent.get((machine, timer))
        if machine_and_request is None:
            state = self.states[machine]
            broker = state.broker
            assert broker is not None
            if timer == "assign":
                broker = replace(broker, queue=replace(broker.queue, deadline=NOW))
            else:
                broker = replace(broker, life=replace(broker.life, next_communication=NOW))
            broker, actions = process.tick(broker, NOW)
            requests = [_complete(each) for each in actions if not isinstance(each, Shutdown)]
            after = machines.after(state, broker, actions)
            machine_and_request = (self.number(after), requests[0] if requests else None)
            self._sent[machine, timer] = machine_and_request
        return machine_and_request

    def answer(self, machine: int, request: Request, number: int, answer: Answer) -> int:
        """The state after the process received the answer ``number`` to ``request``; None is a timeout."""
        if self.states[machine].broker is None:
            return machine
        return self.after(machine, ("answer", type(request), number), lambda state: _heard(state, request, answer))

    def registered(self, machine: int, *, same_process: bool) -> int:
        """The state after the controller accepted a registration of the process."""
        key = ("registered", same_process)
        return self.after(machine, key, lambda state: machines.superseded(state, same_process=same_process))

    # METADATA

    def deliver(self, machine: int, view: int, image: Image) -> tuple[tuple[Uuid | None, int], ...]:
        """Each possible state after the process applied the newest metadata, with the directory that distinguishes
        it."""
        deliveries = self._delivered.get((machine, view))
        if deliveries is None:
            deliveries = self._deliver(self.states[machine], image)
            self._delivered[machine, view] = deliveries
        return deliveries

    def behind(self, machine: int, changed: frozenset[Replica]) -> int:
        """The state after the metadata of partitions changed."""
        next_machine = self._behind.get((machine, changed))
        if next_machine is None:
            next_machine = self.number(machines.fall_behind(self.states[machine], changed))
            self._behind[machine, changed] = next_machine
        return next_machine

    def _deliver(self, machine: Machine, image: Image) -> tuple[tuple[Uuid | None, int], ...]:
        """Any of several directories may be the emptiest: the directories of the configuration in every order
        (R-EXPLORE-4)."""
        broker = machine.broker
        assert broker is not None
        if broker.metadata_offset == READ and machine.seen == machines.seen_in(image, machine.broker_id):
            return ()
        delivered = machines.deliver(machine, image)
        plain = self.number(delivered)
        if not self.bounds.free_choice or not machines.creates(machine, delivered):
            return ((None, plain),)
        outcomes: dict[int, Uuid | None] = {}
        configured = broker.replicas.disks.configured
        for order in itertools.permutations(configured):
            shuffled = machines.deliver(machines.in_order(machine, order), image)
            outcomes.setdefault(self.number(machines.in_order(shuffled, configured)), order[0])
        if len(outcomes) == 1:
            return ((None, plain),)
        return tuple((directory, outcome) for outcome, directory in outcomes.items())

    # ALONE

    def options(self, machine: int) -> tuple[tuple[Action, int], ...]:
        """The steps of the machine alone, with the state after each."""
        steps = self._options.get(machine)
        if steps is None:
            state = self.states[machine]
            steps = tuple(
                (action, self.number(after)) for action, after in events(state, self.bounds, self.rules, self.ids)
            )
            self._options[machine] = steps
        return steps

    # RECORDS

    def log_of(self, machine: int, replica: Replica) -> Log | None:
        """The log from which the machine's process serves a replica."""
        broker = self.states[machine].broker
        where = None if broker is None else broker.replicas.disks.current.get(replica)
        return None if where is None else (replica, where, False)

    def ended(self, machine: int, log: Log, end: int) -> int:
        """The state with another log end offset."""
        return self.after(machine, ("end", log, end), lambda state: machines.with_end(state, log, end))


def _complete(request: Request) -> Request:
    """The registration with features, which the model of the broker leaves out."""
    return replace(request, features=FEATURES) if isinstance(request, BrokerRegistrationRequest) else request


def _heard(machine: Machine, request: Request, answer: Answer) -> Machine:
    broker = machine.broker
    assert broker is not None
    if isinstance(request, BrokerRegistrationRequest):
        epoch = answer.broker_epoch if isinstance(answer, BrokerRegistrationResponse) else None
        return machines.after(machine, process.answer_registration(broker, epoch, NOW))
    if isinstance(request, BrokerHeartbeatRequest):
        response = answer if isinstance(answer, BrokerHeartbeatResponse) else None
        broker, actions = process.answer_heartbeat(broker, response, NOW)
        return machines.after(machine, broker, actions)
    assert isinstance(request, AssignReplicasToDirsRequest)
    heard: AssignReplicasToDirsResponse | GlobalFailure = GlobalFailure.TIMEOUT
    if isinstance(answer, RequestRefused):
        heard = AssignReplicasToDirsResponse(error_code=answer.code.value)
    elif isinstance(answer, AssignReplicasToDirsResponse):
        heard = answer
    return machines.after(machine, process.answer_assignments(broker, heard, NOW))


def registers(machine: Machine) -> bool:
    """Whether the next communication of the process is a registration."""
    return machine.broker is not None and not machine.broker.life.registered


def lives(machine: Machine) -> bool:
    """Whether a process runs that the controller may know."""
    broker = machine.broker
    if machine.cut:
        return False
    return broker is not None and broker.life.registered and broker.life.state is not LifecycleState.NOT_RUNNING


def _key(machine: Machine) -> object:
    """Everything that distinguishes two machines."""
    broker = machine.broker
    disks_ = (machine.log_dirs, machine.working, machine.stored, machine.clean)
    base = (disks_, machine.wire, machine.ends, machine.spares, machine.cut)
    if broker is None:
        return base
    life, queue, replicas = broker.life, broker.queue, broker.replicas
    disks = replicas.disks
    return (
        base,
        machine.seen,
        (life.log_dirs, life.previous_epoch, life.state, life.epoch, life.ready_to_unfence, life.unfence_asked),
        (life.registered, life.ever_registered, life.in_flight, life.next_at_once, life.shutdown_answered),
        (life.offline, life.next_communication, life.failure_checks, life.overdue),
        (broker.metadata_offset, broker.registration_epoch, broker.published, frozenset(broker.assigned.items())),
        (_waiting(queue.ready), _waiting(queue.in_flight), queue.deadline),
        (disks.configured, disks.unreadable, disks.failed),
        (frozenset(disks.current.items()), frozenset(disks.future.items()), frozenset(disks.preferred.items())),
        (frozenset(replicas.hosted.items()), frozenset(replicas.moves.items()), replicas.leading),
    )


def _waiting(assignments: Mapping[Replica, Assignment]) -> tuple[object, ...]:
    return tuple((each.replica, each.directory, each.reason, each.untold) for each in assignments.values())
