"""Every machine state that was met, by number, with what each event led to (R-EXPLORE-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from jbod_model.broker.assignments import Replica
from jbod_model.broker.moves import MoveState
from jbod_model.broker.replicas import Hosted, Replicas
from jbod_model.explore import broker_part
from jbod_model.explore.broker_part import Machine
from jbod_model.explore.controller_part import View
from jbod_model.ids import KAFKA_IDS, IdTable, Uuid
from jbod_model.profiles.broker_rules import BrokerRules


class Action(NamedTuple):
    """Something that can happen; ``kind`` names it, the rest says to whom."""

    kind: str
    broker_id: int
    replica: Replica | None = None
    directory: Uuid | None = None


class Machines:
    """Machine states by number. Each event on each state is computed once."""

    def __init__(self, rules: BrokerRules, *, moves: bool, ids: IdTable = KAFKA_IDS) -> None:
        self.rules = rules
        self.ids = ids
        self.moves = moves
        self.states: list[Machine] = []
        self._numbers: dict[object, int] = {}
        self._events: dict[tuple[int, object], int] = {}
        self._options: dict[int, tuple[Action, ...]] = {}

    def number(self, machine: Machine) -> int:
        """The number of a state."""
        key = broker_part.key(machine)
        found = self._numbers.get(key)
        if found is None:
            found = len(self.states)
            self._numbers[key] = found
            self.states.append(machine)
        return found

    def after(self, machine: int, key: object, event: Callable[[Machine], Machine]) -> int:
        """The state after the event that ``key`` stands for."""
        found = self._events.get((machine, key))
        if found is None:
            found = self.number(event(self.states[machine]))
            self._events[machine, key] = found
        return found

    def start(self, machine: int) -> int:
        """A process starts."""
        return self.after(machine, "start", lambda state: broker_part.start(state, self.rules, self.ids))

    def accept(self, machine: int) -> int:
        """The controller took the registration of the process."""
        return self.after(machine, "accept", broker_part.accept)

    def stop(self, machine: int) -> int:
        """The process ends."""
        return self.after(machine, "stop", broker_part.stop)

    def deliver(self, machine: int, view: View) -> int:
        """The process applies the newest metadata."""
        return self.after(machine, view, lambda state: broker_part.deliver(state, view))

    def take_answer(self, machine: int, accepted: Mapping[Replica, Uuid]) -> int:
        """The controller accepted assignments."""
        return self.after(machine, tuple(accepted.items()), lambda state: broker_part.take_answer(state, accepted))

    def unfencing(self, machine: int) -> int:
        """The process has asked to be unfenced."""
        return self.after(machine, "unfencing", broker_part.ask_to_unfence)

    def options(self, machine: int) -> tuple[Action, ...]:
        """What can happen to the machine without anybody else."""
        found = self._options.get(machine)
        if found is None:
            found = tuple(self._own_actions(self.states[machine]))
            self._options[machine] = found
        return found

    def apply(self, machine: int, action: Action) -> int:
        """The state after an action of :meth:`options`."""

        def event(state: Machine) -> Machine:
            if action.kind == "crash":
                return broker_part.stop(state)
            if action.kind == "fail" and action.directory is not None:
                return broker_part.fail(state, action.directory)
            if action.kind == "catch up" and action.replica is not None:
                return broker_part.catch_up(state, action.replica)
            assert action.replica is not None
            assert action.directory is not None
            return broker_part.move(state, action.replica, action.directory)

        return self.after(machine, action, event)

    def _own_actions(self, machine: Machine) -> Iterator[Action]:
        for directory in machine.directories:
            if directory in machine.working:
                yield Action("fail", machine.broker_id, directory=directory)
        if machine.process is None:
            return
        yield Action("crash", machine.broker_id)
        disks = machine.process.disks
        for replica, move in machine.process.moves.items():
            if replica in disks.current and replica in disks.future and move.state is not MoveState.EFFECTIVE:
                yield Action("catch up", machine.broker_id, replica)
        if self.moves and not disks.has_offline:
            yield from _moves(machine.broker_id, machine.process)


def _moves(broker_id: int, process: Replicas) -> Iterator[Action]:
    """Every replica to every other directory; one that is on its way also back to its own."""
    disks = process.disks
    for replica, hosted in process.hosted.items():
        current, future = disks.current.get(replica), disks.future.get(replica)
        if hosted is Hosted.ONLINE:
            for directory in disks.online:
                if directory != future and (directory != current or future is not None):
                    yield Action("move", broker_id, replica, directory)
