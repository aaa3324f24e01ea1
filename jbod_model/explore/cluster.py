"""What can happen in a small cluster, step by step (R-EXPLORE-1): one controller, machines, and nothing in between.

A step of one broker depends on the controller and on its machine alone, and is computed once for each pair of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.explore.actions import Action
from jbod_model.explore.controller_part import Answered, ControllerPart
from jbod_model.explore.invariants import Breach
from jbod_model.explore.machine import PRESENT, Machine
from jbod_model.explore.machines import Machines, lives, registers
from jbod_model.explore.physical import check_machine, check_pair
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    Request,
    SessionExpired,
)

State = tuple[int, ...]
"""The number of the controller's state, then one for each machine."""


class Outcome(NamedTuple):
    """What a step of one broker leads to: both states after it, the partitions whose metadata changed, the breaches."""

    action: Action
    controller: int
    machine: int
    changed: frozenset[Replica]
    breaches: tuple[Breach, ...]


NOTHING: frozenset[Replica] = frozenset()


class Cluster:
    """The steps between states."""

    def __init__(self, controller: ControllerPart, machines: Machines) -> None:
        self.controller = controller
        self.machines = machines
        self._outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        self._rejoined: dict[tuple[int, int, int, Replica], Outcome | None] = {}
        self._rest: dict[tuple[int, int], tuple[Breach, ...]] = {}

    def steps(self, state: State) -> Iterator[tuple[Action, State, tuple[Breach, ...]]]:
        """Everything that changes a state, the state that follows, and the invariants that break on the way."""
        controller = state[0]
        for i in range(1, len(state)):
            key = (controller, state[i])
            outcomes = self._outcomes.get(key)
            if outcomes is None:
                outcomes = self._outcomes[key] = tuple(self._steps_of(controller, state[i]))
            for outcome in outcomes:
                yield outcome.action, self._state(state, i, outcome), outcome.breaches
        if len(state) > 2:
            for i, outcome in self._rejoins(state):
                yield outcome.action, self._state(state, i, outcome), outcome.breaches

    def breaches(self, state: State) -> tuple[Breach, ...]:
        """Invariants that a state breaks by itself."""
        found = self.controller.breaches[state[0]]
        for number in state[1:]:
            key = (state[0], number)
            rest = self._rest.get(key)
            if rest is None:
                machine = self.machines.states[number]
                rest = check_machine(machine) + check_pair(self.controller.images[state[0]], machine)
                self._rest[key] = rest
            if rest:
                found += rest
        return found

    # STEPS

    def _state(self, state: State, i: int, outcome: Outcome) -> State:
        """The cluster after a step of machine ``i``; the others now are behind where the metadata changed."""
        changed = outcome.changed
        if not changed:
            return (outcome.controller, *state[1:i], outcome.machine, *state[i + 1 :])
        behind = self.machines.behind
        rest = [behind(number, changed) for number in state[1:]]
        rest[i - 1] = outcome.machine
        return (outcome.controller, *rest)

    def _steps_of(self, controller: int, number: int) -> Iterator[Outcome]:
        """The steps of one machine that lead elsewhere."""
        for outcome in self._all_steps_of(controller, number):
            if outcome.controller != controller or outcome.machine != number or outcome.breaches:
                yield outcome

    def _all_steps_of(self, controller: int, number: int) -> Iterator[Outcome]:
        machines = self.machines
        machine = machines.states[number]
        broker_id = machine.broker_id
        for action, after in machines.options(number):
            yield self._alone(action, controller, number, after)
        image = self.controller.images[controller]
        if not image.brokers[broker_id].fenced:
            yield from self._expire(controller, number, machine)
        broker = machine.broker
        if broker is None:
            return
        view = self.controller.view(controller, broker_id)
        for directory, after in machines.deliver(number, view, image):
            yield self._alone(Action("deliver", broker_id, None, directory), controller, number, after)
        if broker.life.next_communication is not None:
            yield self._communicate(controller, number, machine)
        if broker.queue.deadline is not None:
            yield from self._assign(controller, number, broker_id)

    def _alone(self, action: Action, controller: int, before: int, after: int) -> Outcome:
        """A step of the machine alone; a process that ends is no longer the one that is registered."""
        states = self.machines.states
        if states[after].broker is None and states[before].broker is not None:
            controller = self.controller.aged(controller, states[before].broker_id)
        return Outcome(action, controller, after, NOTHING, ())

    def _expire(self, controller: int, number: int, machine: Machine) -> Iterator[Outcome]:
        early = lives(machine)
        if early and not self.machines.bounds.expiry:
            return
        answered = self._ask(controller, SessionExpired(broker_id=machine.broker_id))
        action = Action("expire early" if early else "expire", machine.broker_id)
        yield self._told(action, number, answered)

    def _communicate(self, controller: int, number: int, machine: Machine) -> Outcome:
        """The broker registers or sends a heartbeat, and hears the answer."""
        action = Action("register" if registers(machine) else "heartbeat", machine.broker_id)
        sent, request = self.machines.send(number, "communicate")
        if request is None:
            return self._alone(action, controller, number, sent)
        answered = self._ask(controller, request)
        return self._heard(action, sent, request, answered)

    def _assign(self, controller: int, number: int, broker_id: int) -> Iterator[Outcome]:
        """Everything in the queue is sent; the answer comes, or gets lost."""
        sent, request = self.machines.send(number, "assign")
        action = Action("assign", broker_id)
        if request is None:
            yield self._alone(action, controller, number, sent)
            return
        answered = self._ask(controller, request)
        yield self._heard(action, sent, request, answered)
        lost = self.machines.answer(sent, request, -1, None)
        yield self._told(Action("assign, answer lost", broker_id), lost, answered)

    def _ask(self, controller: int, request: Request) -> Answered:
        return self.controller.ask(controller, self.controller.request(request))

    def _told(self, action: Action, machine: int, answered: Answered) -> Outcome:
        """The controller did something; the broker that asked has not heard of it."""
        if answered.registered:
            machine = self.machines.registered(machine, same_process=answered.same_process)
        if answered.changed:
            machine = self.machines.behind(machine, answered.changed)
        return Outcome(action, answered.state, machine, answered.changed, answered.breaches)

    def _heard(self, action: Action, machine: int, request: Request, answered: Answered) -> Outcome:
        """The controller did something, and the broker that asked has heard the answer."""
        told = self._told(action, machine, answered)
        answer = self.controller.answers[answered.answer]
        after = self.machines.answer(told.machine, request, answered.answer, answer)
        controller = self._alone(action, told.controller, told.machine, after).controller
        return told._replace(controller=controller, machine=after)

    # IN-SYNC SETS

    def _rejoins(self, state: State) -> Iterator[tuple[int, Outcome]]:
        """Leaders take replicas back into their in-sync sets where a broker serves them again."""
        image = self.controller.images[state[0]]
        for topic_id, topic in image.topics.items():
            for number, partition in topic.partitions.items():
                leader = partition.leader
                if leader < 0 or len(partition.isr) == len(partition.replicas):
                    continue
                replica = Replica(topic_id, number)
                for broker_id in partition.replicas:
                    if broker_id in partition.isr:
                        continue
                    key = (state[0], state[leader], state[broker_id], replica)
                    if key not in self._rejoined:
                        self._rejoined[key] = self._rejoin(*key)
                    outcome = self._rejoined[key]
                    if outcome is not None:
                        yield broker_id, outcome

    def _rejoin(self, controller: int, leader: int, follower: int, replica: Replica) -> Outcome | None:
        """A leader that knows the partition as it is asks for a follower that serves it."""
        image = self.controller.images[controller]
        partition = image.topics[replica.topic_id].partitions[replica.partition]
        leading, following = self.machines.states[leader], self.machines.states[follower]
        knows = any(entry.replica == replica and not entry.behind for entry in leading.seen)
        if not knows or not serves(leading, replica) or not serves(following, replica):
            return None
        if image.brokers[following.broker_id].fenced:
            return None
        isr = (*partition.isr, following.broker_id)
        answered = self._ask(controller, _isr_change(replica, isr, leading.broker_id))
        if answered.state == controller and not answered.breaches:
            return None
        return self._told(Action("rejoin", following.broker_id, replica), follower, answered)


def serves(machine: Machine, replica: Replica) -> bool:
    """Whether a process runs that has the replica's log in a directory that works."""
    return machine.broker is not None and replica in machine.broker.replicas.disks.current


def _isr_change(replica: Replica, isr: tuple[int, ...], leader: int) -> AlterPartitionRequest:
    change = AlterPartitionPartition(
        partition_index=replica.partition,
        new_isr_with_epochs=tuple(BrokerState(broker_id=b, broker_epoch=b) for b in isr),
        partition_epoch=PRESENT,
    )
    topic = AlterPartitionTopic(topic_id=replica.topic_id, partitions=(change,))
    return AlterPartitionRequest(broker_id=leader, broker_epoch=leader, topics=(topic,))
