"""Reassignment files: those of a plan, as kafka-reassign-partitions.sh takes them, and whether disks have room for one.

A plan has one file for each step, and one that undoes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from jbod_model.errors import UsageError
from jbod_model.plan import Target
from pipelines.ask.plan_check import NO_ROOM, PlanCheck, ReassignedPartition, by_finding, judge, read_plan
from pipelines.ask.restart_columns import Flags
from pipelines.lake.reader import Lake
from pipelines.plan.problem import ANY, HEADROOM, OFFLINE, Problem, problem
from pipelines.plan.solve import Solution

STEP, UNDO = "step-{}.json", "undo.json"
"""The names of the file of a step, by its number, and of what ``jbod plan undo`` writes."""
BOOTSTRAP = "HOST:PORT"
"""What commands have in place of the brokers to ask."""
WAIT = "sleep 60"
"""Until Kafka has deleted what moved away: by default log.segment.delete.delay.ms is a minute."""
_RATES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
Rows = npt.NDArray[np.int64]


def entries(it: Problem, solution: Solution, rows: Rows) -> dict[Target, ReassignedPartition]:
    """The partitions of a plan: where each replica has to be. A path only for those that move."""
    disks, order = solution.target[rows], _order(solution, rows, solution.target.shape[1])
    return _entries(it, rows, disks, disks != solution.place[rows], order)


def undo(it: Problem, rows: Rows, solution: Solution | None = None) -> dict[Target, ReassignedPartition]:
    """The same partitions as they are now, with a path for each replica that a plan moves, or for all.

    Those with a replica on a broker that is down, or that would go back to a disk that is offline, are left out:
    Kafka's tool refuses them. So are those that are being reassigned: they are neither as before nor as after.
    """
    rows = rows[can_go_back(it, rows, solution)]
    moves = _moved(it, rows, solution)
    order = np.broadcast_to(np.arange(it.state.directory.shape[1]), moves.shape)
    return _entries(it, rows, it.reported[rows], moves, order)


def can_go_back(it: Problem, rows: Rows, solution: Solution | None) -> Flags:
    """Of ``rows`` those that are as now if they are undone."""
    offline = (it.disks.state == OFFLINE) & ~it.disks.nowhere
    moving: Flags = np.any((it.state.adding | it.state.removing)[rows], axis=1)
    back = (it.runs[it.state.replicas[rows]] | ~it.state.there[rows]) & ~moving[:, None]
    reversible: Flags = (back & ~(_moved(it, rows, solution) & offline[it.reported[rows]])).all(axis=1)
    return reversible


def _moved(it: Problem, rows: Rows, solution: Solution | None) -> Flags:
    """Replicas with a directory that a plan moves away, or all that have one."""
    held = it.state.directory
    moves: Flags = held[rows] >= 0
    if solution is not None:
        moves &= solution.target[rows][:, : held.shape[1]] != it.place[rows]
    return moves


def undo_name(step: int, part: int) -> str:
    """The name of a file that undoes a step. Both count from 1."""
    return f"undo-{step}.json" if part == 1 else f"undo-{step}-{part}.json"


def document(of: dict[Target, ReassignedPartition]) -> dict[str, Any]:
    """What is written."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "replicas": list(partition.replicas),
                "log_dirs": list(partition.log_dirs),
            }
            for (topic, number), partition in of.items()
        ],
    }


def write(folder: str, documents: Mapping[str, Any]) -> dict[str, str]:
    """Writes name -> document into a folder that has no plan yet. Returns name -> path."""
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    if [*into.glob(STEP.format("*"))] or any((into / name).exists() for name in documents):
        raise UsageError(f"--into {folder}: has a plan already: name another folder, or remove its files")
    for name, content in documents.items():
        (into / name).write_text(json.dumps(content) + "\n", encoding="utf-8")
    return {name: str(into / name) for name in documents}


