"""Breadth-first search through every reachable state of a small cluster (R-EXPLORE-1, R-EXPLORE-5).

A state is a number for the controller and one for each machine. Results for these numbers are cached, so most steps of
the search are a few look-ups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from jbod_model.ids import ID_TABLES, Uuid
from jbod_model.profiles import Profile
from lab.explore import machine as machines
from lab.explore.actions import Action, describe, plain_names
from lab.explore.bounds import Bounds
from lab.explore.canonical import Canonical, Orders
from lab.explore.cluster import Cluster, NumberedStep, State
from lab.explore.controller_part import ControllerPart
from lab.explore.graph import Graph
from lab.explore.invariants import Breach
from lab.explore.lassos import Lasso, find_lassos
from lab.explore.machine import Machine
from lab.explore.machines import Machines
from lab.explore.start import directory_ids, first_image
from lab.simulation.controller_node import deciding


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The first breach of an invariant, and the shortest sequence of steps to it."""

    breach: Breach
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that breaks a leads-to property: the steps to a cycle, and the steps of the cycle (none if the run
    ends)."""

    property: str
    problem: str
    steps: tuple[str, ...]
    cycle: tuple[str, ...]


@dataclass(slots=True)
class Findings:
    """The result of a search. ``complete``: the search visited every reachable state.

    ``kinds`` counts the steps of each kind. Leads-to properties are checked in complete searches only.
    """

    states: int = 0
    steps: int = 0
    depth: int = 0
    complete: bool = False
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    counterexamples: dict[int, Counterexample] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)


class Search:
    """One search, with its caches."""

    def __init__(self, profile: Profile, bounds: Bounds) -> None:
        self.bounds = bounds
        controller = ControllerPart(profile if bounds.literal else deciding(profile))
        self.cluster = Cluster(controller, Machines(profile.broker, bounds, ID_TABLES[bounds.ids]))
        spare = bounds.add + (1 if bounds.replace else 0)
        self.names = {b: directory_ids(b, bounds.directories + spare) for b in range(1, bounds.brokers + 1)}
        self.canonical = Canonical(self.cluster, self.names)
        self.graph = Graph(self.cluster.actions)
        self._symmetric = bounds.symmetry and not (bounds.late or spare)

    def run(self, on_depth: Callable[[Findings], None] | None = None) -> Findings:
        """Search up to the bounds; ``on_depth`` is called after each depth."""
        began = time.perf_counter()
        findings = Findings()
        first, _ = self._canonical(self.first())
        self.graph.add(first)
        frontier = [first]
        for breach in self.cluster.breaches(first):
            findings.counterexamples.setdefault(breach.number, Counterexample(breach, ()))
        while frontier and self._goes_on(findings):
            frontier = self._expand(frontier, findings)
            findings.depth += 1
            findings.states = len(self.graph)
            findings.steps, findings.kinds = self.graph.counted()
            findings.seconds = time.perf_counter() - began
            if on_depth is not None:
                on_depth(findings)
        findings.complete = not frontier
        if findings.complete and self.bounds.liveness:
            for lasso in find_lassos(self.graph, self.cluster):
                findings.runs[lasso.property.name] = self._run(lasso)
        findings.seconds = time.perf_counter() - began
        return findings

    def _goes_on(self, findings: Findings) -> bool:
        bounds = self.bounds
        return findings.depth < bounds.depth and len(self.graph) < bounds.states and not self._enough(findings)

    def first(self) -> State:
        """Every broker runs, is registered and unfenced.

        The partitions were just created, and no broker has read them.
        """
        bounds, ids = self.bounds, ID_TABLES[self.bounds.ids]
        controller, parts = self.cluster.controller, self.cluster.machines
        image = first_image(
            controller.profile,
            {b: own[: bounds.directories] for b, own in self.names.items()},
            bounds.partitions,
            elr=bounds.elr,
            ids=ids,
            replication=bounds.replication,
            migrating=bounds.migrating,
        )
        states = [machines.running(self._machine(b, own), parts.rules, ids) for b, own in self.names.items()]
        if bounds.migrating:
            states = [machines.upgraded(machine, image) for machine in states]
        listed = {b: frozenset(own[: bounds.directories]) for b, own in self.names.items()}
        return (controller.number(image, listed), *map(parts.number, states))

    def _machine(self, broker_id: int, own: tuple[Uuid, ...]) -> Machine:
        """A machine with empty disks. Ids that no directory has are for future disks."""
        count = self.bounds.directories
        return Machine(
            broker_id=broker_id,
            log_dirs=own[:count],
            working=frozenset(own[:count]),
            spares=own[count:],
            timed=self.bounds.timeouts,
        )

    def _canonical(self, state: State) -> tuple[State, Orders]:
        return self.canonical(state) if self._symmetric else (state, ())

    def _expand(self, frontier: list[State], findings: Findings) -> list[State]:
        """The new states after one more step."""
        following = []
        graph, cluster = self.graph, self.cluster
        numbers, targets, taken = graph.numbers, graph.targets, graph.taken
        for state in frontier:
            source = numbers[state]
            for action, successor, breaches in self._steps(state, findings):
                target = numbers.get(successor)
                orders: Orders = ()
                if target is None:
                    successor, orders = self._canonical(successor)
                    target = numbers.get(successor) if orders else None
                    if target is None:
                        target = graph.add(successor, source, action, orders)
                        following.append(successor)
                        breaches += cluster.breaches(successor)
                targets.append(target)
                taken.append(action)
                if breaches:
                    self._note(breaches, [*graph.way(source), (state, cluster.actions[action], orders)], findings)
            graph.expanded()
            if len(graph) >= self.bounds.states or self._enough(findings):
                break
        return following

    def _note(self, breaches: tuple[Breach, ...], way: list[tuple[State, Action, Orders]], findings: Findings) -> None:
        """Keep the first counterexample to each invariant."""
        for breach in breaches:
            if breach.number not in findings.counterexamples:
                findings.counterexamples[breach.number] = Counterexample(breach, tuple(self._descriptions(way)))

    def _steps(self, state: State, findings: Findings) -> list[NumberedStep]:
        """The steps from a state. An exception of the controller or a broker is a breach."""
        try:
            return self.cluster.numbered(state)
        except Exception as raised:  # whatever a broken rule raises
            if 0 not in findings.counterexamples:
                breach = Breach(0, f"a step fails: {type(raised).__name__}: {raised}")
                descriptions = tuple(self._descriptions(self.graph.way(self.graph.numbers[state])))
                findings.counterexamples[0] = Counterexample(breach, descriptions)
            return []

    def _enough(self, findings: Findings) -> bool:
        """Whether the search ends here because it found a breach."""
        return self.bounds.first and bool(findings.counterexamples)

    # TELLING

    def _run(self, lasso: Lasso) -> Run:
        steps = [*self.graph.way(lasso.entry)]
        cycle = []
        for source, action in lasso.cycle:
            state = self.graph.states[source]
            orders = next(self._canonical(after)[1] for each, after, _ in self.cluster.steps(state) if each == action)
            cycle.append((state, action, orders))
        descriptions = tuple(self._descriptions([*steps, *cycle]))
        return Run(lasso.property.name, lasso.problem, descriptions[: len(steps)], descriptions[len(steps) :])

    def _descriptions(self, way: list[tuple[State, Action, Orders]]) -> Iterator[str]:
        """The steps of a path, with the directories named as in its first state."""
        names = plain_names(self.names)
        for state, action, orders in way:
            after = next(after for each, after, _ in self.cluster.steps(state) if each == action)
            yield describe(action, self.cluster.controller.images[after[0]], names)
            for (_, each), order in zip(self.names.items(), orders, strict=False):
                if order is not None:
                    moved = [names[each[old]] for old in order]
                    names |= dict(zip(each, moved, strict=True))


def explore(profile: Profile, bounds: Bounds, on_depth: Callable[[Findings], None] | None = None) -> Findings:
    """Search every behaviour within the bounds for breaches of invariants and leads-to properties (R-EXPLORE-1)."""
    return Search(profile, bounds).run(on_depth)
