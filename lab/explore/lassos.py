"""Runs that break a leads-to property: a path, and a cycle without end (R-EXPLORE-6).

A run breaks "P leads to not P" if it reaches a cycle in which P always holds and every step of the protocol is either
taken or impossible somewhere on the cycle. Faults and operators do not occur in the cycle. Such cycles lie in the
strongly connected components of the states with P.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jbod_model.broker.assignments import Replica
from lab.explore.actions import Action
from lab.explore.cluster import Cluster
from lab.explore.graph import Graph
from lab.explore.liveness import LeadsTo, Marks

Fairness = tuple[str, int, Replica | None, str]
"""A step of the protocol for fairness: its kind, its broker, its replica, the message."""

UNFAIR = -1


@dataclass(frozen=True, slots=True)
class Lasso:
    """A run that breaks a property: the first state of the cycle, and the steps of the cycle."""

    property: LeadsTo
    problem: str
    entry: int
    cycle: tuple[tuple[int, Action], ...]


class FairSteps:
    """The steps of the protocol from every state with ``bits``: those of state n are ``first[n]`` to ``first[n + 1]``.

    ``kinds`` has the number of each step's :data:`Fairness`.
    """

    def __init__(self, graph: Graph, bits: Sequence[int]) -> None:
        self.first = array("q", [0])
        self.targets = array("i")
        self.kinds = array("i")
        self._taken = array("i")
        kinds = _fairness(graph.actions)
        for source, known in enumerate(bits):
            if known:
                for step in range(graph.first[source], graph.first[source + 1]):
                    kind = kinds[graph.taken[step]]
                    if kind != UNFAIR:
                        self.targets.append(graph.targets[step])
                        self.kinds.append(kind)
                        self._taken.append(graph.taken[step])
            self.first.append(len(self.targets))

    def targets_of(self, state: int) -> array[int]:
        """The states after each step of a state."""
        return self.targets[self.first[state] : self.first[state + 1]]

    def leaves(self, state: int) -> bool:
        """Whether a state has steps, each to another state: a run cannot stay."""
        targets = self.targets_of(state)
        return bool(targets) and state not in targets

    def kinds_of(self, state: int) -> set[int]:
        """The fairness of each step of a state."""
        return set(self.kinds[self.first[state] : self.first[state + 1]])

    def of(self, state: int) -> Iterator[tuple[int, int, int]]:
        """Target, fairness and action of each step of a state."""
        for step in range(self.first[state], self.first[state + 1]):
            yield self.targets[step], self.kinds[step], self._taken[step]


def _fairness(actions: Sequence[Action]) -> list[int]:
    """The number of each action's fairness."""
    numbers: dict[Fairness, int] = {}
    return [
        numbers.setdefault((each.kind, each.broker_id, each.replica, each.detail), len(numbers))
        if each.fair
        else UNFAIR
        for each in actions
    ]


def find_lassos(graph: Graph, cluster: Cluster) -> Iterator[Lasso]:
    """The shortest run that breaks each property, if one exists. Every state of the graph has been expanded."""
    marks = Marks(cluster)
    bits = [marks.of(state) for state in graph.states]
    steps = FairSteps(graph, bits)
    broken: dict[str, tuple[int, list[int], int]] = {}
    for n, (each, _) in enumerate(marks.instances):
        bit = 1 << n
        inside = [number for number, known in enumerate(bits) if known & bit]
        for component in components(inside, steps, bits, bit):
            first = min(component)
            if len(component) == 1 and steps.leaves(first):
                continue
            if each.name in broken and broken[each.name][0] <= first:
                continue
            if _is_fair(component, steps):
                broken[each.name] = (first, component, n)
    for first, component, n in broken.values():
        each, problem = marks.instances[n]
        cycle = _cycle(first, component, steps)
        yield Lasso(each, problem, first, tuple((source, graph.actions[action]) for source, action in cycle))


def components(inside: list[int], steps: FairSteps, bits: Sequence[int], bit: int) -> Iterator[list[int]]:
    """The strongly connected components of the states with ``bit`` (Tarjan's algorithm, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in inside:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(steps.targets_of(root)))]
        while work:
            state, targets = work[-1]
            for target in targets:
                if not bits[target] & bit:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(steps.targets_of(target))))
                    break
                if target in on_stack:
                    low[state] = min(low[state], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])
                if low[state] == index[state]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == state:
                            break
                    yield component


def _is_fair(component: list[int], steps: FairSteps) -> bool:
    """Whether a run may stay in the component: each step is taken inside it, or impossible somewhere in it."""
    members = set(component)
    always: set[int] | None = None
    taken: set[int] = set()
    for state in component:
        possible = steps.kinds_of(state)
        taken.update(kind for target, kind, _ in steps.of(state) if target in members)
        always = possible if always is None else always & possible
    return not (always or set()) - taken


def _cycle(first: int, component: list[int], steps: FairSteps) -> list[tuple[int, int]]:
    """A short cycle from ``first`` through the component that is fair to every step."""
    members = set(component)
    owed = set().union(*map(steps.kinds_of, component))
    cycle: list[tuple[int, int]] = []
    at = first
    owed.intersection_update(steps.kinds_of(at))
    while owed:
        way = _way(at, lambda _, kind: kind in owed, members, steps)
        other = _way(at, lambda state, _: bool(owed - steps.kinds_of(state)), members, steps, before=True)
        way = min((each for each in (way, other) if each), key=len)
        for source, action, target, kind in way:
            cycle.append((source, action))
            owed.discard(kind)
            at = target
            owed.intersection_update(steps.kinds_of(at))
    back = _way(at, lambda state, _: state == first, members, steps, before=True)
    cycle += [(source, action) for source, action, _, _ in back]
    return cycle


WayStep = tuple[int, int, int, int]
"""A state, an action, the state after it, the action's fairness."""


def _way(
    start: int, reached: Callable[[int, int], bool], members: set[int], steps: FairSteps, *, before: bool = False
) -> list[WayStep]:
    """The shortest path inside the component to a wanted step, or (``before``) to a wanted state."""
    parents: dict[int, WayStep] = {}
    queue = deque([start])
    known = {start}

    def back(state: int) -> list[WayStep]:
        way: list[WayStep] = []
        while state != start or not way:
            if state not in parents:
                break
            way.append(parents[state])
            state = way[-1][0]
        return way[::-1]

    while queue:
        state = queue.popleft()
        if before and state != start and reached(state, UNFAIR):
            return back(state)
        for target, kind, action in steps.of(state):
            if target not in members:
                continue
            step = (state, action, target, kind)
            if not before and reached(state, kind):
                return [*back(state), step]
            if target not in known:
                known.add(target)
                parents[target] = step
                queue.append(target)
    return []