def _order(solution: Solution, rows: Rows, width: int) -> npt.NDArray[np.int64]:
    """The slots of each partition in the order of the file: the one that is to lead first, if one is named."""
    order = np.broadcast_to(np.arange(width), (len(rows), width))
    if solution.first is None:
        return order
    first = solution.first[rows][:, None]
    moved: npt.NDArray[np.int64] = np.where(order == 0, first, np.where(order <= first, order - 1, order))
    return moved


def _entries(it: Problem, rows: Rows, disks: Any, moves: Any, order: Any) -> dict[Target, ReassignedPartition]:
    disks, moves = np.take_along_axis(disks, order, axis=1), np.take_along_axis(moves, order, axis=1)
    named = it.state.table.select(["topic", "partition"]).take(rows)
    brokers = it.state.brokers[it.disks.broker[disks]].tolist()
    paths = [*it.disks.paths]
    where = [
        (replicas, [(paths[disk] or ANY) if moved else ANY for disk, moved in zip(at, moving, strict=True)], at)
        for replicas, at, moving in zip(brokers, disks.tolist(), moves.tolist(), strict=True)
    ]
    return {
        (topic, number): ReassignedPartition(
            tuple(broker for broker, disk in zip(replicas, at, strict=True) if disk >= 0),
            tuple(path for path, disk in zip(log_dirs, at, strict=True) if disk >= 0),
        )
        for topic, number, (replicas, log_dirs, at) in zip(
            named["topic"].to_pylist(), named["partition"].to_pylist(), where, strict=True
        )
    }


# THE COMMANDS


def executes(file: str, rates: Mapping[str, int], *, additional: bool) -> str:
    """What executes a file. ``rates``: option -> bytes a second, which the tool sets on every broker of the file.

    ``additional``: other reassignments may be under way, also those that the file undoes. Without it the tool refuses
    the file then.
    """
    action = "--execute --additional" if additional else "--execute"
    return " ".join([_reassigns(action, file), *(f"{option} {rate}" for option, rate in rates.items())])


def verifies(file: str, *, preserve: bool = False) -> str:
    """What says whether a file is done, and takes the throttles of all brokers away if it is, unless ``preserve``."""
    return _reassigns("--verify", file) + (" --preserve-throttles" if preserve else "")


def cancels(file: str) -> str:
    """What ends the reassignments and moves of a file's partitions that are under way, and nothing else.

    From Kafka 4.3 on a replica that is still being added is not removed by another reassignment (R-RELEASE-4).
    """
    return _reassigns("--cancel --preserve-throttles", file)


def _reassigns(action: str, file: str) -> str:
    command = f"kafka-reassign-partitions.sh --bootstrap-server {BOOTSTRAP} {action}"
    return f"{command} --reassignment-json-file {quote(file)}"


def elects(file: str) -> str:
    """What makes the first replica of every partition of a file its leader.

    The tool takes the file as it is. With --all-topic-partitions, it fails while a first replica anywhere is down.
    """
    election = f"--election-type preferred --path-to-json-file {quote(file)}"
    return f"kafka-leader-election.sh --bootstrap-server {BOOTSTRAP} {election}"


def throttles(brokers: Sequence[int], topics: Sequence[str], rate: int) -> list[str]:
    """What sets the rates on these brokers only: the tool waits for the brokers that are down (KAFKA-13392)."""
    rates = ",".join(f"{name}={rate}" for name in _RATES)
    every = "'leader.replication.throttled.replicas=*,follower.replication.throttled.replicas=*'"
    return _configs(brokers, topics, f"--add-config {rates}", f"--add-config {every}")


def unthrottles(brokers: Sequence[int], topics: Sequence[str]) -> list[str]:
    """What takes these rates away."""
    every = "leader.replication.throttled.replicas,follower.replication.throttled.replicas"
    return _configs(brokers, topics, f"--delete-config {','.join(_RATES)}", f"--delete-config {every}")


def _configs(brokers: Sequence[int], topics: Sequence[str], of_broker: str, of_topic: str) -> list[str]:
    return [
        *(_config("brokers", str(broker), of_broker) for broker in brokers),
        *(_config("topics", topic, of_topic) for topic in topics),
    ]


