"""The steps of a plan: which partitions move together, how long it takes, and what a failure would cost afterwards.

A partition is in one step only. Within a step nothing that leaves a disk has left it when something comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jbod_model.formats.metadata_version import ELR_FEATURE
from pipelines.ask.restart_columns import Flags, Numbers
from pipelines.ask.weights import COPY_RATE
from pipelines.plan.kernels import Order, sequence
from pipelines.plan.problem import Bytes, Loads, Problem
from pipelines.plan.solve import Solution, led_elsewhere

COSTS = ("last_replicas", "unclean", "under_min_isr")
"""What a failure costs, the worst first: the numbers of ``WorstFailure``."""
Rows = npt.NDArray[np.int64]
MOVES, STEP_BYTES = 500, 1 << 40
"""Replicas and bytes of a step at most, unless others are given."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a step."""

    moves: int = MOVES
    bytes: int = STEP_BYTES
    rate: int = COPY_RATE
    """Bytes that a broker may send, receive, and copy between its disks in a second."""


@dataclass(frozen=True)
class WorstFailure:
    """What the worst failure of one disk or broker would cost."""

    place: str
    """``/data/a of broker 1``; empty if there is none."""
    last_replicas: int
    """Partitions with no other replica online."""
    unclean: int
    """Partitions that would elect a replica that was not in sync, and lose the writes that it lacks."""
    under_min_isr: int
    """Partitions that would fall below min.insync.replicas."""


@dataclass(frozen=True)
class PlanStep:
    """Partitions that move together."""

    number: int
    rows: Rows
    partitions: int
    replicas: int
    """Copies that are made."""
    bytes: int | None
    """None if sizes are not known."""
    between_disks: int
    """Copies that stay on their broker."""
    seconds: float | None
    """At the rate, if every broker uses all of it."""
    disk: WorstFailure
    """The worst failure of a disk after the step."""
    broker: WorstFailure
    """The same of a broker."""
    waits: bool
    """Whether it needs room that the steps before it made: Kafka frees it after a while."""
    undo: Sequence[Rows]
    """What undoes it, in this order: partitions that can go back together."""
    undo_waits: Sequence[bool]
    """Whether each of these needs room that was made before it, in this step or since."""
    undo_full: Rows
    """Disks on which Kafka may first make a copy of the last of these, without room for it; empty if there are none."""


def changed(it: Problem, solution: Solution) -> Flags:
    """Partitions that the plan touches."""
    changes: Flags = (solution.place != solution.target).any(axis=1)
    if solution.first is not None:
        changes |= (solution.first > 0) | (led_elsewhere(it) > 0)
    return changes


def in_steps(it: Problem, solution: Solution, limits: Limits) -> tuple[Numbers, Flags, Rows]:
    """The step of each partition, from 1 on; 0: it does not move, or never fits. Then those that would fit if Kafka
    chose the disks of the plan at once, and the disks that it may choose without room for them.

    Partitions with the fewest replicas in sync come first.
    """
    rows = np.flatnonzero(changed(it, solution))
    in_sync = (it.state.isr & it.state.online).sum(axis=1)
    rows = rows[np.lexsort((rows, in_sync[rows]))].astype(np.int64)
    step = np.zeros(len(it.place), np.int32)
    most = limits.bytes if it.sized else np.iinfo(np.int64).max
    order = _order(it, solution)
    sequence(order, rows, limits.moves, most, step)
    never = rows[step[rows] == 0]
    kindly = step.copy()
    if len(never):
        sequence(order._replace(chosen=np.zeros(len(it.disks), bool)), never, limits.moves, most, kindly)
    only = (step == 0) & (kindly > 0)
    return step, only, _full(order, np.flatnonzero(only))


def _order(it: Problem, solution: Solution) -> Order:
    """What has to be put in order."""
    place, target, size = solution.place, solution.target, solution.size
    was = np.pad(it.bytes, ((0, 0), (0, place.shape[1] - it.bytes.shape[1])))
    disks = np.argsort(it.disks.broker, kind="stable").astype(np.int64)
    return Order(
        place=place,
        target=target,
        size=size,
        was=was,
        held=it.disks.load.copy(),
        limit=it.limit,
        broker=it.disks.broker,
        chosen=it.chosen,
        count=it.count.copy(),
        disks=disks,
        starts=np.searchsorted(it.disks.broker[disks], np.arange(len(it.state.brokers) + 1)),
    )


def _back(forth: Order) -> Order:
    """What undoes it. A disk that was too full before may be so again."""
    moved = forth.place != forth.target
    return forth._replace(
        place=forth.target,
        target=forth.place,
        size=np.where(moved, forth.was, 0),
        was=np.where(moved, forth.size, forth.was),
        limit=np.maximum(forth.limit, forth.held),
    )


