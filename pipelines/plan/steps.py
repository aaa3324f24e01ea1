"""The steps of a plan: which partitions move together, how long it takes, and what a failure would cost afterwards.

A partition is in one step only. Within a step nothing that leaves a disk has left it when something comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.ask.restart_columns import Flags, Numbers
from pipelines.ask.weights import COPY_RATE
from pipelines.plan.kernels import sequence
from pipelines.plan.problem import Bytes, Problem
from pipelines.plan.solve import Solution

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
class Failure:
    """What the worst failure of one disk or broker would cost."""

    place: str
    """``/data/a of broker 1``; empty if there is none."""
    last_replicas: int
    """Partitions with no other replica online."""
    under_min_isr: int
    """Partitions that would fall below min.insync.replicas."""


@dataclass(frozen=True)
class Step:
    """Partitions that move together."""

    number: int
    rows: npt.NDArray[np.int64]
    partitions: int
    replicas: int
    """Copies that are made."""
    bytes: int | None
    """None if sizes are not known."""
    between_disks: int
    """Copies that stay on their broker."""
    seconds: float | None
    """At the rate, if every broker uses all of it."""
    disk: Failure
    """The worst failure of a disk after the step."""
    broker: Failure
    """The same of a broker."""


def final_state(it: Problem, solution: Solution) -> tuple[Numbers, Numbers, Bytes]:
    """The place of each replica before and after, as wide as the target; and the bytes of each copy."""
    more = solution.target.shape[1] - it.place.shape[1]
    place = np.pad(it.place, ((0, 0), (0, more)), constant_values=-1)
    return place, solution.target, solution.size


def changed(it: Problem, solution: Solution) -> Flags:
    """Partitions that the plan touches."""
    place, target, _ = final_state(it, solution)
    found: Flags = (place != target).any(axis=1)
    if solution.first is not None:
        found |= solution.first > 0
    return found


def in_steps(it: Problem, solution: Solution, limits: Limits) -> Numbers:
    """The step of each partition, from 1 on; 0: it does not move, or never fits.

    Partitions with the fewest replicas in sync come first.
    """
    place, target, size = final_state(it, solution)
    rows = np.flatnonzero(changed(it, solution))
    in_sync = (it.state.isr & it.state.online).sum(axis=1)
    rows = rows[np.lexsort((rows, in_sync[rows]))].astype(np.int64)
    step = np.zeros(len(place), np.int32)
    most = limits.bytes if it.sized else np.iinfo(np.int64).max
    held = it.disks.load.copy()
    was = np.pad(it.bytes, ((0, 0), (0, place.shape[1] - it.bytes.shape[1])))
    sequence(place, target, size, was, held, it.limit, rows, limits.moves, most, step)
    return step


def steps(
    it: Problem, solution: Solution, step: Numbers, limits: Limits
) -> tuple[Sequence[Step], tuple[Failure, Failure]]:
    """The steps, and the worst failures of a disk and of a broker before the first."""
    place, target, size = final_state(it, solution)
    copied = (target >= 0) & (target != place)
    safety = _Safety(it, place, target)
    now = safety.worst()
    order = np.argsort(step, kind="stable")
    ends = np.searchsorted(step[order], np.arange(1, int(step.max(initial=0)) + 2))
    found = []
    for number in range(1, len(ends)):
        rows = np.sort(order[ends[number - 1] : ends[number]])
        safety.done(rows)
        disk, broker = safety.worst()
        copies = copied[rows]
        own = copies & _own(it, place[rows], target[rows])
        amount = int(size[rows][copies].sum())
        found.append(
            Step(
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
            )
        )
    return found, now


def _own(it: Problem, place: Numbers, target: Numbers) -> Flags:
    """Replicas whose broker stays the same."""
    found: Flags = (place >= 0) & (target >= 0) & (it.disks.broker[place] == it.disks.broker[target])
    return found


def _busiest(it: Problem, rows: npt.NDArray[np.int64], target: Numbers, size: Bytes, own: Flags) -> float:
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
    """Counts, for each disk and broker, what its failure would cost; changes with each step."""

    def __init__(self, it: Problem, place: Numbers, target: Numbers) -> None:
        more = ((0, 0), (0, target.shape[1] - it.place.shape[1]))
        self._it, self._target, self._place = it, target, place
        state = it.state
        self._disk = np.pad(it.state.directory, more, constant_values=-1)
        self._online = np.pad(state.online, more)
        self._in_sync = np.pad(state.isr & state.online, more)
        wanted = np.array([one.min_isr for one in state.settings] or [1], np.int32)
        self._wanted = wanted[state.setting]
        self._counts = np.zeros((2, len(it.disks)), np.int64)
        self._count(np.arange(len(place)), 1)

    def done(self, rows: npt.NDArray[np.int64]) -> None:
        """These partitions are as the plan wants them: what was copied is in sync."""
        self._count(rows, -1)
        new = self._target[rows] != self._place[rows]
        self._disk[rows] = np.where(new, self._target[rows], self._disk[rows])
        there = self._target[rows] >= 0
        self._online[rows] = np.where(new, there, self._online[rows])
        self._in_sync[rows] = np.where(new, there, self._in_sync[rows])
        self._count(rows, 1)

    def _count(self, rows: npt.NDArray[np.int64], sign: int) -> None:
        disk, online, in_sync = self._disk[rows], self._online[rows], self._in_sync[rows]
        size = (disk >= 0).sum(axis=1)
        number = in_sync.sum(axis=1)
        under = in_sync & (number == np.minimum(self._wanted[rows], size))[:, None]
        last = online & (online.sum(axis=1) == 1)[:, None]
        for at, hit in enumerate((last, under)):
            self._counts[at] += sign * np.bincount(disk[hit], minlength=len(self._it.disks))

    def worst(self) -> tuple[Failure, Failure]:
        """The worst failure of a disk, and of a broker."""
        it = self._it
        by_broker = np.zeros((2, len(it.state.brokers)), np.int64)
        for at in range(2):
            np.add.at(by_broker[at], it.disks.broker, self._counts[at])
        disk = int(np.lexsort((self._counts[1], self._counts[0]))[-1]) if len(it.disks) else -1
        broker = int(np.lexsort((by_broker[1], by_broker[0]))[-1]) if by_broker.size else -1
        return (
            _failure(it.disk_name(disk) if disk >= 0 else "", self._counts, disk),
            _failure(f"broker {int(it.state.brokers[broker])}" if broker >= 0 else "", by_broker, broker),
        )


def _failure(name: str, counts: npt.NDArray[np.int64], at: int) -> Failure:
    last, under = (int(counts[0, at]), int(counts[1, at])) if at >= 0 else (0, 0)
    return Failure(name if last or under else "", last, under)
