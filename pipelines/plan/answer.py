"""A plan from the goal to what has to be typed, and the judgment of the reference controller on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from jbod_model.errors import UsageError
from jbod_model.formats.metadata_version import METADATA_VERSION, cordons_supported
from pipelines.ask import restart_columns
from pipelines.ask.configs import features, unseen_disks
from pipelines.ask.json_values import DatedAnswer, jsonable, members
from pipelines.ask.plan_check import BLOCKING, read_plan
from pipelines.lake.reader import Lake
from pipelines.plan import files
from pipelines.plan.files import entries
from pipelines.plan.goals import BYTES, LEADERS, Goal
from pipelines.plan.problem import ANY, CORDONED, DOWN, HEADROOM, OFFLINE, Problem, problem
from pipelines.plan.solve import Lack, Solution, least, solve, spread
from pipelines.plan.steps import Limits, PlanStep, WorstFailure, changed, in_steps, steps

DEADLOCK = "no order of the moves leaves every disk enough room while both copies exist"
BESIDE = (
    "other reassignments are under way: the throttle takes the place of theirs, and --verify takes it away only when "
    "no reassignment is left: type the last one again then"
)
CHOICE = "Kafka may first make the copy on a disk without room for it, {}: cordon it (KIP-1066)"


@dataclass(frozen=True)
class MovePlan(DatedAnswer):
    """The answer."""

    title: str
    """What it does, after the number of replicas: ``leave /data/a of broker 1``."""
    aim: str
    """The same as an order: ``empty /data/a of broker 1``."""
    steps: Sequence[PlanStep]
    lacks: Sequence[Lack]
    """Why the goal is not reached; the smallest reason first. Empty if it is reached."""
    notes: Sequence[str]
    sized: bool
    now: tuple[WorstFailure, WorstFailure]
    """What the worst failure of a disk, and of a broker, would cost before the first step."""
    measure: str
    """What is even afterwards: bytes, replicas or leaders; empty for other goals."""
    by_size: bool
    """Whether spreads are parts of a disk's size. Else they are bytes, replicas or leaders."""
    spread: tuple[float, float]
    """Between the fullest and the emptiest disk, before and after."""
    ends: Sequence[str]
    """The fullest and the emptiest of them after it, if that is not even enough; else empty."""
    bound: float
    """No plan with such a spread moves less."""
    documents: Mapping[str, Any]
    """File name -> what kafka-reassign-partitions takes."""
    before: Sequence[str]
    """Commands before the first step."""
    uncordons: Sequence[str]
    """What takes the cordon among them back."""
    down: Sequence[int]
    """Brokers of the partitions that are down. The throttles are set without them."""
    brokers: Sequence[int]
    """Brokers that send or receive, and run."""
    topics: Sequence[str]
    under_way: bool
    """Whether other partitions are being reassigned."""
    removed: int
    """Replicas that go without another in their place."""
    undone: int
    """Partitions that the undo files bring back."""
    paths: Mapping[str, str]
    """File name -> the path that it was written to; empty if it was not."""
    rate: int

    @property
    def exit_code(self) -> int:
        """0: the plan reaches its goal, 1: it does not."""
        return 1 if self.lacks else 0

    @property
    def replicas(self) -> int:
        """Copies that are made."""
        return sum(step.replicas for step in self.steps)

    @property
    def partitions(self) -> int:
        """Partitions that are touched."""
        return sum(step.partitions for step in self.steps)

    @property
    def bytes(self) -> int | None:
        """None if sizes are not known."""
        return sum(step.bytes or 0 for step in self.steps) if self.sized else None

    @property
    def seconds(self) -> float | None:
        """Of all steps, one after another."""
        return sum(step.seconds or 0 for step in self.steps) if self.sized else None

    @property
    def commands(self) -> Sequence[str]:
        """What has to be typed, in order, each step when the one before is done."""
        lines = [*self.before]
        for step in self.steps:
            if step.waits:
                lines.append(files.WAIT)
            file = self.path_of(files.STEP.format(step.number))
            lines.append(files.executes(file, {} if self.down else self._rates(step), additional=self.under_way))
            lines.append(files.verifies(file, preserve=bool(self.down)))
            lines += [files.elects(file)] if self.measure == LEADERS else []
        return [*lines, *(files.unthrottles(self.brokers, self.topics) if self.down else [])]

    @property
    def undo(self) -> Sequence[str]:
        """What undoes it: cordons are as before, then the files, from the last step that was begun to the first."""
        lines = [*self.uncordons]
        for step in reversed(self.steps):
            for part, waits in enumerate(step.undo_waits, 1):
                name = files.undo_name(step.number, part)
                if name in self.documents:
                    file = self.path_of(name)
                    lines += [files.cancels(file)] if step.replicas > step.between_disks or self.removed else []
                    lines += [files.WAIT] if waits else []
                    rates = self._rates(step, removed=self.removed)
                    lines += [files.executes(file, rates, additional=True), files.verifies(file)]
                    lines += [files.elects(file)] if self.measure == LEADERS else []
        return lines

    def _rates(self, step: PlanStep, removed: int = 0) -> dict[str, int]:
        """The throttles of what copies as a step, with ``removed`` replicas that come back besides."""
        options = {
            "--throttle": step.replicas + removed - step.between_disks,
            "--replica-alter-log-dirs-throttle": step.between_disks,
        }
        return {option: self.rate for option, copies in options.items() if copies}

    def path_of(self, name: str) -> str:
        """Where a file is, or its name."""
        return self.paths.get(name, name)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            **members(self, "offset", "time", "title"),
            "reached": not self.lacks,
            **members(self, "partitions", "replicas", "removed", "bytes", "seconds", "measure", "by_size"),
            "spread": self.spread[0],
            "spread_after": self.spread[1],
            **members(self, "ends", "bound"),
            "disk_now": jsonable(self.now[0]),
            "broker_now": jsonable(self.now[1]),
            **members(self, "lacks", "notes"),
            "commands": list(self.commands) if self.steps else [],
            "undo": list(self.undo) if self.steps else [],
            "files": dict(self.documents),
        }


