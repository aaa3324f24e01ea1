"""Steps of the cluster as a whole: operators, producers, another controller (R-EXPLORE-7)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.formats.requests import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    ReassignablePartition,
    ReassignableTopic,
    Request,
)
from lab.explore import machine as machines
from lab.explore.actions import Action
from lab.explore.bounds import Bounds
from lab.explore.controller_part import ControllerPart
from lab.explore.invariants import Breach
from lab.explore.machines import Machines

State = tuple[int, ...]


class Global(NamedTuple):
    """A step that belongs to no single broker, the state after it, and its breaches."""

    action: Action
    state: State
    breaches: tuple[Breach, ...] = ()


NOBODY = 0


class Operators:
    """The steps that belong to no single broker."""

    def __init__(self, controller: ControllerPart, machines_: Machines) -> None:
        self.controller = controller
        self.machines = machines_
        self.bounds: Bounds = machines_.bounds

    def steps(self, state: State) -> Iterator[Global]:
        """Every step of an actor other than a broker."""
        bounds = self.bounds
        if bounds.failover:
            yield Global(Action("fail over", NOBODY), (self.controller.forgotten(state[0]), *state[1:]))
        if bounds.delete:
            yield from self._delete(state)
        if bounds.reassign:
            yield from self._reassign(state)
        if bounds.records:
            yield from self._write(state)

    def _delete(self, state: State) -> Iterator[Global]:
        for topic_id in self.controller.images[state[0]].topics:
            yield self._step(Action("delete", NOBODY), state, DeleteTopicsRequest(topic_ids=(topic_id,)))

    def _reassign(self, state: State) -> Iterator[Global]:
        """Every partition is reassigned to every other set of brokers of the same size, and back."""
        image = self.controller.images[state[0]]
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                targets: list[tuple[int, ...] | None] = []
                if partition.adding_replicas or partition.removing_replicas:
                    targets.append(None)
                size = len(partition.replicas) - len(partition.adding_replicas)
                targets += list(itertools.combinations(sorted(image.brokers), size))
                for target in targets:
                    if target is not None and set(target) == set(partition.replicas):
                        continue
                    reassignment = ReassignablePartition(partition_index=number, replicas=target)
                    request = AlterPartitionReassignmentsRequest(
                        topics=(ReassignableTopic(name=topic.name, partitions=(reassignment,)),)
                    )
                    detail = "what it was" if target is None else str(list(target))
                    action = Action("reassign", NOBODY, Replica(topic.topic_id, number), detail=detail)
                    yield self._step(action, state, request)

    def _step(self, action: Action, state: State, request: Request) -> Global:
        answered = self.controller.ask(state[0], self.controller.request(request))
        rest = (
            [self.machines.behind(number, answered.changed) for number in state[1:]] if answered.changed else state[1:]
        )
        return Global(action, (answered.state, *rest), answered.breaches)

    def _write(self, state: State) -> Iterator[Global]:
        """A record reaches the leader and every in-sync replica, and is acknowledged."""
        image = self.controller.images[state[0]]
        for topic_id, topic in image.topics.items():
            for number, partition in topic.partitions.items():
                replica = Replica(topic_id, number)
                if partition.leader < 0 or replica not in self._leading(state[partition.leader]):
                    continue
                logs = {b: self.machines.log_of(state[b], replica) for b in partition.isr}
                if any(log is None for log in logs.values()):
                    continue
                leader = logs[partition.leader]
                assert leader is not None
                end = machines.end_of(self.machines.states[state[partition.leader]], leader) + 1
                if end > self.bounds.records:
                    continue
                rest = list(state)
                for b, log in logs.items():
                    assert log is not None
                    rest[b] = self.machines.ended(state[b], log, end)
                rest[0] = self.controller.acknowledged(state[0], replica, end)
                yield Global(Action("write", NOBODY, replica), tuple(rest))

    def _leading(self, number: int) -> frozenset[Replica]:
        broker = self.machines.states[number].broker
        return frozenset() if broker is None else broker.replicas.leading
