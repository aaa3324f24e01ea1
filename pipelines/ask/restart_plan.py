"""The batches in which a whole cluster can be restarted, and the next one as of now.

Between two batches the cluster settles: every replica that is online is in sync again. Each batch is judged on that
state by the model's controller, in order and by a kill, before it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from jbod_model.errors import UsageError
from pipelines.ask.configs import in_zookeeper
from pipelines.ask.json_values import DatedAnswer, jsonable, members
from pipelines.ask.next_start import starts_of
from pipelines.ask.restart import (
    SAFE,
    Nodes,
    costs_of_starts,
    nodes,
    quorum_effect,
    spare_voters,
    too_old,
    truncated_copies,
    verdict_of,
)
from pipelines.ask.restart_batches import BatchLimits, fewest
from pipelines.ask.restart_columns import Columns, columns
from pipelines.ask.restart_judge import Judge
from pipelines.ask.restart_waits import FAULT, NAMES, QUORUM, Blocking, why
from pipelines.lake.ledger import micros_of
from pipelines.lake.reader import Lake

GO, WAIT, DONE, NOT_DECIDABLE = "go", "wait", "done", "not decidable"
EXIT_CODES = {GO: 0, DONE: 0, WAIT: 1, NOT_DECIDABLE: 2}


@dataclass(frozen=True)
class PlannedNode:
    """A node that is to be restarted."""

    batch: int | None
    """Number of its batch, from 1; None if no batch can have it."""
    node_id: int
    role: str
    """broker, controller or both."""
    active: bool
    """Whether it is the active controller."""
    rack: str | None
    replicas: int
    leaders: int
    """Partitions that it leads."""
    reasons: Sequence[Blocking] = ()
    """Why no batch can have it, the smallest reason first."""

    @property
    def reason(self) -> str:
        """The smallest reason why no batch can have it; empty if one has."""
        return self.reasons[0].reason if self.reasons else ""

    @property
    def finding(self) -> str:
        """The same as a sentence."""
        return self.reasons[0].finding if self.reasons else ""


@dataclass(frozen=True)
class Next:
    """What to do now."""

    state: str
    """go, wait, done or not decidable."""
    batch: Sequence[int]
    """The nodes to restart now, if it is go."""
    why: Sequence[str]
    """Why not, otherwise."""

    @property
    def exit_code(self) -> int:
        """0: restart the batch, or nothing is left; 1: wait; 2: not decidable."""
        return EXIT_CODES[self.state]


@dataclass(frozen=True)
class RestartPlan(DatedAnswer):
    """The answer."""

    batches: Sequence[Sequence[int]]
    bound: int
    """No plan has fewer batches."""
    nodes: Sequence[PlannedNode]
    """In the order of the plan, those that no batch can have last."""
    down: Sequence[int]
    """Brokers that are down: they are to be started first. If all nodes were asked for, also those that have replicas
    and are not registered."""
    restarted: Sequence[int]
    """Nodes that were asked for, and have restarted already."""
    next: Next

    @property
    def is_best(self) -> bool:
        """Whether no plan has fewer batches."""
        return len(self.batches) == self.bound

    @property
    def impossible(self) -> list[PlannedNode]:
        """The nodes that no batch can have."""
        return [node for node in self.nodes if node.batch is None]

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            **members(self, "offset", "time", "batches"),
            "number": len(self.batches),
            **members(self, "bound", "is_best"),
            "impossible": [
                {"node_id": node.node_id, "reason": node.reason, "finding": node.finding} for node in self.impossible
            ],
            **members(self, "down", "restarted"),
            "next": {**jsonable(self.next), "state": self.next.state.replace(" ", "_")},
            "nodes": jsonable(list(self.nodes)),
        }


def restart_plan(
    lake: Lake,
    node_ids: Sequence[int] = (),
    default_min_isr: int = 1,
    *,
    max_parallel: int | None = None,
    by_rack: bool = False,
    since: datetime | None = None,
    accepted_until: int = -1,
    max_age: float | None = None,
    now: datetime | None = None,
) -> RestartPlan:
    """The batches in order for the nodes ``node_ids``, or for all: brokers, then controllers, the active one last.

    ``by_rack``: a batch has brokers of one rack only. ``since``: nodes that have restarted after it are left out.
    ``max_age``: seconds after which what is known is too old for the next batch; None: age does not matter. Lost data
    up to the offset ``accepted_until`` is accepted. Raises UsageError for an id that no node has.
    """
    known = nodes(lake)
    every = list(dict.fromkeys(node_ids)) or sorted({*known.brokers, *known.voters, *known.controllers})
    if missing := known.missing(every):
        raise UsageError("; ".join(known.unknown(lake, missing)))
    done = set() if since is None else _restarted(lake, since, {*known.brokers} & {*known.controllers})
    wanted = [node_id for node_id in every if node_id not in done]
    state = columns(lake, default_min_isr)
    down = sorted(node_id for node_id, broker in state.registered.items() if broker.fenced and node_id in wanted)
    planner = _Planner(lake, state.settled(), known, max_parallel, by_rack, default_min_isr, accepted_until)
    judge = Judge(lake, state, default_min_isr)
    batches, bound = planner.plan([node_id for node_id in wanted if node_id not in down], judge)
    reasons = planner.reasons
    undecided = [*too_old(lake, now or datetime.now(UTC), max_age)]
    if lake.incomplete_since is not None:
        undecided.append(f"{lake.incomplete_since}")
    undecided += in_zookeeper(lake)
    following = _next(judge, known, batches, reasons, down, undecided)
    number = {node: at for at, batch in enumerate(batches, 1) for node in batch}
    replicas, leaders = _load(state)
    gone = [] if node_ids else [broker for broker, held in replicas.items() if held and broker not in state.registered]
    rows = [
        PlannedNode(
            batch=number.get(node_id),
            node_id=node_id,
            role=known.role(node_id),
            active=node_id == known.leader,
            rack=state.registered[node_id].rack if node_id in state.registered else None,
            replicas=replicas.get(node_id, 0),
            leaders=leaders.get(node_id, 0),
            reasons=reasons.get(node_id, ()),
        )
        for node_id in wanted
        if node_id not in down
    ]
    rows.sort(key=lambda row: (row.batch is None, row.batch or 0, row.node_id))
    down = sorted([*down, *gone])
    return RestartPlan(lake.offset, lake.time, batches, bound, rows, down, sorted(done & {*every}), following)


def _restarted(lake: Lake, since: datetime, both: set[int]) -> set[int]:
    """Nodes whose process registered after a time, and that are not down. What only a snapshot says does not count.

    ``both``: nodes that are registered as a broker and as a controller: as both they have to have restarted.
    """
    micros = micros_of(since)
    rows = lake.query(
        f"""
        WITH b AS (
            SELECT broker_id, incarnation_id, from_time, from_snapshot FROM {lake.until("brokers")}
        )
        SELECT n.broker_id FROM {lake.at("brokers")} n JOIN b USING (broker_id, incarnation_id)
        WHERE NOT n.fenced GROUP BY n.broker_id
        HAVING min(epoch_us(b.from_time)) > $1 AND NOT arg_min(b.from_snapshot, b.from_time)
        UNION ALL
        SELECT n.controller_id FROM {lake.at("controllers")} n JOIN {lake.until("controllers")} b
            USING (controller_id, incarnation_id)
        GROUP BY n.controller_id
        HAVING min(epoch_us(b.from_time)) > $1 AND NOT arg_min(b.from_snapshot, b.from_time)
        """,
        [micros],
    )
    counts = Counter(node for (node,) in rows)
    return {node for node, count in counts.items() if count == 2 or node not in both}


def _load(state: Columns) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Replicas and leaderships of each broker."""
    size = len(state.brokers)
    replicas = np.bincount(state.replicas[state.there], minlength=size)
    led = np.flatnonzero((state.leader >= 0) & (state.leader < state.replicas.shape[1]))
    leaders = np.bincount(state.replicas[led, state.leader[led]], minlength=size)
    ids = state.brokers.tolist()
    return dict(zip(ids, replicas.tolist(), strict=True)), dict(zip(ids, leaders.tolist(), strict=True))


