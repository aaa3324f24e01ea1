"""Breadth first through every state that a small cluster can come to (R-EXPLORE-1, R-EXPLORE-5).

A state is a number for the controller and one for each machine. What was computed once for such numbers is looked up
the next time, so that most steps of the search are a few look-ups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jbod_model.explore import broker_part, symmetry
from jbod_model.explore.broker_part import Machine
from jbod_model.explore.cluster import Cluster, State, directory_ids, first_image
from jbod_model.explore.controller_part import ControllerPart
from jbod_model.explore.invariants import Breach
from jbod_model.explore.machines import Action, Machines
from jbod_model.ids import ID_TABLES
from jbod_model.profiles import Profile
from jbod_model.simulation.deciding import deciding

Order = tuple[int, ...]
Orders = tuple[Order | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How large a cluster, how far, and what may happen in it."""

    brokers: int = 2
    directories: int = 2
    partitions: int = 1
    depth: int = 6
    states: int = 2_000_000
    moves: bool = False
    elr: bool = False
    literal: bool = False
    ids: str = "kafka"
    """The table of reserved ids (R-SIM-10)."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The first breach of an invariant that was met, and the steps that lead to it: none is shorter."""

    breach: Breach
    steps: tuple[str, ...]


@dataclass(slots=True)
class Findings:
    """What the search met. ``complete`` says that there is no state beyond those."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    complete: bool = False
    seconds: float = 0.0
    counterexamples: dict[int, Counterexample] = field(default_factory=dict)


class Search:
    """One search, with everything that it looked up."""

    def __init__(self, profile: Profile, bounds: Bounds) -> None:
        self.bounds = bounds
        rules = profile.broker
        controller = ControllerPart(profile if bounds.literal else deciding(profile))
        self.cluster = Cluster(controller, Machines(rules, moves=bounds.moves, ids=ID_TABLES[bounds.ids]))
        self.names = {b: directory_ids(b, bounds.directories) for b in range(1, bounds.brokers + 1)}
        self._marks: dict[tuple[bool, int, int], tuple[object, ...]] = {}
        self._orders: dict[tuple[int, int, int], Order | None] = {}
        self._parents: dict[State, tuple[State, Action, Orders] | None] = {}

    def run(self, on_depth: Callable[[Findings], None] | None = None) -> Findings:
        """Search up to the bounds; ``on_depth`` is called after each depth."""
        began = time.perf_counter()
        findings = Findings()
        first, _ = self._canonical(self._first())
        self._parents = {first: None}
        frontier = [first]
        while frontier and findings.depth < self.bounds.depth and len(self._parents) < self.bounds.states:
            frontier = self._expand(frontier, findings)
            findings.depth += 1
            findings.states = len(self._parents)
            findings.seconds = time.perf_counter() - began
            if on_depth is not None:
                on_depth(findings)
        findings.complete = not frontier
        return findings

    def _first(self) -> State:
        """Every broker runs, is registered and unfenced; the partitions were just created, nothing is delivered."""
        image = first_image(
            self.cluster.controller.profile,
            self.names,
            self.bounds.partitions,
            elr=self.bounds.elr,
            ids=ID_TABLES[self.bounds.ids],
        )
        rules, ids = self.cluster.machines.rules, self.cluster.machines.ids
        formatted = [Machine(broker_id=b, directories=own, working=frozenset(own)) for b, own in self.names.items()]
        machines = [broker_part.accept(broker_part.start(machine, rules, ids)) for machine in formatted]
        return (self.cluster.controller.number(image), *map(self.cluster.machines.number, machines))

    def _expand(self, frontier: list[State], findings: Findings) -> list[State]:
        """The states one step further that were not met before."""
        following = []
        for state in frontier:
            for action, successor, breaches in self.cluster.steps(state):
                findings.steps += 1
                target, orders = self._canonical(successor)
                if target not in self._parents:
                    self._parents[target] = (state, action, orders)
                    following.append(target)
                    breaches = (*breaches, *self.cluster.breaches(target))
                for breach in breaches:
                    if breach.number not in findings.counterexamples:
                        steps = tuple(self._way(state, action))
                        findings.counterexamples[breach.number] = Counterexample(breach, steps)
            if len(self._parents) >= self.bounds.states:
                break
        return following

    # SYMMETRY

    def _canonical(self, state: State) -> tuple[State, Orders]:
        """The state with each broker's directories in the order of their marks, and those orders (R-EXPLORE-4)."""
        controller, *machines = state
        orders: list[Order | None] = []
        for i, broker_id in enumerate(self.names):
            order = self._order(controller, machines[i], broker_id)
            orders.append(order)
            if order is not None:
                names = self.names[broker_id]
                mapping = {names[old]: names[new] for new, old in enumerate(order)}
                controller = self.cluster.renamed_controller(controller, broker_id, order, mapping)
                machines[i] = self.cluster.renamed_machine(machines[i], order, mapping)
        return (controller, *machines), tuple(orders)

    def _order(self, controller: int, machine: int, broker_id: int) -> Order | None:
        """The order of the broker's directories by their marks, None if they are in it."""
        key = (controller, machine, broker_id)
        if key not in self._orders:
            of_image = self._marks_of(True, controller, broker_id)
            of_machine = self._marks_of(False, machine, broker_id)
            order = tuple(sorted(range(len(of_image)), key=lambda i: repr((of_image[i], of_machine[i]))))
            self._orders[key] = None if order == tuple(range(len(order))) else order
        return self._orders[key]

    def _marks_of(self, of_image: bool, number: int, broker_id: int) -> tuple[object, ...]:
        key = (of_image, number, broker_id)
        if key not in self._marks:
            names = self.names[broker_id]
            if of_image:
                image = self.cluster.controller.images[number]
                self._marks[key] = tuple(symmetry.image_marks(image, name) for name in names)
            else:
                machine = self.cluster.machines.states[number]
                self._marks[key] = tuple(symmetry.machine_marks(machine, name) for name in names)
        return self._marks[key]

    # WAYS

    def _way(self, state: State, last: Action) -> Iterator[str]:
        """The steps to ``state`` and one more, with the directories named as at the beginning."""
        steps: list[tuple[State, Action, Orders]] = [(state, last, ())]
        while (parent := self._parents[steps[-1][0]]) is not None:
            steps.append(parent)
        names = {name: self._plain(b, i) for b, each in self.names.items() for i, name in enumerate(each)}
        for before, action, orders in reversed(steps):
            yield self.cluster.describe(before, action, names)
            for (_broker_id, each), order in zip(self.names.items(), orders, strict=False):
                if order is not None:
                    moved = [names[each[old]] for old in order]
                    names |= dict(zip(each, moved, strict=True))

    @staticmethod
    def _plain(broker_id: int, index: int) -> str:
        return f"{broker_id}{chr(ord('a') + index)}"


def explore(profile: Profile, bounds: Bounds, on_depth: Callable[[Findings], None] | None = None) -> Findings:
    """Search every behaviour within the bounds for breaches of the invariants (R-EXPLORE-1)."""
    return Search(profile, bounds).run(on_depth)