def steps(
    it: Problem, solution: Solution, step: Numbers, limits: Limits
) -> tuple[Sequence[PlanStep], tuple[WorstFailure, WorstFailure]]:
    """The steps, and the worst failures of a disk and of a broker before the first."""
    place, target, size = solution.place, solution.target, solution.size
    copied = (target >= 0) & (target != place)
    safety = _Safety(it, place, target)
    now = safety.worst()
    order = np.argsort(step, kind="stable")
    ends = np.searchsorted(step[order], np.arange(1, int(step.max(initial=0)) + 2))
    parts = [np.sort(order[start:end]) for start, end in pairwise(ends)]
    plan_steps = []
    for number, (rows, room) in enumerate(zip(parts, _rooms(it, solution, parts), strict=True), 1):
        safety.done(rows)
        disk, broker = safety.worst()
        copies = copied[rows]
        own = copies & _own(it, place[rows], target[rows])
        amount = int(size[rows][copies].sum())
        plan_steps.append(
            PlanStep(
                number=number,
                rows=rows,
                partitions=len(rows),
                replicas=int(copies.sum()),
                bytes=amount if it.sized else None,
                between_disks=int(own.sum()),
                seconds=_busiest(it, rows, target[rows], np.where(copies, size[rows], 0), own) / limits.rate
                if it.sized
                else None,
                disk=disk,
                broker=broker,
                **room._asdict(),
            )
        )
    return plan_steps, now


class _Room(NamedTuple):
    """What a step, and what undoes it, need of the disks: as in ``PlanStep``."""

    waits: bool
    undo: Sequence[Rows]
    undo_waits: Sequence[bool]
    undo_full: Rows


def _rooms(it: Problem, solution: Solution, parts: Sequence[Rows]) -> Sequence[_Room]:
    """How the steps ``parts`` are undone, and where they have to wait for room.

    Kafka renames the folder of a replica that moved away, and deletes it after log.segment.delete.delay.ms
    (LogManager.asyncDelete). The same holds for a copy that Kafka made on another disk than the plan wants. Plans are
    undone from the last step to the first, after any of them.
    """
    forth = _order(it, solution)
    back = _back(forth)
    held, count, gone = forth.held, forth.count, np.zeros(len(it.disks))
    waits, undo, full, after = [], [], [], []
    for rows in parts:
        flow = _Flow.of(forth, rows)
        waits.append(flow.lacks(held + gone, forth.limit))
        gone = flow.gone(gone, waits[-1])
        held, count = held + flow.comes - flow.leaves, count + flow.copies
        after.append((held, gone))
        parted, crammed = _parted(back._replace(held=held.copy(), count=count.copy()), rows)
        undo.append(parted)
        full.append(crammed)
    gone = np.zeros(len(it.disks))
    undo_waits = []
    for undone, (left, kept) in zip(reversed(undo), reversed(after), strict=True):
        gone, held = np.maximum(gone, kept), left  # whether this step was the last, or one after it is undone
        flags = []
        for rows in undone:
            flow = _Flow.of(back, rows)
            flags.append(flow.lacks(held + gone, back.limit))
            gone = flow.gone(gone, flags[-1])
            held = held + flow.comes - flow.leaves
        undo_waits.append(flags)
    return [*map(_Room, waits, undo, reversed(undo_waits), full)]


def _parted(order: Order, rows: Rows) -> tuple[Sequence[Rows], Rows]:
    """Rows that can go together, part after part. Those that do not fit wherever Kafka makes their copies first come
    last; and the disks that have no room for them."""
    step = np.zeros(len(order.place), np.int32)
    number = sequence(order, rows, len(order.place) * order.place.shape[1], np.iinfo(np.int64).max, step)
    mine = step[rows]
    parts = [part for step_number in (*range(1, number + 1), 0) if len(part := rows[mine == step_number])]
    return parts, _full(order, rows[mine == 0])


def _full(order: Order, rows: Rows) -> Rows:
    """The disks that Kafka may choose first for one of ``rows``, and that lack room for it."""
    new, size = _new(order, rows), order.size[rows]
    brokers = len(order.starts)
    most, fewest = np.zeros(brokers), np.full(brokers, np.iinfo(np.int64).max)
    np.maximum.at(most, order.broker[order.target[rows][new]], size[new])
    np.minimum.at(fewest, order.broker[order.chosen], order.count[order.chosen])
    comes, first = most[order.broker], order.chosen & (order.count == fewest[order.broker])
    return np.flatnonzero(first & (comes > 0) & (order.held + comes > order.limit))


