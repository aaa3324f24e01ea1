"""The reference controller judges a plan: one partition of each kind that it cannot tell apart.

Each partition is in one step, so what a step does to it does not depend on the others.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.ask import restart_columns
from pipelines.ask.plan_check import BLOCKING, judge
from pipelines.lake.reader import Lake
from pipelines.plan.files import entries
from pipelines.plan.problem import Problem
from pipelines.plan.solve import Lack, Solution
from pipelines.plan.steps import final_state

Rows = npt.NDArray[np.int64]


def blocked(
    lake: Lake, it: Problem, solution: Solution, rows: Rows, default_min_isr: int = 1
) -> tuple[list[Lack], Rows]:
    """What the controller would refuse or never end among ``rows``, by reason; and these rows."""
    first, kind = kinds(it, solution, rows)
    checked = judge(lake, entries(it, solution, first), default_min_isr)
    by_name = {one.name: one for one in checked.partitions}
    found: dict[str, list[int]] = {}
    for number, row in enumerate(first.tolist()):
        one = by_name[it.state.name(row)]
        if one.blocks:
            why = ", ".join(finding for finding in one.findings if finding in BLOCKING)
            found.setdefault(f"{why}: {one.refused or one.reason}", []).append(number)
    lacks, bad = [], np.zeros(len(first), bool)
    for reason, numbers in found.items():
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
    place, target, _ = final_state(it, solution)
    place, target = place[rows], target[rows]
    was = np.where(place >= 0, it.disks.broker[place], -1)
    now = np.where(target >= 0, it.disks.broker[target], -2)
    same = now[:, :, None] == was[:, None, :]
    from_slot = np.where(same.any(axis=2), same.argmax(axis=2), -1)
    moves = (target != place) & (target >= 0)
    width = state.replicas.shape[1]
    flags = (state.placed, state.isr, state.elr, state.last_known_elr, state.adding, state.removing, state.can_lead)
    bits = np.zeros((len(rows), width), np.int64)
    for at, flag in enumerate((*flags, state.online, state.there)):
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
