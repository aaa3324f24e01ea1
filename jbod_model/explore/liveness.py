"""Leads-to properties: what must eventually happen, under weak fairness of the protocol (R-EXPLORE-6).

Each property is "P leads to not P". A run breaks it if it reaches a cycle in which P always holds and every step of the
protocol is either taken or impossible somewhere on the cycle. Faults and operators do not occur in the cycle. Such
cycles lie in the strongly connected components of the states with P.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jbod_model.broker.assignments import Replica
from jbod_model.broker.lifecycle import BrokerState
from jbod_model.explore.actions import Action
from jbod_model.explore.cluster import Cluster, serves
from jbod_model.explore.graph import Graph
from jbod_model.explore.invariants import partitions
from jbod_model.explore.machine import Machine
from jbod_model.explore.physical import dead_log, led_from_dead_disks
from jbod_model.replay.image import Image

Fairness = tuple[str, int, Replica | None, str]
"""A step of the protocol for fairness: its kind, its broker, its replica, the message."""


@dataclass(frozen=True, slots=True)
class LeadsTo:
    """A property. ``holds`` gives the subjects for which P is true in a state of the metadata and a machine."""

    name: str
    sentence: str
    holds: Callable[[Image, Machine], Iterator[str]]
    alone: bool = False
    """It must hold even if the broker is cut off from the controller."""


@dataclass(frozen=True, slots=True)
class Lasso:
    """A run that breaks a property: the first state of the cycle, and the steps of the cycle."""

    property: LeadsTo
    problem: str
    entry: int
    cycle: tuple[tuple[int, Action], ...]


def leader_on_dead_disk(image: Image, machine: Machine) -> Iterator[str]:
    """A running process leads a partition whose log lies on a dead disk."""
    for replica in led_from_dead_disks(image, machine):
        yield f"partition {replica.partition}: leader {machine.broker_id} is on a dead disk"


def leader_without_log(image: Image, machine: Machine) -> Iterator[str]:
    """A running process leads a partition and has no log of it on any disk."""
    if machine.broker is None:
        return
    for (topic_id, number), partition in partitions(image):
        replica = Replica(topic_id, number)
        leads = partition.leader == machine.broker_id
        if leads and not serves(machine, replica) and dead_log(machine, replica) is None:
            yield f"partition {number}: leader {machine.broker_id} has no log"


def fenced(image: Image, machine: Machine) -> Iterator[str]:
    """A running process has a working directory and was not asked to stop, and its broker is fenced."""
    broker = machine.broker
    if broker is None or not broker.replicas.disks.online:
        return
    stops = broker.life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN or machine.cut
    if image.brokers[machine.broker_id].fenced and not stops:
        yield f"broker {machine.broker_id} is fenced"


def unassigned(image: Image, machine: Machine) -> Iterator[str]:
    """The metadata has no directory for a replica of a running process."""
    if machine.broker is None:
        return
    unknown = (image.ids.unassigned, image.ids.migrating)
    for (_, number), partition in partitions(image):
        if machine.broker_id in partition.replicas and partition.directory(machine.broker_id) in unknown:
            yield f"partition {number} of broker {machine.broker_id} is unassigned"


def queued(image: Image, machine: Machine) -> Iterator[str]:
    """Assignments wait in a process."""
    del image
    if machine.broker is not None and machine.broker.queue.pending:
        yield f"assignments of broker {machine.broker_id} wait"


def moving(image: Image, machine: Machine) -> Iterator[str]:
    """A process moves a replica between disks."""
    del image
    if machine.broker is not None:
        for replica in machine.broker.replicas.moves:
            yield f"the move of partition {replica.partition} on broker {machine.broker_id} goes on"


def unreported(image: Image, machine: Machine) -> Iterator[str]:
    """In the metadata a failed directory of a running, registered process is online."""
    broker = machine.broker
    if broker is None or not broker.life.registered:
        return
    if set(image.brokers[machine.broker_id].directories) & broker.replicas.disks.failed:
        yield f"a failed directory of broker {machine.broker_id} is online in the metadata"


def misplaced(image: Image, machine: Machine) -> Iterator[str]:
    """A process has a replica in a working directory, and the metadata has it in another."""
    broker = machine.broker
    if broker is None:
        return
    for (topic_id, number), partition in partitions(image):
        where = broker.replicas.disks.current.get(Replica(topic_id, number))
        hosted = where is not None and machine.broker_id in partition.replicas
        if hosted and partition.directory(machine.broker_id) != where:
            yield f"partition {number} of broker {machine.broker_id} is not where the metadata has it"


def gone(image: Image, machine: Machine) -> Iterator[str]:
    """In the metadata a broker leads that has no process."""
    if machine.broker is None:
        for (_, number), partition in partitions(image):
            if partition.leader == machine.broker_id:
                yield f"partition {number}: leader {machine.broker_id} is dead"


def undelivered(image: Image, machine: Machine) -> Iterator[str]:
    """According to the metadata that it has read, a process leads in a failed directory that it has not reported
    (R-LIFE-8)."""
    del image
    broker = machine.broker
    if broker is None or not machine.timed:
        return
    untold = {directory for directory, told in broker.life.offline if not told}
    for replica in broker.replicas.leading:
        if broker.assigned.get(replica) in untold:
            yield f"broker {machine.broker_id} leads partition {replica.partition} where nobody knows of the failure"


def stopping(image: Image, machine: Machine) -> Iterator[str]:
    """A process that was asked to stop still runs."""
    del image
    if machine.broker is not None and machine.broker.life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
        yield f"broker {machine.broker_id} does not stop"


def leaderless(image: Image, machine: Machine) -> Iterator[str]:
    """A process that is not stopping serves an in-sync replica, and the partition has no leader."""
    broker = machine.broker
    if broker is None or broker.life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
        return
    for (topic_id, number), partition in partitions(image):
        could = machine.broker_id in (partition.isr or partition.eligible_leader_replicas)
        if partition.leader < 0 and could and serves(machine, Replica(topic_id, number)):
            yield f"partition {number} has no leader, though broker {machine.broker_id} could lead"


PROPERTIES: tuple[LeadsTo, ...] = (
    LeadsTo("dead leader", "a leader on a dead disk leads to another or a dead broker", leader_on_dead_disk, True),
    LeadsTo("missing log", "a leader without a log leads to one with a log, another, or none", leader_without_log),
    LeadsTo("fenced", "a fenced broker with a disk that works leads to an unfenced or a dead one", fenced),
    LeadsTo("unassigned", "an unassigned replica of a live broker leads to an assigned one", unassigned),
    LeadsTo("queue", "assignments that wait lead to an empty queue", queued),
    LeadsTo("move", "a move leads to its end", moving),
    LeadsTo("unreported", "a failed directory leads to a registration without it", unreported),
    LeadsTo("misplaced", "a replica that is not where the metadata has it leads to one that is", misplaced),
    LeadsTo("gone leader", "a leader whose process is gone leads to another, or to a process", gone, True),
    LeadsTo("undelivered", "an unreported failure where the broker leads leads to its end", undelivered, True),
    LeadsTo("stopping", "a broker that was asked to stop leads to a dead one", stopping),
    LeadsTo("leaderless", "a replica that is in sync and served leads to a leader", leaderless),
)


class Marks:
    """The truth of each property in each state, as bits; results are cached."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.instances: list[tuple[LeadsTo, str]] = []
        self._bits: dict[tuple[LeadsTo, str], int] = {}
        self._pairs: dict[tuple[int, int], int] = {}

    def of(self, state: tuple[int, ...]) -> int:
        """The bits of a state; bit n is that of ``instances[n]``."""
        bits = 0
        for number in state[1:]:
            key = (state[0], number)
            known = self._pairs.get(key)
            if known is None:
                known = self._pairs[key] = self._pair(*key)
            bits |= known
        return bits

    def _pair(self, controller: int, number: int) -> int:
        image, machine = self.cluster.controller.images[controller], self.cluster.machines.states[number]
        bits = 0
        for each in PROPERTIES:
            if machine.cut and not each.alone:
                continue
            for problem in each.holds(image, machine):
                instance = (each, problem)
                if instance not in self._bits:
                    self._bits[instance] = 1 << len(self.instances)
                    self.instances.append(instance)
                bits |= self._bits[instance]
        return bits