def _new(order: Order, rows: Rows) -> Flags:
    """Replicas that come to a broker which has none of the partition."""
    place, target = order.place[rows], order.target[rows]
    newcomers: Flags = (target >= 0) & (target != place) & ((place < 0) | (order.broker[place] != order.broker[target]))
    return newcomers


@dataclass(frozen=True)
class _Flow:
    """What moves when some partitions move together, by disk."""

    comes: Loads
    leaves: Loads
    strays: Loads
    """What may come first, as Kafka chooses among the disks of a broker for new replicas."""
    copies: Bytes
    """Replicas that it has more afterwards."""

    @classmethod
    def of(cls, order: Order, rows: Rows) -> _Flow:
        """Of ``rows``."""
        place, target, size, was = order.place[rows], order.target[rows], order.size[rows], order.was[rows]
        disks, moved = len(order.broker), place != target
        came, left = moved & (target >= 0), moved & (place >= 0)
        new = _new(order, rows)
        here = np.bincount(target[new], size[new], disks)
        there = np.bincount(order.broker[target[new]], size[new], len(order.starts))
        return cls(
            np.bincount(target[came], size[came], disks).astype(np.float64),
            np.bincount(place[left], was[left], disks).astype(np.float64),
            np.where(order.chosen, there[order.broker] - here, 0).astype(np.float64),
            np.bincount(target[came], minlength=disks) - np.bincount(place[left], minlength=disks),
        )

    def lacks(self, held: Loads, limit: Loads) -> bool:
        """Whether a disk has too little room."""
        more = self.comes + self.strays
        return bool(((more > 0) & (held + more > limit)).any())

    def gone(self, before: Loads, waited: bool) -> Loads:
        """What the disks still hold afterwards that has left them, besides ``before`` unless it ``waited`` for that."""
        mine = self.leaves + self.strays
        return mine if waited else before + mine


def _own(it: Problem, place: Numbers, target: Numbers) -> Flags:
    """Replicas whose broker stays the same."""
    same_broker: Flags = (place >= 0) & (target >= 0) & (it.disks.broker[place] == it.disks.broker[target])
    return same_broker


def _busiest(it: Problem, rows: Rows, target: Numbers, size: Bytes, own: Flags) -> float:
    """The most bytes that one broker sends, receives, or copies between its disks."""
    brokers = len(it.state.brokers)
    to = it.disks.broker[target]
    across = (size > 0) & ~own
    slot = it.state.leader[rows]
    leader = it.state.replicas[rows, np.where((slot >= 0) & (slot < it.state.replicas.shape[1]), slot, 0)]
    came = np.bincount(to[across], weights=size[across], minlength=brokers)
    sent = np.bincount(np.broadcast_to(leader[:, None], size.shape)[across], weights=size[across], minlength=brokers)
    inside = np.bincount(to[own], weights=size[own], minlength=brokers)
    return float(max(came.max(initial=0), sent.max(initial=0), inside.max(initial=0)))


# WHAT A FAILURE WOULD COST