def plan(
    lake: Lake,
    goal_of: Callable[[Problem], Goal],
    sources: Sequence[str] = (),
    limits: Limits | None = None,
    default_min_isr: int = 1,
    headroom: int = HEADROOM,
    into: str | None = None,
) -> MovePlan:
    """The plan of a goal at the lake's offset. ``into``: the folder to write its files to, if there is a plan."""
    limits = limits or Limits()
    if sources and (why := unseen_disks(lake)):
        raise UsageError(f"{why.partition(': ')[0]}, so nothing is known of disks: leave out --sizes to count replicas")
    it = problem(lake, sources, default_min_isr, headroom)
    goal = goal_of(it)
    solution = solve(it, goal)
    lacks = [*solution.lacks]
    rows = np.flatnonzero(changed(it, solution))
    refused, bad = blocked(lake, it, solution, rows, default_min_isr)
    solution = _without(solution, bad)
    if not goal.even:
        lacks += refused
    step, kindly, full = in_steps(it, solution, limits)
    never = changed(it, solution) & (step == 0)
    choice = f"{CHOICE.format(it.disk_names(full.tolist()))}, or lower --headroom"
    for reason, hit in ((DEADLOCK, np.flatnonzero(never & ~kindly)), (choice, np.flatnonzero(never & kindly))):
        if len(hit):
            solution = _without(solution, hit)
            if not goal.even:
                lacks.append(Lack(reason, len(hit), it.state.name(int(hit[0]))))
    if lacks and not goal.partial:
        step = np.zeros_like(step)
    return _answer(lake, it, goal, solution, step, lacks, limits, into)


@dataclass(frozen=True)
class Back:
    """A partition as it is now."""

    topic: str
    partition: int
    replicas: Sequence[int]
    log_dirs: Sequence[str]
    """A path for each replica, ``any`` where it is not known."""