def find_lassos(graph: Graph, cluster: Cluster) -> Iterator[Lasso]:
    """The shortest run that breaks each property, if one exists."""
    marks = Marks(cluster)
    bits = [marks.of(state) for state in graph.states]
    fairness = [(a.kind, a.broker_id, a.replica, a.detail) if a.fair else None for a in graph.actions]
    following: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for source, target, action in graph.edges():
        if bits[source] and fairness[action] is not None:
            following[source].append((target, action))
    broken: dict[str, tuple[int, list[int], int]] = {}
    for n, (each, _) in enumerate(marks.instances):
        bit = 1 << n
        inside = [number for number, known in enumerate(bits) if known & bit]
        for component in components(inside, following, bits, bit):
            first = min(component)
            if each.name in broken and broken[each.name][0] <= first:
                continue
            if _is_fair(component, following, fairness):
                broken[each.name] = (first, component, n)
    for first, component, n in broken.values():
        each, problem = marks.instances[n]
        cycle = _cycle(first, component, following, fairness)
        yield Lasso(each, problem, first, tuple((source, graph.actions[action]) for source, action in cycle))


def components(
    inside: list[int], following: dict[int, list[tuple[int, int]]], bits: list[int], bit: int
) -> Iterator[list[int]]:
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
        work = [(root, iter(following.get(root, ())))]
        while work:
            state, steps = work[-1]
            for target, _ in steps:
                if not bits[target] & bit:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(following.get(target, ()))))
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