class _Safety:
    """Counts, for each disk and broker, what its failure would cost; changes with each step.

    The counts are those of jbod risk (``pipelines.ask.risk``): an election takes the first replica in sync, then an
    eligible one, then the last known leader, then any if that is allowed.
    """

    def __init__(self, it: Problem, place: Numbers, target: Numbers) -> None:
        more = ((0, 0), (0, target.shape[1] - it.place.shape[1]))
        self._it, self._target, self._place = it, target, place
        state = it.state
        self._disk = np.pad(state.directory, more, constant_values=-1)
        self._online = np.pad(state.online, more)
        self._able = np.pad(state.can_lead, more)
        self._isr = np.pad(state.isr, more)
        self._elr = np.pad(state.elr, more)
        self._empty = np.pad(it.empty, more)
        self._last_known = np.pad(state.last_known_elr, more)
        self._leads = np.arange(target.shape[1]) == state.leader[:, None]
        wanted = np.array([setting.min_isr for setting in state.settings] or [1], np.int32)
        self._wanted = wanted[state.setting]
        self._unclean = np.array([setting.unclean for setting in state.settings] or [False], bool)[state.setting]
        self._with_elr = state.features.get(ELR_FEATURE, 0) >= 1
        self._counts = np.zeros((2, len(COSTS), len(it.disks)), np.int64)
        self._count(np.arange(len(place)), 1)

    def done(self, rows: Rows) -> None:
        """These partitions are as the plan wants them. A reassignment ends when all its replicas are in sync
        (R-REASSIGN-2); a move between disks changes no in-sync set."""
        self._count(rows, -1)
        it, target, place = self._it, self._target[rows], self._place[rows]
        new, there = target != place, target >= 0
        reassigned = (new & ~_own(it, place, target)).any(axis=1)[:, None]
        self._disk[rows] = np.where(new, target, self._disk[rows])
        for flags in (self._online, self._able):
            flags[rows] = np.where(new, there, flags[rows])
        self._isr[rows] = np.where(reassigned, there, self._isr[rows])
        for flags in (self._elr, self._last_known):
            flags[rows] &= ~reassigned
        self._count(rows, 1)

    def _count(self, rows: Rows, sign: int) -> None:
        """Of each slot: what the failure of its directory, and of its broker, would cost its partition."""
        disk, online, able, isr = self._disk[rows], self._online[rows], self._able[rows], self._isr[rows]
        elr, last_known = self._elr[rows], self._last_known[rows]
        size, in_sync = (disk >= 0).sum(axis=1), (isr & online).sum(axis=1)
        clean = _others(isr & able) > 0
        nobody_else = (isr.sum(axis=1)[:, None] - isr) == 0
        eligible = ~clean & nobody_else & (_others(elr & able) > 0)
        nobody = ((isr | elr).sum(axis=1) == 0) & (last_known.sum(axis=1) == 1) & self._with_elr
        known = nobody[:, None] & (_others(last_known & able) > 0)
        anybody = self._unclean[rows][:, None] & (_others(able) > 0)
        elected = ~clean & (eligible | known | anybody)
        # The first eligible replica that can lead is elected. The failing slot is another one: that of the leader.
        first = (elr & able).argmax(axis=1)[:, None]
        lacking = np.take_along_axis(self._empty[rows], first, axis=1)
        uncleanly = elected & np.where(eligible, lacking, _others(self._leads[rows] & able) == 0)
        after = np.where(elected, 1, in_sync[:, None] - (isr & online))
        wanted = np.minimum(self._wanted[rows], size)[:, None]
        last = online & (online.sum(axis=1) == 1)[:, None]
        under = (in_sync[:, None] >= wanted) & (after < wanted)
        for place, counted in enumerate((disk >= 0, (disk >= 0) & isr)):
            for at, hit in enumerate((last, uncleanly & counted, under & counted)):
                self._counts[place, at] += sign * np.bincount(disk[hit], minlength=len(self._it.disks))

    @cached_property
    def _places(self) -> tuple[Flags, Flags, Flags]:
        """The disks that can fail, those among them that are the only ones of their brokers; and the brokers."""
        it = self._it
        alive = [registration for registration in it.state.registered.values() if not registration.fenced]
        online = {
            (registration.broker_id, str(directory)): registration
            for registration in alive
            for directory in registration.directories or ()
        }
        brokers = it.state.brokers[it.disks.broker].tolist()
        of = [online.get((broker, directory)) for broker, directory in zip(brokers, it.disks.ids, strict=True)]
        return (
            np.array([registration is not None for registration in of], bool),
            np.array([registration is not None and len(registration.directories) == 1 for registration in of], bool),
            np.isin(it.state.brokers, [registration.broker_id for registration in alive]),
        )

    def worst(self) -> tuple[WorstFailure, WorstFailure]:
        """The worst failure of a disk, and of a broker."""
        it = self._it
        by_broker = np.zeros((len(COSTS), len(it.state.brokers)), np.int64)
        for at in range(len(COSTS)):
            np.add.at(by_broker[at], it.disks.broker, self._counts[1, at])
        listed, only, alive = self._places
        # Kafka stops when its last directory fails
        by_disk = np.where(only, by_broker[:, it.disks.broker], np.where(listed, self._counts[0], 0))
        by_broker[:, ~alive] = 0
        disk = int(np.lexsort(by_disk[::-1])[-1]) if len(it.disks) else -1
        broker = int(np.lexsort(by_broker[::-1])[-1]) if by_broker.size else -1
        return (
            _failure(it.disk_name(disk) if disk >= 0 else "", by_disk, disk),
            _failure(f"broker {int(it.state.brokers[broker])}" if broker >= 0 else "", by_broker, broker),
        )


def _others(flags: Flags) -> Numbers:
    """Of each slot: in how many others of its partition a flag is set."""
    others: Numbers = flags.sum(axis=1, dtype=np.int32)[:, None] - flags
    return others


def _failure(name: str, counts: Rows, at: int) -> WorstFailure:
    costs = [int(counts[number, at]) if at >= 0 else 0 for number in range(len(COSTS))]
    return WorstFailure(name if any(costs) else "", *costs)