@dataclass(frozen=True)
class Undo(DatedAnswer):
    """The answer to: what brings these partitions back to where they are now?"""

    partitions: Sequence[Back]
    left_out: Sequence[str]
    """Partitions of the file that it lacks: there is none of that name, a broker or a disk of it is down, or it is
    being reassigned."""
    path: str
    """Where it was written; empty if it was not."""
    rate: int
    """Bytes a second of each broker."""
    not_in_json = ("path", "rate")
    also_in_json = ("cancel", "command", "verify")

    @property
    def cancel(self) -> str:
        """What has to come before it, if the file that it undoes is under way."""
        return files.cancels(self.path or files.UNDO)

    @property
    def command(self) -> str:
        """What executes it. Which copies it makes depends on how far the other file is then."""
        rates = {"--throttle": self.rate}
        if any(path != ANY for partition in self.partitions for path in partition.log_dirs):
            rates["--replica-alter-log-dirs-throttle"] = self.rate
        return files.executes(self.path or files.UNDO, rates, additional=True)

    @property
    def verify(self) -> str:
        """What says whether it is done, and takes the throttles away."""
        return files.verifies(self.path or files.UNDO)


def undo(lake: Lake, file: str, sources: Sequence[str] = (), into: str | None = None, rate: int = Limits.rate) -> Undo:
    """The file that brings the partitions of another one back to where they are now.

    ``rate``: bytes a second of each broker, to which its copies are throttled.
    """
    reassignment = read_plan(file)
    it = problem(lake, sources)
    reversal = files.undo(it, np.array([*it.state.among(reassignment)], np.int64))
    left_out = [f"{topic}-{number}" for topic, number in reassignment if (topic, number) not in reversal]
    written = files.write(into, {files.UNDO: files.document(reversal)}) if into and reversal else {}
    rows = [
        Back(topic, number, partition.replicas, partition.log_dirs) for (topic, number), partition in reversal.items()
    ]
    return Undo(lake.offset, lake.time, rows, left_out, written.get(files.UNDO, ""), rate)


def _answer(
    lake: Lake,
    it: Problem,
    goal: Goal,
    solution: Solution,
    step: Any,
    lacks: Sequence[Lack],
    limits: Limits,
    into: str | None,
) -> MovePlan:
    listed, now = steps(it, solution, step, limits)
    moved = np.flatnonzero(step > 0)
    documents, undone = {}, 0
    for plan_step in listed:
        documents[files.STEP.format(plan_step.number)] = files.document(files.entries(it, solution, plan_step.rows))
        for part, rows in enumerate(plan_step.undo, 1):
            if back := files.undo(it, rows, solution):
                documents[files.undo_name(plan_step.number, part)] = files.document(back)
                undone += len(back)
    written = files.write(into, documents) if into and listed else {}
    before, uncordons, notes = _cordons(lake, it, goal) if listed else ([], [], [])
    across = _across(it, solution, moved)
    down = sorted({*it.state.brokers[_brokers(it, across)].tolist()} - {*it.state.brokers[it.runs].tolist()})
    brokers, topics = [], []
    if down:
        both = [*_brokers(it, moved), *it.disks.broker[solution.target[moved][solution.target[moved] >= 0]]]
        brokers = [int(broker_id) for broker_id in it.state.brokers[np.unique(both)] if int(broker_id) not in down]
        topics = sorted({*it.state.table["topic"].take(across).to_pylist()})
        before = [*before, *files.throttles(brokers, topics, limits.rate)]
    after = spread(it, goal, solution.target, solution.first)
    under_way = bool((it.state.adding | it.state.removing).any())
    removed = _removed(solution, moved)
    throttled = removed or (not down and any(plan_step.replicas for plan_step in listed))
    return MovePlan(
        offset=lake.offset,
        time=lake.time,
        title=goal.title,
        aim=goal.aim,
        steps=listed,
        lacks=sorted(lacks, key=lambda lack: (lack.bytes == 0, lack.bytes, lack.replicas)),
        notes=[
            *it.notes,
            *goal.notes,
            *notes,
            *([BESIDE] if under_way and throttled else []),
            *_doubts(it, solution, moved),
            *_boundless(it, solution, moved),
            *_pathless(it, solution, moved[files.can_go_back(it, moved, solution)]),
            *_tight(it, listed, documents),
        ],
        sized=it.sized,
        now=now,
        measure=goal.even,
        by_size=it.by_size and goal.even == BYTES,
        spread=(spread(it, goal, it.place, None).size, after.size),
        ends=after.ends,
        bound=least(it, goal, after.size),
        documents=documents,
        before=before,
        uncordons=uncordons,
        down=down,
        brokers=brokers,
        topics=topics,
        under_way=under_way,
        removed=removed,
        undone=undone,
        paths=written,
        rate=limits.rate,
    )


