"""One solver for all plans: the largest replicas first, each onto the emptiest disk that may take it.

Where disks are to be even, a window of levels is computed first: the one that the fewest bytes have to cross. Disks
above it give, disks below it take. What has to cross it is a lower bound: no plan that ends in so narrow a window moves
fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.ask.advice import brokers_in_words
from pipelines.ask.restart_columns import Flags, Numbers
from pipelines.plan.goals import BYTES, LEADERS, REPLICAS, Goal, visible
from pipelines.plan.kernels import NO_BROKER, NO_RACK, NO_ROOM, ClusterArrays, even, lead, settle
from pipelines.plan.problem import OPEN, Bytes, Loads, Problem

SPREAD = 0.02
"""How far apart the levels of even disks may be: a part of a disk's size; of the fullest if sizes are not known."""
_HALVINGS = 60
FULL = "no disk has room"


@dataclass(frozen=True)
class Window:
    """Levels between which even disks are, and how much has to cross them at least."""

    low: float
    high: float
    bound: float


@dataclass(frozen=True)
class Lack:
    """Replicas for which there is no target, for one reason."""

    reason: str
    replicas: int
    example: str
    """The partition of one of them, ``topic-0``. If there is no room, of the one that lacks least."""
    disk: str = ""
    """If there is no room: the disk that lacks least."""
    bytes: int = 0
    """What it lacks."""


@dataclass(frozen=True)
class Solution:
    """Where every replica is in the end."""

    place: Numbers
    """Partition, slot -> disk before it; -1 for none. As wide as ``target``."""
    target: Numbers
    """Partition, slot -> disk; -1 for none. Slots after the replicas of now are new ones."""
    size: Bytes
    """Partition, slot: the bytes of the copy that is made there, 0 for none."""
    lacks: Sequence[Lack] = ()
    """Why the goal is not reached; the first is the smallest reason."""
    first: Bytes | None = None
    """For leaders: the slot of each partition that comes first in the file."""


def solve(it: Problem, goal: Goal) -> Solution:
    """The targets of a goal."""
    if goal.even == LEADERS:
        return _even_leaders(it, goal)
    goal, barred = _possible(it, goal)
    width = int((it.state.count + goal.adds).max(initial=1))
    more = max(0, width - it.place.shape[1])
    place = np.pad(it.place, ((0, 0), (0, more)), constant_values=-1)
    bytes_of = np.pad(it.bytes, ((0, 0), (0, more)))
    start = np.where(np.pad(goal.drops, ((0, 0), (0, more))), -1, place)
    lacks = [*barred]
    while True:
        cluster = _cluster(it, goal, start.copy(), bytes_of.copy())
        half, reasons = _settle(it, goal, cluster)
        lacks += reasons
        if not len(half):
            break
        left = np.isin(np.arange(len(start)), half, invert=True)  # the others find targets without what these took
        goal = replace(goal, leaves=goal.leaves & left[:, None], adds=goal.adds * left)
    if goal.even:
        _even(it, goal, cluster)
    return Solution(place, cluster.place, _copies(it, place, cluster), _by_reason(lacks))


def _by_reason(lacks: Sequence[Lack]) -> list[Lack]:
    """One lack of each reason."""
    groups: dict[str, list[Lack]] = {}
    for lack in lacks:
        groups.setdefault(lack.reason, []).append(lack)
    return [
        replace(min(group, key=lambda lack: lack.bytes), replicas=sum(lack.replicas for lack in group))
        for group in groups.values()
    ]


def _copies(it: Problem, place: Numbers, cluster: ClusterArrays) -> Bytes:
    """The bytes of each copy that is made: of the largest replica on another broker, else its own."""
    was, now = np.where(place >= 0, place, 0), np.where(cluster.place >= 0, cluster.place, 0)
    stays = (place >= 0) & (it.disks.broker[was] == it.disks.broker[now])
    size = np.where(stays, cluster.bytes, it.largest[:, None])
    copied_bytes: Bytes = np.where((cluster.place >= 0) & (cluster.place != place), size, 0)
    return copied_bytes