def _is_fair(
    component: list[int], following: dict[int, list[tuple[int, int]]], fairness: list[Fairness | None]
) -> bool:
    """Whether a run may stay in the component: each step is taken inside it, or impossible somewhere in it."""
    members = set(component)
    always: set[Fairness | None] | None = None
    taken: set[Fairness | None] = set()
    for state in component:
        possible = set()
        for target, action in following.get(state, ()):
            possible.add(fairness[action])
            if target in members:
                taken.add(fairness[action])
        always = possible if always is None else always & possible
    return not (always or set()) - taken


def _cycle(
    first: int, component: list[int], following: dict[int, list[tuple[int, int]]], fairness: list[Fairness | None]
) -> list[tuple[int, int]]:
    """A short cycle from ``first`` through the component that is fair to every step."""
    members = set(component)
    everything = {fairness[action] for state in component for _, action in following.get(state, ())}
    cycle: list[tuple[int, int]] = []
    at = first
    owed = set(everything)

    def settle(state: int) -> None:
        owed.intersection_update({fairness[action] for _, action in following.get(state, ())})

    settle(at)
    while owed:
        way = _way(at, lambda _, action: fairness[action] in owed, members, following)
        other = _way(
            at,
            lambda state, _: bool(owed - {fairness[a] for _, a in following.get(state, ())}),
            members,
            following,
            before=True,
        )
        way = min((each for each in (way, other) if each), key=len)
        for source, action, target in way:
            cycle.append((source, action))
            owed.discard(fairness[action])
            at = target
            settle(at)
    back = _way(at, lambda state, _: state == first, members, following, before=True)
    cycle += [(source, action) for source, action, _ in back]
    return cycle


def _way(
    start: int,
    reached: Callable[[int, int], bool],
    members: set[int],
    following: dict[int, list[tuple[int, int]]],
    *,
    before: bool = False,
) -> list[tuple[int, int, int]]:
    """The shortest path inside the component to a wanted step, or (``before``) to a wanted state."""
    parents: dict[int, tuple[int, int]] = {}
    queue = deque([start])
    known = {start}

    def back(state: int) -> list[tuple[int, int, int]]:
        way: list[tuple[int, int, int]] = []
        while state != start or not way:
            if state not in parents:
                break
            source, action = parents[state]
            way.append((source, action, state))
            state = source
        return way[::-1]

    while queue:
        state = queue.popleft()
        if before and state != start and reached(state, -1):
            return back(state)
        for target, action in following.get(state, ()):
            if target not in members:
                continue
            if not before and reached(state, action):
                return [*back(state), (state, action, target)]
            if target not in known:
                known.add(target)
                parents[target] = (state, action)
                queue.append(target)
    return []
