"""What a restart of brokers does to the partitions of a lake, partition by partition.

The partitions that can spare the brokers are found in columns; the model's controller plays the restart for the others,
once for each kind (``jbod_model.restart``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from jbod_model.ids import Uuid
from jbod_model.profiles import Profile
from jbod_model.replay.image import Image
from jbod_model.restart import DECIDING, Course, Harm, Restart, RestartEffect, course, in_any_order, judged
from pipelines.ask.lost_data import complete_copies
from pipelines.ask.restart_columns import Columns, Flags
from pipelines.ask.restart_waits import ELECTION, NAMES, RETURN, WAITS, Blocking, Why, why
from pipelines.ask.starting import lost_directories
from pipelines.ask.whatif_places import as_repaired
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Stake:
    """A partition that the restart harms, or that is harmed already."""

    topic: str
    topic_id: str
    partition: int
    harms: Sequence[str]
    """What the restart causes (R-RESTART-4)."""
    already: Sequence[str]
    """What is so without it, and stays so."""
    reason: str
    """Why it cannot spare the brokers; empty if nothing is caused that decides."""
    waits_for: Sequence[int]
    """The brokers whose replicas would make the difference."""
    replicas: Sequence[int]
    leader: int
    leader_down: int
    """Who leads while the brokers are down; -1: nobody."""
    in_sync: int
    """Replicas in sync and online."""
    in_sync_down: int
    min_isr: int
    online_down: int
    """Replicas online while the brokers are down, in sync or not."""

    @property
    def name(self) -> str:
        """``topic-0``"""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Judge:
    """Judges restarts of the same partitions."""

    lake: Lake
    columns: Columns
    default_min_isr: int = 1
    known_complete: bool = True
    """Whether the lists of the lake are those of ``columns``, so that the copies can be asked about (R-LOSS-6)."""

    def judge(self, brokers: Sequence[int], *, kill: bool = False, marked: bool | None = None) -> RestartOutcome:
        """What a restart of these registered brokers does to every partition, also to those of other brokers that
        elect when these are back (R-RESTART-3).

        ``marked``: whether every directory of the start has the mark of a shutdown in order. None: as the directories
        are now.
        """
        it = self.columns
        stopping = it.on(brokers)
        touched: Flags = np.asarray(stopping.any(axis=1))
        elsewhere = it.may_elect & ~touched & bool(len(brokers))
        rows = np.flatnonzero((touched & ~spares(it, stopping)) | elsewhere)
        moved = np.flatnonzero(touched & spares(it, stopping))
        leaders = Counter(_next_leaders(it, moved, stopping))
        kinds, kind = it.shapes(rows)
        outcome = RestartOutcome(it, frozenset(brokers), kill, rows, kind, _led(it, moved, stopping) if kill else None)
        if not len(rows):
            return replace(outcome, next_leaders=dict(sorted(leaders.items())))
        played = self._played(kinds, Restart(brokers=tuple(brokers), kill=kill, unclean=self._unclean(brokers, marked)))
        every = [partition.judged() for partition in played]
        reasons = [
            why(it, row, frozenset(brokers), effect.caused) for row, effect in zip(kinds.tolist(), every, strict=True)
        ]
        outcome = replace(
            outcome,
            judged=every,
            reasons_by_kind=reasons,
            fault=next((partition.fault for partition in played if partition.fault), ""),
            refused=sorted(
                {broker for partition in played for course in partition.courses for broker in course.refused}
            ),
        )
        if self.known_complete:
            outcome = replace(outcome, otherwise=self._with_copies(outcome, played))
        outcome = outcome.only(touched[rows])
        for index, row in enumerate(outcome.rows.tolist()):
            leader = outcome.of(index).leader
            if 0 <= it.leader[row] < it.replicas.shape[1] and stopping[row, it.leader[row]] and leader >= 0:
                leaders[leader] += 1
        return replace(outcome, next_leaders=dict(sorted(leaders.items())))

    def with_disks_away(self, brokers: Sequence[int]) -> list[int]:
        """The brokers that lost a directory, or have a replica in one that is not online."""
        away, lost = self.columns.there & ~self.columns.placed, lost_directories(self.lake)
        return [broker for broker in brokers if broker in lost or bool((self.columns.on([broker]) & away).any())]

    def _unclean(self, brokers: Sequence[int], marked: bool | None) -> frozenset[int]:
        """Brokers whose shutdown is not clean, or was not: they are down, and did not stop in order, or a directory is
        not online (R-RESTART-3)."""
        it = self.columns
        unclean_brokers = {*(self.with_disks_away(brokers) if marked is None else () if marked else brokers)}
        for broker in brokers:
            registration = it.registered[broker]
            if registration.fenced and not registration.in_controlled_shutdown:
                unclean_brokers.add(broker)
        return frozenset(unclean_brokers)

    def _played(self, kinds: npt.NDArray[np.int64], restart: Restart) -> list[_Played]:
        """The courses of each kind of partition, in any order.

        Only the brokers with a replica of it matter. If it has no leader already, so does one of the others: when that
        comes back, every partition without a leader holds an election.
        """
        it = self.columns
        members = it.on(restart.brokers)[kinds]
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, row in enumerate(kinds.tolist()):
            on = it.brokers[it.replicas[row][members[index]]].tolist()
            other = None if it.leader[row] >= 0 else next((node for node in restart.brokers if node not in on), None)
            group = tuple(broker for broker in restart.brokers if broker in on or broker == other)
            groups.setdefault(group, []).append(index)
        partitions: dict[int, _Played] = {}
        for brokers, indexes in groups.items():
            image, places = it.image(kinds[indexes], self.lake)
            orders = list(in_any_order(replace(restart, brokers=brokers)))
            courses, fault = _courses(image, orders, it)
            for index, place in zip(indexes, places, strict=True):
                row = kinds[index]
                unsure = frozenset(it.brokers[it.replicas[row][it.unsure[row]]].tolist())
                partitions[index] = _Played(courses, place, it.profile, fault, unsure)
        return [partitions[index] for index in range(len(kinds))]

    def _with_copies(self, outcome: RestartOutcome, played: Sequence[_Played]) -> dict[int, RestartEffect]:
        """The judgement of partitions whose lists need not name every complete copy, by their index.

        Lists name the complete copies that are online, unless all of them stop, or are offline: another replica may be
        complete, too; or unless a replica became eligible that was none, and was added again (R-QUIRK-3); or unless
        nobody leads: the replica may have been recreated empty (R-ACT-1).
        """
        it, rows = self.columns, outcome.rows
        some_online: Flags = np.asarray(it.online[rows].any(axis=1))
        doubtful = [
            index
            for index in range(len(outcome.rows))
            if (Harm.LAST_COPY in outcome.of(index).caused and outcome.of(index).online_down)
            or (Harm.LAST_COPY in outcome.of(index).already and some_online[index])
        ]
        named = (it.elr | it.last_known_elr)[rows].any(axis=1)
        eligible = np.flatnonzero(named | ((it.leader[rows] < 0) & it.listed_online[rows])).tolist()
        if not doubtful and not eligible:
            return {}

        def keys(indexes: Sequence[int]) -> dict[int, tuple[str, int]]:
            names = self.columns.named(outcome.rows[indexes])
            return {index: (name["topic_id"], name["partition"]) for index, name in zip(indexes, names, strict=True)}

        where = keys(doubtful)
        copies = complete_copies(self.lake, where.values(), self.default_min_isr)
        return {
            index: played[int(outcome.kind[index])].judged(copies[key])
            for index, key in (keys(eligible) | where).items()
            if key in copies
        }


def spares(it: Columns, stopping: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The partitions to which no restart of the replicas ``stopping`` does harm.

    They have a leader, and enough replicas stay that are in sync and can lead. The controller elects one of these, so
    that there is a leader when the brokers come back, and no further election. One that may lie in a directory that is
    not online (R-ACT-1) may answer nobody as leader.
    """
    candidates = it.isr & it.can_lead & ~stopping
    left = (candidates & ~it.unsure).sum(axis=1)
    unread_leader = it.unsure[np.arange(len(it)), candidates.argmax(axis=1)]
    led = (left >= np.maximum(1, it.min_isr)) & (it.leader >= 0) & ~unread_leader
    can_spare: npt.NDArray[np.bool_] = led & ~it.strange & ~(it.adding | it.removing).any(axis=1)
    return can_spare