# BATCHES


@dataclass
class _Planner:
    lake: Lake
    state: Columns
    """Settled."""
    known: Nodes
    max_parallel: int | None
    by_rack: bool
    default_min_isr: int
    accepted_until: int

    def __post_init__(self) -> None:
        self.reasons: dict[int, list[Blocking]] = {}
        """Why no batch can have a node."""
        self.judge = Judge(self.lake, self.state, self.default_min_isr, known_complete=False)

    def plan(self, wanted: Sequence[int], now: Judge) -> tuple[list[list[int]], int]:
        """The batches of these nodes, and the bound. ``now`` judges the partitions that are not settled."""
        self.counting, self.spare = _spare(self.state)
        self.reasons = self._impossible(wanted)
        if spare_voters(self.known) < 1:
            self._forbid_voters(wanted)
        away = self.judge.with_disks_away([node for node in wanted if node in self.state.registered])
        for starts in starts_of(self.lake, away, self.default_min_isr, self.accepted_until):
            waiting = now.judge([starts.broker_id]).waiting if starts.gives_up else ()
            for cost in costs_of_starts([starts], waiting):
                self.reasons.setdefault(starts.broker_id, []).insert(0, cost)
        for truncated in truncated_copies(self.judge, away, self.accepted_until):
            self.reasons.setdefault(truncated.waits_for[0], []).insert(0, truncated)
        able = [node for node in wanted if node not in self.reasons]
        voters = [node for node in able if node in self.known.voters or node not in self.known.brokers]
        brokers = [node for node in able if node not in voters]
        batches: list[list[int]] = []
        bound = 0
        for group in (*self._racks(brokers), *self._racks(voters)):
            group_batches, fewest_possible = self._batches(group)
            batches += group_batches
            bound += fewest_possible
        batches.sort(key=lambda batch: (batch[0] in voters, self.known.leader in batch))
        return batches, bound

    def _racks(self, group: Sequence[int]) -> list[list[int]]:
        if not self.by_rack:
            return [list(group)]
        racks: dict[str | None, list[int]] = {}
        for node in group:
            registered = self.state.registered.get(node)
            racks.setdefault(None if registered is None else registered.rack, []).append(node)
        return [racks[rack] for rack in sorted(racks, key=lambda rack: rack or "")]

    def _batches(self, group: Sequence[int]) -> tuple[list[list[int]], int]:
        """The fewest batches of nodes that are all possible, as they are judged."""
        node_batches = fewest(self._limits(group))
        batches: list[list[int]] = []
        split = False
        for batch in node_batches.batches:
            some = [group[node] for node in batch]
            parts = self._as_judged(some)
            split |= len(parts) != 1 or len(parts[0]) != len(some)
            batches += parts
        return batches, min(node_batches.bound, len(batches)) if split else node_batches.bound

    def _as_judged(self, batch: Sequence[int]) -> list[list[int]]:
        """The batch if it is safe; else its nodes one by one, without those that are not safe alone."""
        if self._is_safe(batch):
            return [list(batch)]
        parts = []
        for node in batch:
            if self._is_safe([node]):
                parts.append([node])
            else:
                outcome = self.judge.judge([node])
                reasons = outcome.blocking() or self.judge.judge([node], kill=True).blocking()
                self.reasons[node] = reasons or [Blocking(FAULT, 0, (), ())]
        return parts

    def _is_safe(self, batch: Sequence[int]) -> bool:
        """In order and by a kill."""
        brokers = [node for node in batch if node in self.state.registered]
        in_order = self.judge.judge(brokers)
        if not in_order.safe:
            return False
        return not len(in_order.rows) or self.judge.judge(brokers, kill=True).safe

    def _limits(self, group: Sequence[int]) -> BatchLimits:
        """How many of some nodes of the group may be in a batch."""
        it, size = self.state, len(group)
        number = np.full(len(it.brokers) + 1, -1, np.int64)
        for at, node in enumerate(group):
            where = int(np.searchsorted(it.brokers, node))
            if where < len(it.brokers) and it.brokers[where] == node:
                number[where] = at
        of = np.where(self.counting, number[it.replicas], -1)
        of.sort(axis=1)
        tight = (of >= 0).sum(axis=1) > self.spare
        distinct = np.unique(np.column_stack([of[tight], self.spare[tight]]), axis=0)
        members = np.zeros((len(distinct), size + 1), bool)
        np.put_along_axis(members, distinct[:, :-1], True, axis=1)  # -1 is the last column
        members, most = members[:, :size], distinct[:, -1]
        votes = np.isin(group, self.known.voters)
        if votes.any():
            members, most = np.vstack([members, votes]), np.append(most, spare_voters(self.known))
        return BatchLimits(size, members, most, self.max_parallel or max(1, size))

    # IMPOSSIBLE

    def _impossible(self, wanted: Sequence[int]) -> dict[int, list[Blocking]]:
        """The brokers that a partition cannot spare even alone, with its reasons."""
        it = self.state
        stopping = it.on(wanted)
        rows = np.flatnonzero((self.counting & stopping).any(axis=1) & (self.spare < 1))
        if not len(rows):
            return {}
        kinds, kind = it.shapes(rows)
        groups_of: dict[int, dict[Any, list[int]]] = {}
        order = np.argsort(kind, kind="stable")
        first = np.searchsorted(kind[order], np.arange(len(kinds)))
        counts = np.bincount(kind, minlength=len(kinds))
        for index, row in enumerate(kinds.tolist()):
            of = rows[order[first[index] : first[index] + min(NAMES, int(counts[index]))]]
            for slot in np.flatnonzero(self.counting[row] & stopping[row]).tolist():
                broker = int(it.brokers[it.replicas[row, slot]])
                group = groups_of.setdefault(broker, {}).setdefault(why(it, row, frozenset({broker})), [0])
                group[0] += int(counts[index])
                group += of.tolist()[: max(0, NAMES + 1 - len(group))]
        return {
            broker: sorted(
                (
                    Blocking(reason.reason, rows[0], [it.name(row) for row in rows[1:]], reason.waits_for)
                    for reason, rows in groups.items()
                ),
                key=lambda blocker: (blocker.ends, blocker.partitions),
            )
            for broker, groups in groups_of.items()
        }

    def _forbid_voters(self, wanted: Sequence[int]) -> None:
        for node in wanted:
            effect = quorum_effect(self.known, [node])
            if effect is not None:
                self.reasons.setdefault(node, []).append(Blocking(QUORUM, 0, (), ()))


