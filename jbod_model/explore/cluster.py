"""The steps of a small cluster (R-EXPLORE-1): one controller, machines, and the messages between them.

A step of one broker depends only on the controller and on its machine, so it is computed once for each pair of states.
"""

from __future__ import annotations

from collections.abc import Iterator

from jbod_model.broker.assignments import Replica
from jbod_model.explore import machine as machines
from jbod_model.explore.actions import Action
from jbod_model.explore.controller_part import ControllerPart
from jbod_model.explore.exchanges import Exchanges, Outcome
from jbod_model.explore.invariants import Breach
from jbod_model.explore.machine import PRESENT, Machine
from jbod_model.explore.machines import Machines, lives
from jbod_model.explore.operators import Operators
from jbod_model.explore.physical import check_delivery, check_move, check_pair, check_records, check_swap
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    SessionExpired,
)

State = tuple[int, ...]
"""The number of the controller's state, then the number of each machine's state."""

IsrChange = tuple[int, int, Replica, bool]
"""The leader, the broker that it adds to the in-sync set or removes from it, the partition, and whether it adds."""

Step = tuple[Action, State, tuple[Breach, ...]]


class Cluster:
    """The steps between states."""

    def __init__(self, controller: ControllerPart, machines_: Machines) -> None:
        self.controller = controller
        self.machines = machines_
        self.exchanges = Exchanges(controller, machines_)
        self.operators = Operators(controller, machines_)
        bounds = machines_.bounds
        self._operated = bounds.failover or bounds.delete or bounds.reassign or bool(bounds.records)
        self._outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        self._isr: dict[tuple[int, int, int, int], tuple[Outcome, int] | None] = {}
        self._changes: dict[int, tuple[IsrChange, ...]] = {}
        self._pairs: dict[tuple[int, int], tuple[Breach, ...]] = {}

    def steps(self, state: State) -> Iterator[Step]:
        """Every action that changes a state, with the next state and the invariants that the step breaks."""
        controller = state[0]
        for i in range(1, len(state)):
            key = (controller, state[i])
            outcomes = self._outcomes.get(key)
            if outcomes is None:
                outcomes = self._outcomes[key] = tuple(self._steps_of(controller, state[i]))
            for outcome in outcomes:
                yield outcome.action, self._state(state, i, outcome), outcome.breaches
        if len(state) > 2 or self.machines.bounds.shrink:
            yield from self._in_sync_sets(state)
        if self._operated:
            for action, after, breaches in self.operators.steps(state):
                if after != state or breaches:
                    yield action, after, breaches

    def breaches(self, state: State) -> tuple[Breach, ...]:
        """Invariants that a state breaks by itself."""
        found = self.controller.breaches[state[0]]
        for number in state[1:]:
            key = (state[0], number)
            broken = self._pairs.get(key)
            if broken is None:
                broken = check_pair(self.controller.images[state[0]], self.machines.states[number])
                self._pairs[key] = broken
            if broken:
                found += broken
        if self.machines.bounds.records:
            bounds, parts = self.machines.bounds, [self.machines.states[number] for number in state[1:]]
            thrown_away = bounds.replace or bounds.remove
            found += check_records(self.controller.states[state[0]], parts, thrown_away=thrown_away)
        return found

    # STEPS

    def _state(self, state: State, i: int, outcome: Outcome) -> State:
        """The cluster after a step of machine ``i``. If the metadata changed, the other machines are now behind."""
        changed = outcome.changed
        if not changed:
            return (outcome.controller, *state[1:i], outcome.machine, *state[i + 1 :])
        behind = self.machines.behind
        rest = [behind(number, changed) for number in state[1:]]
        rest[i - 1] = outcome.machine
        return (outcome.controller, *rest)

    def _steps_of(self, controller: int, number: int) -> Iterator[Outcome]:
        """The steps of one machine that change the state."""
        for outcome in self._all_steps_of(controller, number):
            if outcome.controller != controller or outcome.machine != number or outcome.breaches:
                yield outcome

    def _all_steps_of(self, controller: int, number: int) -> Iterator[Outcome]:
        parts, exchanges = self.machines, self.exchanges
        machine = parts.states[number]
        broker_id = machine.broker_id
        image = self.controller.images[controller]
        for action, after in parts.options(number):
            outcome = exchanges.alone(action, controller, number, after)
            if action.kind == "catch up":
                outcome = outcome._replace(breaches=check_swap(image, machine, parts.states[after]))
            elif action.kind == "move":
                outcome = outcome._replace(breaches=check_move(machine, parts.states[after]))
            yield outcome
        if broker_id in image.brokers and not image.brokers[broker_id].fenced:
            yield from self._expire(controller, number, machine)
        if machine.broker is not None and not machine.cut:
            view = self.controller.view(controller, broker_id)
            for directory, after in parts.deliver(number, view, image):
                breaches = check_delivery(image, machine, parts.states[after])
                yield Outcome(Action("deliver", broker_id, None, directory), controller, after, breaches=breaches)
        yield from exchanges.steps(controller, number)

    def _expire(self, controller: int, number: int, machine: Machine) -> Iterator[Outcome]:
        early = lives(machine)
        if early and not self.machines.bounds.expiry:
            return
        answered = self.exchanges.ask(controller, SessionExpired(broker_id=machine.broker_id))
        action = Action("expire early" if early else "expire", machine.broker_id)
        yield self.exchanges.told(action, number, answered)

    # IN-SYNC SETS

    def _in_sync_sets(self, state: State) -> Iterator[Step]:
        """Leaders add replicas that brokers serve to their in-sync sets, and remove those that none serves."""
        for which, change in enumerate(self._possible(state[0])):
            leader, broker_id = change[:2]
            key = (state[0], state[leader], state[broker_id], which)
            if key not in self._isr:
                self._isr[key] = self._change(state, change)
            found = self._isr[key]
            if found is not None:
                outcome, follower = found
                after = list(self._state(state, leader, outcome))
                after[broker_id] = self.machines.behind(follower, outcome.changed)
                yield outcome.action, tuple(after), outcome.breaches

    def _possible(self, controller: int) -> tuple[IsrChange, ...]:
        """The changes of in-sync sets that the metadata allows."""
        found = self._changes.get(controller)
        if found is None:
            found = self._changes[controller] = tuple(
                (partition.leader, broker_id, Replica(topic_id, number), broker_id not in partition.isr)
                for topic_id, topic in self.controller.images[controller].topics.items()
                for number, partition in topic.partitions.items()
                if partition.leader >= 0
                for broker_id in partition.replicas
                if broker_id != partition.leader and (broker_id not in partition.isr or self.machines.bounds.shrink)
            )
        return found

    def _change(self, state: State, change: IsrChange) -> tuple[Outcome, int] | None:
        """A leader with the present metadata changes its in-sync set.

        The result is the follower's state number afterwards.
        """
        leader, broker_id, replica, joins = change
        image = self.controller.images[state[0]]
        partition = image.topics[replica.topic_id].partitions[replica.partition]
        leading, following = self.machines.states[state[leader]], self.machines.states[state[broker_id]]
        knows = any(entry.replica == replica and not entry.behind for entry in leading.seen)
        served = serves(following, replica)
        if not knows or not serves(leading, replica) or served != joins:
            return None
        if joins and image.brokers[broker_id].fenced:
            return None
        isr = (*partition.isr, broker_id) if joins else tuple(b for b in partition.isr if b != broker_id)
        answered = self.exchanges.ask(state[0], _isr_change(replica, isr, leader))
        follower = state[broker_id]
        if joins and self.machines.bounds.records:
            theirs, ours = (self.machines.log_of(state[b], replica) for b in (leader, broker_id))
            assert theirs is not None
            assert ours is not None
            follower = self.machines.ended(follower, ours, machines.end_of(leading, theirs))
        action = Action("rejoin" if joins else "shrink", broker_id, replica)
        outcome = self.exchanges.told(action, state[leader], answered)
        if answered.state == state[0] and follower == state[broker_id] and not answered.breaches:
            return None
        return outcome, follower


def serves(machine: Machine, replica: Replica) -> bool:
    """Whether a process runs that has the replica's log in a directory that works."""
    if machine.cut:
        return False
    return machine.broker is not None and replica in machine.broker.replicas.disks.current


def _isr_change(replica: Replica, isr: tuple[int, ...], leader: int) -> AlterPartitionRequest:
    change = AlterPartitionPartition(
        partition_index=replica.partition,
        new_isr_with_epochs=tuple(BrokerState(broker_id=b, broker_epoch=b) for b in isr),
        partition_epoch=PRESENT,
    )
    topic = AlterPartitionTopic(topic_id=replica.topic_id, partitions=(change,))
    return AlterPartitionRequest(broker_id=leader, broker_epoch=leader, topics=(topic,))