def _across(it: Problem, solution: Solution, rows: Any) -> Any:
    """Those of ``rows`` of which a replica comes to another broker."""
    place, target = solution.place, solution.target
    stays = (place >= 0) & (it.disks.broker[place] == it.disks.broker[target])
    return rows[((target >= 0) & ~stays)[rows].any(axis=1)]


def _removed(solution: Solution, rows: Any) -> int:
    """Replicas of ``rows`` that are nowhere afterwards."""
    place, target = solution.place, solution.target
    return int(((place >= 0) & (target < 0))[rows].sum())


def _brokers(it: Problem, rows: Any) -> Any:
    """The numbers of the brokers that hold replicas of ``rows``."""
    numbers = it.state.replicas[rows]
    return np.unique(numbers[numbers >= 0])


def _cordons(lake: Lake, it: Problem, goal: Goal) -> tuple[list[str], list[str], list[str]]:
    """What keeps new replicas out of the disks that are to be empty, what takes it back, and what is to be said."""
    shut = [disk for disk in goal.emptied if it.disks.state[disk] not in (CORDONED, DOWN, OFFLINE)]
    if not shut:
        return [], [], []
    if not cordons_supported(features(lake).get(METADATA_VERSION, 0)):
        note = "Kafka may put new replicas on what is to be empty: cordons need metadata.version 4.3-IV0 (KIP-1066)"
        return [], [], [note]
    broker = int(it.state.brokers[it.disks.broker[shut[0]]])
    mine = np.flatnonzero((it.disks.broker == it.disks.broker[shut[0]]) & (it.disks.state == CORDONED)).tolist()
    known, new = [it.disks.paths[disk] for disk in mine], [it.disks.paths[disk] for disk in shut]
    whole = len(goal.emptied) > 1
    if not all(known) or (not whole and new in ([""], [ANY])):
        note = "the path of what is to be empty, or of a cordoned directory beside it, is not known: cordon it yourself"
        return [], [], [note]
    back = files.cordons(broker, ",".join(known)) if known else files.uncordons(broker)
    return [files.cordons(broker, "*" if whole else ",".join([*known, *new]))], [back], []


def _pathless(it: Problem, solution: Solution, rows: Any) -> list[str]:
    """Replicas that can go back to their broker only."""
    place, target = solution.place, solution.target
    unknown = np.array([path in ("", ANY) for path in it.disks.paths], bool)
    width = it.state.directory.shape[1]
    moves = (place != target)[rows][:, :width] & (it.reported[rows] >= 0)
    number = int((moves & unknown[it.reported[rows]]).sum())
    return (
        [f"replicas that move from an unknown path: {number:,}; if undone, their broker chooses a directory for them"]
        if number
        else []
    )


def _tight(it: Problem, listed: Sequence[PlanStep], documents: Mapping[str, Any]) -> list[str]:
    """Files that undo a step, and may fill a disk."""
    last = [(files.undo_name(step.number, len(step.undo)), step.undo_full.tolist()) for step in listed]
    return [
        f"{name}: {CHOICE.format(it.disk_names(disks))} before you execute the file"
        for name, disks in last
        if disks and name in documents
    ]


def _used(solution: Solution, rows: Any) -> list[int]:
    """The disks that get replicas of ``rows``."""
    place, target = solution.place, solution.target
    disks: list[int] = np.unique(target[rows][(target != place)[rows] & (target >= 0)[rows]]).tolist()
    return disks