def _spare(it: Columns) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """The replicas of each partition that count, and how many of them it can spare.

    In sync and able to lead, those beyond min.insync.replicas; beyond one where writes are refused already. Of a
    partition without a leader those online, beyond one: the last replica online.
    """
    led = it.leader >= 0
    counting = np.where(led[:, None], it.isr & it.can_lead, it.online) & ~it.unsure
    number = counting.sum(axis=1)
    enough = led & (number >= it.min_isr)
    return counting, number - np.where(enough, np.maximum(1, it.min_isr), 1)


# NOW


def _next(
    judge: Judge,
    known: Nodes,
    batches: Sequence[Sequence[int]],
    reasons: Mapping[int, Sequence[Blocking]],
    down: Sequence[int],
    undecided: Sequence[str],
) -> Next:
    """The first batch that is safe as of now, or the part of one that is."""
    if undecided:
        return Next(NOT_DECIDABLE, (), undecided)
    waits = [f"broker {broker} is down: start it first (jbod offline says what its start needs)" for broker in down]
    voters = {*known.voters}
    waited = [
        blocker for node, groups in reasons.items() if node not in voters for blocker in groups[:1] if blocker.ends
    ]
    brokers_left = bool(down or waited) or any(not voters & {*batch} for batch in batches)
    for batch in batches:
        if brokers_left and voters & {*batch}:
            break  # brokers before controllers
        part = _safe_part(judge, known, batch)
        if part:
            return Next(GO, part, ())
    if batches:
        outcome = judge.judge([broker for broker in batches[0] if broker in judge.columns.registered])
        effect = quorum_effect(known, batches[0])
        if effect is not None and not effect.safe:
            waits.append(effect.finding)
        waited = [*outcome.blocking(), *waited]
    if batches or down or waited:
        return Next(WAIT, (), [*waits, *dict.fromkeys(blocker.named_finding for blocker in waited)])
    return Next(DONE, (), ())


def _safe_part(judge: Judge, known: Nodes, batch: Sequence[int]) -> list[int]:
    """The batch if it is safe now, else as many of its nodes as are."""

    def is_safe(some: Sequence[int]) -> bool:
        effect = quorum_effect(known, some)
        outcome = judge.judge([broker for broker in some if broker in judge.columns.registered])
        return verdict_of(outcome, effect) == SAFE

    if is_safe(batch):
        return list(batch)
    part: list[int] = []
    for node in batch:
        if is_safe([*part, node]):
            part.append(node)
    return part
