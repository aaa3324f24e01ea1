"""The steps of a small cluster (R-EXPLORE-1): one controller, machines, and the messages between them.

A step of one broker depends only on the controller and on its machine, so it is computed once for each pair of states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.formats.requests import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    SessionExpired,
)
from lab.explore import machine as machines
from lab.explore.actions import Action
from lab.explore.controller_part import ControllerPart
from lab.explore.exchanges import Exchanges, Outcome
from lab.explore.invariants import Breach
from lab.explore.machine import PRESENT, Machine
from lab.explore.machines import Machines, lives
from lab.explore.operators import Operators
from lab.explore.physical import check_delivery, check_move, check_pair, check_records, check_swap

State = tuple[int, ...]
"""The number of the controller's state, then the number of each machine's state."""

IsrChange = tuple[int, int, Replica, bool]
"""The leader, the broker that it adds to the in-sync set or removes from it, the partition, and whether it adds."""

Step = tuple[Action, State, tuple[Breach, ...]]

NumberedStep = tuple[int, State, tuple[Breach, ...]]
"""A step with the number of its action."""


class Move(NamedTuple):
    """A step of one machine, whatever the others are: an outcome with the number of its action."""

    action: int
    controller: int
    machine: int
    changed: frozenset[Replica]
    breaches: tuple[Breach, ...]


class Cluster:
    """The steps between states. Actions have numbers: that of ``actions[n]`` is n."""

    def __init__(self, controller: ControllerPart, machines_: Machines) -> None:
        self.controller = controller
        self.machines = machines_
        self.exchanges = Exchanges(controller, machines_)
        self.operators = Operators(controller, machines_)
        self.actions: list[Action] = []
        bounds = machines_.bounds
        self._operated = bounds.failover or bounds.delete or bounds.reassign or bool(bounds.records)
        self._action_numbers: dict[Action, int] = {}
        self._moves: dict[tuple[int, int], tuple[Move, ...]] = {}
        self._isr: dict[tuple[int, int, int], Move | None] = {}
        self._changes: dict[int, tuple[IsrChange, ...]] = {}
        self._serving: dict[tuple[int, Replica], bool] = {}
        self._pairs: dict[tuple[int, int], tuple[Breach, ...]] = {}

    def steps(self, state: State) -> Iterator[Step]:
        """Every action that changes a state, with the next state and the invariants that the step breaks."""
        for number, after, breaches in self.numbered(state):
            yield self.actions[number], after, breaches

    def numbered(self, state: State) -> list[NumberedStep]:
        """The steps of a state, with the numbers of their actions."""
        steps: list[NumberedStep] = []
        controller, behind = state[0], self.machines.behind
        for i, machine in enumerate(state[1:], 1):
            moves = self._moves.get((controller, machine))
            if moves is None:
                moves = self._moves[controller, machine] = tuple(map(self._move, self._steps_of(controller, machine)))
            before, after = state[1:i], state[i + 1 :]
            for action, led_to, own, changed, breaches in moves:
                if changed:  # the other machines are now behind
                    first = [behind(each, changed) for each in before]
                    last = [behind(each, changed) for each in after]
                    steps.append((action, (led_to, *first, own, *last), breaches))
                else:
                    steps.append((action, (led_to, *before, own, *after), breaches))
        if len(state) > 2 or self.machines.bounds.shrink:
            steps += self._in_sync_sets(state)
        if self._operated:
            for step in self.operators.steps(state):
                if step.state != state or step.breaches:
                    steps.append((self._number(step.action), step.state, step.breaches))
        return steps

    def breaches(self, state: State) -> tuple[Breach, ...]:
        """Invariants that a state breaks by itself."""
        all_breaches = self.controller.breaches[state[0]]
        for number in state[1:]:
            key = (state[0], number)
            broken = self._pairs.get(key)
            if broken is None:
                broken = check_pair(self.controller.images[state[0]], self.machines.states[number])
                self._pairs[key] = broken
            if broken:
                all_breaches += broken
        if self.machines.bounds.records:
            bounds, parts = self.machines.bounds, [self.machines.states[number] for number in state[1:]]
            thrown_away = bounds.replace or bounds.remove
            all_breaches += check_records(self.controller.states[state[0]], parts, thrown_away=thrown_away)
        return all_breaches

    # STEPS

    def _number(self, action: Action) -> int:
        """The number of an action."""
        number = self._action_numbers.setdefault(action, len(self.actions))
        if number == len(self.actions):
            self.actions.append(action)
        return number

    def _move(self, outcome: Outcome) -> Move:
        return Move(self._number(outcome.action), *outcome[1:])

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
        yield self.exchanges.outcome(action, number, answered)

    # IN-SYNC SETS

    def _in_sync_sets(self, state: State) -> Iterator[NumberedStep]:
        """Leaders add replicas that brokers serve to their in-sync sets, and remove those that none serves."""
        controller, behind = state[0], self.machines.behind
        for which, change in enumerate(self._possible(controller)):
            leader, broker_id, replica, joins = change
            if self._serves(state[broker_id], replica) != joins:
                continue
            key = (controller, state[leader], which)
            if key not in self._isr:
                self._isr[key] = self._change(controller, state[leader], change)
            move = self._isr[key]
            if move is None:
                continue
            follower = self._caught_up(state, change)
            after = [behind(each, move.changed) for each in state[1:]]
            after[leader - 1] = move.machine
            after[broker_id - 1] = behind(follower, move.changed)
            if move.controller != controller or follower != state[broker_id] or move.breaches:
                yield move.action, (move.controller, *after), move.breaches

    def _possible(self, controller: int) -> tuple[IsrChange, ...]:
        """The changes of in-sync sets that the metadata allows."""
        changes = self._changes.get(controller)
        if changes is None:
            changes = self._changes[controller] = tuple(
                (partition.leader, broker_id, Replica(topic_id, number), broker_id not in partition.isr)
                for topic_id, topic in self.controller.images[controller].topics.items()
                for number, partition in topic.partitions.items()
                if partition.leader >= 0
                for broker_id in partition.replicas
                if broker_id != partition.leader and (broker_id not in partition.isr or self.machines.bounds.shrink)
            )
        return changes

    def _change(self, controller: int, leading: int, change: IsrChange) -> Move | None:
        """A leader with the present metadata changes its in-sync set; None if it cannot."""
        leader, broker_id, replica, joins = change
        image = self.controller.images[controller]
        partition = image.topics[replica.topic_id].partitions[replica.partition]
        knows = any(entry.replica == replica and not entry.behind for entry in self.machines.states[leading].seen)
        if not knows or not self._serves(leading, replica):
            return None
        if joins and image.brokers[broker_id].fenced:
            return None
        isr = (*partition.isr, broker_id) if joins else tuple(b for b in partition.isr if b != broker_id)
        answered = self.exchanges.ask(controller, _isr_change(replica, isr, leader))
        action = Action("rejoin" if joins else "shrink", broker_id, replica)
        return self._move(self.exchanges.outcome(action, leading, answered))

    def _caught_up(self, state: State, change: IsrChange) -> int:
        """The follower's state: a replica that joins has the records of the leader."""
        leader, broker_id, replica, joins = change
        if not joins or not self.machines.bounds.records:
            return state[broker_id]
        theirs, ours = (self.machines.log_of(state[b], replica) for b in (leader, broker_id))
        assert theirs is not None
        assert ours is not None
        end = machines.end_of(self.machines.states[state[leader]], theirs)
        return self.machines.ended(state[broker_id], ours, end)

    def _serves(self, machine: int, replica: Replica) -> bool:
        key = (machine, replica)
        answer = self._serving.get(key)
        if answer is None:
            answer = self._serving[key] = serves(self.machines.states[machine], replica)
        return answer


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