def _cluster(it: Problem, goal: Goal, place: Numbers, bytes_of: Bytes) -> ClusterArrays:
    counted = goal.even == REPLICAS or not it.sized
    there = (place >= 0).astype(np.int64)
    load = np.bincount(place[place >= 0], minlength=len(it.disks)).astype(np.float64) if counted else it.disks.load
    return ClusterArrays(
        place=place,
        began=place.copy(),
        load=load.copy(),
        fit=it.disks.parts.astype(np.float64) if counted else it.fit,
        held=it.disks.load.copy(),
        limit=it.limit,
        takes=(goal.takes & (it.disks.state == OPEN)).copy(),
        chosen=it.chosen,
        count=it.count.copy(),
        room=np.full(len(it.state.brokers), np.inf),
        late=it.late,
        reads=it.disks.whole,
        broker=it.disks.broker,
        rack=it.racks,
        weight=there if counted else bytes_of,
        bytes=bytes_of,
        largest=it.largest,
    )


# REPLICAS THAT HAVE TO GO


def _settle(it: Problem, goal: Goal, cluster: ClusterArrays) -> tuple[Bytes, list[Lack]]:
    """Finds targets for the replicas that leave or are added. Returns why some have none.

    If there are partitions of which only a part of the replicas has one, returns these, and why the others have none:
    a file with a part of what such a partition needs may name a broker that is down.
    """
    free = cluster.place < 0
    padded = np.pad(goal.leaves, ((0, 0), (0, free.shape[1] - goal.leaves.shape[1])))
    new = free & (free.cumsum(axis=1) <= goal.adds[:, None])
    rows, slots = np.nonzero((padded & ~free) | new)
    added = new[rows, slots]
    cluster.bytes[rows[added], slots[added]] = it.largest[rows[added]]
    if cluster.weight is not cluster.bytes:
        cluster.weight[rows, slots] = 1
    order = np.lexsort((slots, rows, -it.largest[rows]))
    rows, slots = rows[order].astype(np.int64), slots[order].astype(np.int64)
    why, lack, near = np.zeros(len(rows), np.int64), np.zeros(len(rows)), np.zeros(len(rows), np.int64)
    settle(cluster, rows, slots, goal.own_first, why, lack, near)
    half = np.intersect1d(rows[why < 0], rows[why >= 0])
    shown = np.isin(rows, half) if len(half) else np.ones(len(rows), bool)
    return half, _reasons(it, goal, rows[shown], why[shown], lack[shown], near[shown])


def _possible(it: Problem, goal: Goal) -> tuple[Goal, list[Lack]]:
    """The goal without the partitions that no plan can touch, and what is lacking for them."""
    wishes = goal.leaves.sum(axis=1) + goal.drops.sum(axis=1) + goal.adds
    lacks, left = [], np.ones(len(wishes), bool)
    for reason, barred in _barred(it, goal).items():
        hit = np.flatnonzero(barred & left & (wishes > 0))
        if len(hit):
            lacks.append(Lack(reason, int(wishes[hit].sum()), it.state.name(int(hit[0]))))
            left[hit] = False
    rest = left[:, None]
    return replace(goal, leaves=goal.leaves & rest, drops=goal.drops & rest, adds=goal.adds * left), lacks


def movable(it: Problem) -> Flags:
    """Partitions that a plan may touch at will: they have a leader, no move is under way, and every broker runs."""
    stays = it.runs[it.state.replicas] | ~it.state.there
    led: Flags = (it.state.leader >= 0) & ~it.busy & stays.all(axis=1)
    return led


def _barred(it: Problem, goal: Goal) -> Mapping[str, Flags]:
    """Partitions that no plan can touch, by reason."""
    stays = it.state.there & ~goal.leaves & ~goal.drops & ~it.runs[it.state.replicas]
    down, stopping = (np.any(stays & those, axis=1) for those in (~it.state.online, it.state.online))
    return {
        "a move of the partition is under way, which is left alone: plan again when it is done": it.busy,
        "no complete copy of the partition is online: jbod offline says what can be done": it.state.leader < 0,
        "another broker of the partition is down, which Kafka's tool refuses: jbod plan repair comes first": down,
        "another broker of the partition is shutting down: plan again when it is back, or down": stopping,
    }