def _doubts(it: Problem, solution: Solution, rows: Any) -> list[str]:
    """Targets of which path and directory are only likely a pair."""
    return [
        f"{it.disk_name(disk)} is only likely {it.disks.ids[disk]}: jbod sizes says why"
        for disk in _used(solution, rows)
        if it.disks.likely[disk]
    ]


def _boundless(it: Problem, solution: Solution, rows: Any) -> list[str]:
    """Targets of which no source says the size."""
    disks = [disk for disk in _used(solution, rows) if it.sized and it.disks.total[disk] < 0]
    clause = "how large they are: a source kafka://HOST:PORT says it, kafka-log-dirs does not"
    return [f"room is not checked on {it.disk_names(disks)}, as it is not known {clause}"] if disks else []


def _without(solution: Solution, rows: Any) -> Solution:
    """The same, but these partitions stay where they are."""
    if not len(rows):
        return solution
    target, size = solution.target.copy(), solution.size.copy()
    target[rows], size[rows] = solution.place[rows], 0
    first = solution.first
    if first is not None:
        first = first.copy()
        first[rows] = 0
    return replace(solution, target=target, size=size, first=first)


Rows = npt.NDArray[np.int64]


def blocked(
    lake: Lake, it: Problem, solution: Solution, rows: Rows, default_min_isr: int = 1
) -> tuple[list[Lack], Rows]:
    """What the controller would refuse or never end among ``rows``, by reason; and these rows."""
    first, kind = kinds(it, solution, rows)
    checked = files.judged(lake, it, entries(it, solution, first), default_min_isr)
    by_name = {partition.name: partition for partition in checked.partitions}
    reasons: dict[str, list[int]] = {}
    for number, row in enumerate(first.tolist()):
        partition = by_name[it.state.name(row)]
        if partition.blocks:
            why = {finding: about for finding, about in partition.why.items() if finding in BLOCKING}
            reasons.setdefault(f"{', '.join(why)}: {'; '.join(filter(None, why.values()))}", []).append(number)
    lacks, bad = [], np.zeros(len(first), bool)
    for reason, numbers in reasons.items():
        bad[numbers] = True
        hit = np.isin(kind, numbers)
        lacks.append(Lack(reason, int(hit.sum()), it.state.name(int(rows[hit][0]))))
    return lacks, rows[bad[kind]] if len(first) else rows


def kinds(it: Problem, solution: Solution, rows: Rows) -> tuple[Rows, Rows]:
    """One of ``rows`` of each kind, and for each of ``rows`` the number of its kind.

    Partitions are of a kind if they differ only in names: of topics with equal settings, of brokers in equal states, of
    disks. The controller does not read the names.
    """
    state = it.state
    place, target = solution.place, solution.target
    place, target = place[rows], target[rows]
    was = np.where(place >= 0, it.disks.broker[place], -1)
    now = np.where(target >= 0, it.disks.broker[target], -2)
    same = now[:, :, None] == was[:, None, :]
    from_slot = np.where(same.any(axis=2), same.argmax(axis=2), -1)
    moves = (target != place) & (target >= 0)
    width = state.replicas.shape[1]
    flags = (state.placed, state.isr, state.elr, state.last_known_elr, state.adding, state.removing, state.can_lead)
    bits = np.zeros((len(rows), width), np.int64)
    late = np.any(state.replicas[:, :, None] == it.late[:, None, :], axis=2) & state.there
    for at, flag in enumerate((*flags, state.online, state.there, state.unsure, late)):
        bits |= flag[rows].astype(np.int64) << at
    first = np.zeros(len(rows), np.int64) if solution.first is None else solution.first[rows]
    key = np.column_stack(
        [
            np.where(target >= 0, from_slot, -2),
            moves,
            it.runs[np.maximum(now, 0)] & (now >= 0),
            bits,
            state.leader[rows],
            state.recovering[rows],
            state.setting[rows],
            state.strange[rows] * (rows + 1),
            first,
        ]
    ).astype(np.int64)
    index, kind = restart_columns.kinds(key)
    return rows[index], kind