def _next_leaders(it: Columns, rows: npt.NDArray[np.int64], stopping: npt.NDArray[np.bool_]) -> list[int]:
    """Who takes over each of ``rows`` whose leader stops: the first in-sync replica that can lead (R-ELECT-2)."""
    rows = _led(it, rows, stopping)
    if not len(rows):
        return []
    slot = (it.isr & it.can_lead & ~stopping)[rows].argmax(axis=1)
    ids: list[int] = it.brokers[it.replicas[rows, slot]].tolist()
    return ids


def _led(it: Columns, rows: npt.NDArray[np.int64], stopping: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Those of ``rows`` whose leader stops."""
    return rows[stopping[rows, it.leader[rows]]] if len(rows) else rows


def _courses(image: Image, orders: Sequence[Restart], it: Columns) -> tuple[list[Course], str]:
    return as_repaired(lambda rules: [course(image, order, profile=rules) for order in orders], it.profile)


@dataclass(frozen=True)
class _Played:
    """A partition in every order of a restart."""

    courses: Sequence[Course]
    place: tuple[Uuid, int]
    """Where it is in the images."""
    profile: Profile
    fault: str
    unsure: frozenset[int]
    """Brokers whose copy may be in a directory that is not online."""

    def judged(self, complete: Iterable[int] | None = None) -> RestartEffect:
        """The harm of any order. ``complete``: the brokers with a complete copy, if the lists do not name them."""
        topic_id, number = self.place
        every = (
            judged(course, topic_id, number, complete=complete, unsure=self.unsure, profile=self.profile)
            for course in self.courses
        )
        return reduce(RestartEffect.or_else, every)


@dataclass(frozen=True)
class RestartOutcome:
    """What a restart does to the partitions that cannot spare the brokers as a matter of course."""

    columns: Columns
    brokers: frozenset[int]
    kill: bool
    rows: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    """The kind of each of ``rows``."""
    killed: npt.NDArray[np.int64] | None = None
    """Other partitions whose leader is killed."""
    judged: Sequence[RestartEffect] = ()
    """By kind."""
    reasons_by_kind: Sequence[Why] = ()
    otherwise: Mapping[int, RestartEffect] = field(default_factory=dict)
    """By index in ``rows``: judgements that differ from that of the kind."""
    next_leaders: Mapping[int, int] = field(default_factory=dict)
    refused: Sequence[int] = ()
    fault: str = ""

    def of(self, index: int) -> RestartEffect:
        """The judgement of one of ``rows``."""
        return self.otherwise.get(index) or self.judged[int(self.kind[index])]

    def only(self, touched: Flags) -> RestartOutcome:
        """Without the partitions of other brokers that elect no replica which lacks writes."""
        hit = touched | np.array([Harm.UNCLEAN in effect.caused for effect in self.judged], bool)[self.kind]
        for index, effect in self.otherwise.items():
            hit[index] = touched[index] or Harm.UNCLEAN in effect.caused
        kept = np.flatnonzero(hit)
        places = np.cumsum(hit) - 1
        otherwise = {int(places[index]): effect for index, effect in self.otherwise.items() if hit[index]}
        return replace(self, rows=self.rows[kept], kind=self.kind[kept], otherwise=otherwise)

    @property
    def harmed(self) -> list[int]:
        """The indexes of the partitions that the restart harms so that it decides."""
        kinds = np.array([bool(effect.caused & DECIDING) for effect in self.judged], bool)
        hit = kinds[self.kind] if len(kinds) else np.zeros(0, bool)
        for index, effect in self.otherwise.items():
            hit[index] = bool(effect.caused & DECIDING)
        return [int(index) for index in np.flatnonzero(hit)]

    @property
    def safe(self) -> bool:
        """Whether no partition is harmed."""
        return not self.harmed and not self.fault and not self.refused

    @property
    def reasons(self) -> set[str]:
        """Why partitions cannot spare the brokers."""
        return {self._reason(index).reason for index in self.harmed}

    def _reason(self, index: int) -> Why:
        effect = self.of(index)
        if Harm.UNCLEAN in effect.caused and (effect.by_return or Harm.NO_LEADER in effect.already):
            return Why(ELECTION)
        if effect.by_return:
            return Why(RETURN)
        return self.reasons_by_kind[int(self.kind[index])]

    @property
    def waiting(self) -> set[str]:
        """The partitions that are harmed for a reason that ends."""
        return {
            self.columns.name(int(self.rows[index])) for index in self.harmed if self._reason(index).reason in WAITS
        }

    def blocking(self) -> list[Blocking]:
        """The partitions that are harmed, by reason."""
        groups: dict[Why, list[int]] = {}
        for index in self.harmed:
            groups.setdefault(self._reason(index), []).append(index)
        return sorted(
            (
                Blocking(
                    reason.reason,
                    len(group),
                    [self.columns.name(int(self.rows[index])) for index in group[:NAMES]],
                    reason.waits_for,
                )
                for reason, group in groups.items()
            ),
            key=lambda blocker: (blocker.ends, -blocker.partitions),
        )

    def stakes(self) -> list[Stake]:
        """A row for each partition that is harmed or was before, those that the restart harms first."""
        harmed = set(self.harmed)
        killed = np.zeros(0, np.int64) if self.killed is None else self.killed
        every = [
            *((self.of(index), self._reason(index) if index in harmed else Why("")) for index in range(len(self.rows))),
            *((effect, Why("")) for effect in self._led_by_another(killed)),
        ]
        rows = np.concatenate([self.rows, killed])
        indexes = [at for at, (effect, _) in enumerate(every) if effect.caused or effect.already]
        names = self.columns.named(rows[indexes])
        replicas, leaders = self.columns.replica_ids(rows[indexes]), self.columns.leader_ids(rows[indexes])
        partitions = [
            _stake(name, ids, leader, *every[at])
            for at, name, ids, leader in zip(indexes, names, replicas, leaders, strict=True)
        ]
        return sorted(partitions, key=lambda stake: (not stake.reason, not stake.harms, stake.topic, stake.partition))

    def _led_by_another(self, rows: npt.NDArray[np.int64]) -> list[RestartEffect]:
        """The judgement of partitions that can spare their killed leader as a matter of course."""
        it = self.columns
        if not len(rows):
            return []
        stays = it.there[rows] & ~it.on(self.brokers)[rows]
        in_sync, online = it.isr[rows] & it.online[rows], it.online[rows]
        able = in_sync & it.can_lead[rows] & stays
        leaders = it.brokers[it.replicas[rows, able.argmax(axis=1)]]
        numbers = (leaders, in_sync.sum(axis=1), (in_sync & stays).sum(axis=1), (online & stays).sum(axis=1))
        return [
            RestartEffect(
                caused=frozenset({Harm.ACKS1}),
                leader=leader,
                in_sync=before,
                in_sync_down=down,
                online_down=online_down,
                min_isr=min_isr,
            )
            for leader, before, down, online_down, min_isr in zip(
                *(column.tolist() for column in numbers), it.min_isr[rows].tolist(), strict=True
            )
        ]


def _stake(
    partition: Mapping[str, Any], replicas: Sequence[int], leader: int, effect: RestartEffect, reason: Why
) -> Stake:
    return Stake(
        topic=partition["topic"],
        topic_id=partition["topic_id"],
        partition=partition["partition"],
        harms=sorted(harm.value for harm in effect.caused),
        already=sorted(harm.value for harm in effect.already),
        reason=reason.reason,
        waits_for=reason.waits_for,
        replicas=replicas,
        leader=leader,
        leader_down=effect.leader,
        in_sync=effect.in_sync,
        in_sync_down=effect.in_sync_down,
        min_isr=effect.min_isr,
        online_down=effect.online_down,
    )
