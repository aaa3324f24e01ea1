"""Whether each disk has room for what a reassignment file brings, while both copies exist."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from jbod_model.plan import Target
from pipelines.ask.plan_check import NO_ROOM, PlanCheck, ReassignedPartition, by_finding, judge, read_plan
from pipelines.lake.reader import Lake
from pipelines.plan.problem import ANY, HEADROOM, Problem, problem


def check_with_sizes(
    lake: Lake, file: str, sources: Sequence[str], default_min_isr: int = 1, headroom: int = HEADROOM
) -> PlanCheck:
    """``check_plan``, with the paths and the room of sources of sizes as for jbod sizes.

    Raises UsageError if the file is none that ``kafka-reassign-partitions`` takes, or a source is none.
    """
    asked = read_plan(file)
    it = problem(lake, sources, default_min_isr, headroom)
    checked = judge(lake, asked, default_min_isr, _paths(it))
    why: dict[str, list[str]] = {}
    coming = _coming(it, asked)
    for disk, sizes in coming.items():
        lacks = it.disks.load[disk] + sum(sizes.values()) - it.limit[disk]
        for name in sizes if lacks > 0 else ():
            why.setdefault(name, []).append(f"{it.disk_name(disk)} lacks {math.ceil(lacks):,} bytes for all that comes")
    unknown = [disk for disk in coming if it.disks.total[disk] < 0]
    said = [f"room is not checked on {it.disk_names(unknown)}: no source says how large they are"] if unknown else []
    found = [
        replace(one, why={**one.why, NO_ROOM: "; ".join(why[one.name])}) if one.name in why else one
        for one in checked.partitions
    ]
    return replace(checked, partitions=by_finding(found), notes=[*it.notes, *said])


def _paths(it: Problem) -> Mapping[tuple[int, str], str]:
    """(broker, path) -> directory."""
    brokers = it.state.brokers[it.disks.broker].tolist()
    named = zip(brokers, it.disks.paths, it.disks.ids, strict=True)
    return {(broker, path): directory for broker, path, directory in named if path not in ("", ANY)}


def _coming(it: Problem, asked: Mapping[Target, ReassignedPartition]) -> Mapping[int, Mapping[str, int]]:
    """Disk -> partition -> the bytes of it that come.

    Kafka chooses the disk of a new replica without a path: that with the fewest replicas, of several the fullest here.
    """
    number = {broker: at for at, broker in enumerate(it.state.brokers.tolist())}
    brokers, count, held = it.disks.broker.tolist(), it.count.copy(), it.disks.load.copy()
    named = {(brokers[disk], path): disk for disk, path in enumerate(it.disks.paths) if path not in ("", ANY)}
    chosen: dict[int, list[int]] = {}
    for disk in np.flatnonzero(it.chosen).tolist():
        chosen.setdefault(brokers[disk], []).append(disk)
    coming: dict[int, dict[str, int]] = {}
    for row, key in it.state.among(asked).items():
        slots = {int(one): slot for slot, one in enumerate(it.state.replicas[row].tolist()) if one >= 0}
        wanted, paths = asked[key].replicas, asked[key].log_dirs
        for broker, path in zip(wanted, paths or [ANY] * len(wanted), strict=True):
            at = number.get(broker, -1)
            slot, into = slots.get(at), named.get((at, path))
            if path == ANY and slot is None and at in chosen:
                into = min(chosen[at], key=lambda one: (count[one], -held[one]))
            if into is None or (slot is not None and it.place[row, slot] == into):
                continue
            size = int(it.largest[row] if slot is None else it.bytes[row, slot])
            coming.setdefault(into, {})[it.state.name(row)] = size
            count[into], held[into] = count[into] + 1, held[into] + size
    return coming