def cordons(broker: int, paths: str) -> str:
    """What keeps new replicas out of directories (KIP-1066). The value replaces the one that is set."""
    return _config("brokers", str(broker), f"--add-config {quote(f'cordoned.log.dirs=[{paths}]')}")


def uncordons(broker: int) -> str:
    """What takes the cordons of a broker away."""
    return _config("brokers", str(broker), "--delete-config cordoned.log.dirs")


def _config(kind: str, name: str, change: str) -> str:
    return f"kafka-configs.sh --bootstrap-server {BOOTSTRAP} --alter --entity-type {kind} --entity-name {name} {change}"


def check_with_sizes(
    lake: Lake, file: str, sources: Sequence[str], default_min_isr: int = 1, headroom: int = HEADROOM
) -> PlanCheck:
    """``check_plan``, with the paths and the room of sources of sizes as for jbod sizes.

    Raises UsageError if the file is none that ``kafka-reassign-partitions`` takes, or a source is none.
    """
    reassignment = read_plan(file)
    it = problem(lake, sources, default_min_isr, headroom)
    checked = judged(lake, it, reassignment, default_min_isr)
    why: dict[str, list[str]] = {}
    coming = _coming(it, reassignment)
    for disk, sizes in coming.items():
        lacks = it.disks.load[disk] + sum(sizes.values()) - it.limit[disk]
        for name in sizes if lacks > 0 else ():
            why.setdefault(name, []).append(f"{it.disk_name(disk)} lacks {math.ceil(lacks):,} bytes for all that comes")
    unknown = [disk for disk in coming if it.disks.total[disk] < 0]
    notes = [f"room is not checked on {it.disk_names(unknown)}: no source says how large they are"] if unknown else []
    partitions = [
        replace(partition, why={**partition.why, NO_ROOM: "; ".join(why[partition.name])})
        if partition.name in why
        else partition
        for partition in checked.partitions
    ]
    return replace(checked, partitions=by_finding(partitions), notes=[*it.notes, *notes])


def judged(
    lake: Lake, it: Problem, reassignment: Mapping[Target, ReassignedPartition], default_min_isr: int
) -> PlanCheck:
    """``judge``, with what the sources of a problem say of paths and of disks that cannot be read."""
    paths = {place: it.disks.ids[disk] for place, disk in it.by_path.items()}
    broken = {*it.state.brokers[it.disks.broker[~it.disks.whole]].tolist()}
    return judge(lake, reassignment, broken, default_min_isr, paths, it.refusal)


def _coming(it: Problem, reassignment: Mapping[Target, ReassignedPartition]) -> Mapping[int, Mapping[str, int]]:
    """Disk -> partition -> the bytes of it that come.

    Kafka chooses the disk of a new replica without a path: that with the fewest replicas, of several the fullest here.
    """
    number = {broker: at for at, broker in enumerate(it.state.brokers.tolist())}
    brokers, count, held = it.disks.broker.tolist(), it.count.copy(), it.disks.load.copy()
    chosen: dict[int, list[int]] = {}
    for disk in np.flatnonzero(it.chosen).tolist():
        chosen.setdefault(brokers[disk], []).append(disk)
    coming: dict[int, dict[str, int]] = {}
    for row, key in it.state.among(reassignment).items():
        slots = {
            int(broker_number): slot
            for slot, broker_number in enumerate(it.state.replicas[row].tolist())
            if broker_number >= 0
        }
        for broker, path in reassignment[key].places:
            at = number.get(broker, -1)
            slot, into = slots.get(at), it.by_path.get((broker, path))
            if path == ANY and slot is None and at in chosen:
                into = min(chosen[at], key=lambda candidate: (count[candidate], -held[candidate]))
            if into is None or (slot is not None and it.reported[row, slot] == into):
                continue
            size = int(it.largest[row] if slot is None else it.bytes[row, slot])
            coming.setdefault(into, {})[it.state.name(row)] = size
            count[into], held[into] = count[into] + 1, held[into] + size
    return coming