def _reasons(it: Problem, goal: Goal, rows: Bytes, why: Bytes, lack: Loads, near: Bytes) -> list[Lack]:
    """Why replicas have no target. Of those without room, what the nearest disk lacks."""
    reasons = []
    hit = np.flatnonzero(why == NO_ROOM)
    if len(hit):
        least = int(hit[lack[hit].argmin()])
        disk, lacks = it.disk_name(int(near[least])), int(np.ceil(lack[least]))
        reasons.append(Lack(FULL, len(hit), it.state.name(int(rows[least])), disk, lacks))
    for reason, text in (
        (NO_RACK, "every disk that could take it would leave it in fewer racks"),
        (NO_BROKER, "no disk of a broker without a replica of it can take it"),
    ):
        hit = np.flatnonzero(why == reason)
        if len(hit):
            closed = _closed(it, goal, np.unique(rows[hit])) if reason == NO_BROKER else ""
            reasons.append(Lack(text + closed, len(hit), it.state.name(int(rows[hit[0]]))))
    return reasons


def _closed(it: Problem, goal: Goal, rows: Bytes) -> str:
    """The disks that could take a replica of ``rows`` if their state, or a failure before, allowed it."""
    goes = goal.leaves & it.disks.whole[it.place]  # to another disk of its broker, if need be
    stays = np.bincount(it.state.replicas[rows][(it.state.there & ~goes)[rows]], minlength=len(it.state.brokers))
    registered = np.isin(it.state.brokers, [*it.state.registered])  # a disk of another can never take one
    could = visible(it.disks) & registered[it.disks.broker]
    targets = could & (stays[it.disks.broker] < len(rows)) & (it.disks.state != OPEN)
    shut = [disk for disk in np.flatnonzero(targets).tolist() if disk not in goal.emptied]
    late = it.state.brokers[np.setdiff1d(it.late[rows], -1)].tolist()
    back = [f"{brokers_in_words(late)}, where its disk failed: after a restart only"] if late else []
    reasons = [*filter(None, [it.why_all_closed(shut)]), *back]
    return f" ({'; '.join(reasons)})" if reasons else ""


# EVEN DISKS


def _even(it: Problem, goal: Goal, cluster: ClusterArrays) -> None:
    """Moves replicas until the disks are even."""
    width = _tolerance(it, cluster, goal.gives | cluster.takes)
    window = narrowest(cluster.load, cluster.fit, goal.gives, cluster.takes, width)
    free = np.zeros(cluster.place.shape, bool)
    free[movable(it)] = True
    there = np.flatnonzero(cluster.place.ravel() >= 0)
    on = cluster.place.ravel()[there]
    order = np.lexsort((cluster.weight.ravel()[there], on))
    starts = np.searchsorted(on[order], np.arange(len(it.disks) + 1))
    free &= cluster.place >= 0
    even(cluster, goal.gives, window.low, window.high, starts, there[order].astype(np.int64), free)


def least(it: Problem, goal: Goal, after: float) -> float:
    """What any plan has to move that leaves the disks no further apart than ``after``, or than is even enough. Leaders
    and replicas move whole."""
    if not goal.even:
        return 0.0
    if goal.even == LEADERS:
        pool = _brokers(it, goal)
        number = _first_replicas(it, led_elsewhere(it)).astype(np.float64)
        bound = narrowest(number, np.ones(len(number)), pool, pool, after).bound
    else:
        began = _cluster(it, goal, it.place, it.bytes)
        width = max(after, _tolerance(it, began, goal.gives | began.takes))
        bound = narrowest(began.load, began.fit, goal.gives, began.takes, width).bound
    return bound if goal.even == BYTES else float(np.ceil(round(bound, 6)))


def _tolerance(it: Problem, cluster: ClusterArrays, pool: Flags) -> float:
    """How far apart the levels may be, in their unit."""
    if it.by_size and cluster.weight is cluster.bytes:
        return SPREAD
    level = float((cluster.load[pool] / cluster.fit[pool]).max(initial=0))
    return max(SPREAD * level, 0.0 if cluster.weight is cluster.bytes else 1.0)


@dataclass(frozen=True)
class Spread:
    """How even the disks of a goal are, or its brokers if leaders are to be even."""

    size: float = 0.0
    """Between the fullest and the emptiest: in parts of a disk's size, bytes, replicas or leaders."""
    ends: Sequence[str] = ()
    """The fullest and the emptiest, with what keeps it from getting more; none if they are even enough."""


def spread(it: Problem, goal: Goal, place: Numbers, first: Bytes | None) -> Spread:
    """How even the disks of a goal are with the replicas on these disks, and these slots as first replicas."""
    if not goal.even:
        return Spread()
    if goal.even == LEADERS:
        number = _first_replicas(it, led_elsewhere(it) if first is None else first).astype(np.float64)
        brokers = np.flatnonzero(_brokers(it, goal))
        return _spread(
            number,
            brokers,
            max(1.0, SPREAD * number.max(initial=0)),
            lambda broker: f"broker {it.state.brokers[broker]}",
        )
    pool = goal.gives | (goal.takes & (it.disks.state == OPEN))
    began = _cluster(it, goal, it.place, it.bytes)
    there = place[:, : it.place.shape[1]]
    moved = there != it.place
    load = began.load + np.bincount(there[moved], weights=began.weight[moved], minlength=len(it.disks))
    load -= np.bincount(it.place[moved], weights=began.weight[moved], minlength=len(it.disks))
    among = goal.gives[goal.takes].all()  # not so if a single disk is to be filled
    enough = _tolerance(it, began, pool) if among else np.inf
    return _spread(load / began.fit, np.flatnonzero(pool), enough, it.state_of)


def _spread(levels: Loads, among: Bytes, enough: float, name: Callable[[int], str]) -> Spread:
    fullest, emptiest = among[levels[among].argmax()], among[levels[among].argmin()]
    size = float(levels[fullest] - levels[emptiest])
    return Spread(size, (name(int(fullest)), name(int(emptiest))) if size > enough + 1e-9 else ())


def narrowest(load: Loads, fit: Loads, gives: Flags, takes: Flags, width: float) -> Window:
    """The window of levels of this width that the least has to cross.

    What is above it has to leave the disks that give, and what is missing below it has to come to those that take. The
    first falls as the window rises, and the second grows: the least is where they are equal.
    """
    pool = gives | takes
    if not pool.any():
        return Window(0.0, 0.0, 0.0)
    levels = load[pool] / fit[pool]
    low, up = float(levels.min()) - width, float(levels.max())

    def crossing(bottom: float) -> tuple[float, float]:
        over = np.maximum(0, load - (bottom + width) * fit)[gives].sum()
        return float(over), float(np.maximum(0, bottom * fit - load)[takes].sum())

    for _ in range(_HALVINGS):
        middle = (low + up) / 2
        over, under = crossing(middle)
        low, up = (middle, up) if over > under else (low, middle)
    bound = min(max(crossing(low)), max(crossing(up)))
    return Window(up, up + width, bound)


# LEADERS


def _even_leaders(it: Problem, goal: Goal) -> Solution:
    """Puts another replica first where a broker is the first of too many partitions. Nothing is copied."""
    state = it.state
    first = np.zeros(len(it.place), np.int64)
    pool = _brokers(it, goal)
    able = state.isr & state.can_lead & movable(it)[:, None] & pool[state.replicas]
    number = _first_replicas(it, first).astype(np.float64)
    ones = np.ones(len(number))
    window = narrowest(number, ones, pool, pool, max(1.0, SPREAD * float(number.max(initial=0))))
    lead(state.replicas, able, number, pool, np.ceil(window.low), np.floor(window.high), first)
    return Solution(it.place, it.place, np.zeros(it.place.shape, np.int64), (), first)


def led_elsewhere(it: Problem) -> Bytes:
    """The slot of the leader of each partition, 0 where an election of preferred leaders would not move it."""
    first: Flags = movable(it) & (it.state.isr & it.state.can_lead)[:, 0]
    return np.where(first, it.state.leader, 0).astype(np.int64)


def _brokers(it: Problem, goal: Goal) -> Flags:
    """The brokers of the disks of a goal."""
    brokers = np.zeros(len(it.state.brokers), bool)
    brokers[it.disks.broker[goal.gives]] = True
    return brokers


def _first_replicas(it: Problem, first: Bytes) -> Bytes:
    """Of how many partitions each broker is the first replica."""
    leads = it.state.replicas[np.arange(len(first)), first]
    counts: Bytes = np.bincount(leads[leads >= 0], minlength=len(it.state.brokers))
    return counts
