"""Why a partition cannot spare brokers, and what ends that: the smallest reason, and the brokers to wait for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jbod_model.restart import Harm
from pipelines.ask.advice import Action, Advice, few
from pipelines.ask.advice_last_copies import save_before_start
from pipelines.ask.restart_columns import Columns

CATCHING_UP = "catching up"
REASSIGNMENT = "reassignment"
BROKER_DOWN = "broker down"
DIRECTORY_OFFLINE = "directory offline"
UNPLACED = "unplaced"
ONE_REPLICA = "one replica"
MIN_ISR = "min.insync.replicas"
TOGETHER = "together"
LAST_COPY = "last copy"
TRUNCATED = "truncated"
NEEDED_DISK = "needed disk"
NO_START = "no start"
RETURN = "return"
ELECTION = "election"
QUORUM = "quorum"
FAULT = "fault"
WAITS = (CATCHING_UP, REASSIGNMENT, BROKER_DOWN, DIRECTORY_OFFLINE, UNPLACED)
"""Reasons that end without a change of the topic or of the brokers to restart, those that end by themselves first."""

NAMES = 10
"""The most partitions that ``Blocking`` names."""

_UNLED = {Harm.NO_LEADER, Harm.LAST_REPLICA, Harm.LAST_COPY, Harm.UNCLEAN}


@dataclass(frozen=True)
class Why:
    """Why a partition cannot spare the brokers."""

    reason: str
    waits_for: tuple[int, ...] = ()
    """The brokers whose replicas would make the difference."""


def why(columns: Columns, row: int, brokers: frozenset[int], caused: Collection[Harm] = ()) -> Why:
    """The smallest reason why a partition cannot spare ``brokers``. A reassignment counts as complete.

    ``caused``: what the restart does. If clients would have no leader that is complete, one such replica is the first
    thing that lacks, and not those of min.insync.replicas.
    """
    replicas = [int(broker_id) for broker_id in columns.brokers[columns.replicas[row, : int(columns.count[row])]]]
    staying = [slot for slot in range(len(replicas)) if not columns.removing[row, slot]]
    others = [slot for slot in staying if replicas[slot] not in brokers]
    electable = [slot for slot in others if columns.isr[row, slot] and columns.can_lead[row, slot]]
    if Harm.NO_LEADER in caused and electable and columns.unsure[row, electable[0]]:
        return Why(UNPLACED, (replicas[electable[0]],))
    if len(staying) == 1 and not others:
        return Why(RETURN if Harm.UNCLEAN in caused else ONE_REPLICA)
    wanted = 1 if _UNLED & {*caused} else max(1, min(int(columns.min_isr[row]), len(staying)))
    if len(staying) - 1 < wanted and len(others) < len(staying):
        return Why(MIN_ISR)
    if len(others) < wanted:
        return Why(TOGETHER)
    leads = columns.can_lead[row] & ~columns.unsure[row]
    missing = wanted - sum(bool(leads[slot] and columns.isr[row, slot]) for slot in others)
    if missing <= 0:
        return Why(LAST_COPY)
    late = [slot for slot in others if leads[slot] and not columns.isr[row, slot]]
    added = [slot for slot in late if columns.adding[row, slot]]
    present = [slot for slot in late if slot not in added]
    down: list[int] = []
    disks: list[int] = []
    unplaced: list[int] = []
    for slot in others:
        broker = columns.registered.get(replicas[slot])
        if columns.unsure[row, slot]:
            unplaced.append(slot)
        elif not leads[slot]:
            (disks if broker is not None and broker.is_active else down).append(slot)
    waited: list[int] = []
    for reason, slots in (
        (CATCHING_UP, present),
        (REASSIGNMENT, added),
        (BROKER_DOWN, down),
        (DIRECTORY_OFFLINE, disks),
        (UNPLACED, unplaced),
    ):
        waited += slots
        if slots and len(waited) >= missing:
            return Why(reason, tuple(sorted(replicas[slot] for slot in waited)))
    return Why(LAST_COPY)


@dataclass(frozen=True)
class Blocking:
    """The partitions that cannot spare the brokers for the same reason."""

    reason: str
    partitions: int
    names: Sequence[str]
    """Some of them."""
    waits_for: Sequence[int]
    """The brokers whose replicas would make the difference."""
    since: Sequence[str] = ()
    """For each of ``waits_for`` that is down or came back a short time ago: what happened, and when. Of a broker that
    does not start: why. Of needed disks: their directories."""

    @property
    def ends(self) -> bool:
        """Whether waiting, or starting what is down, ends it."""
        return self.reason in WAITS

    @property
    def finding(self) -> str:
        """What is so."""
        many = f"{self.partitions:,} partition{'s' if self.partitions > 1 else ''}"
        are = "is" if self.partitions == 1 else "are"
        it, its = ("it", "its") if self.partitions == 1 else ("they", "their")
        brokers = _brokers(self.waits_for)
        since = f" ({'; '.join(self.since)})" if self.since else ""
        return {
            CATCHING_UP: f"{many} can be spared a replica when {brokers} is in sync again{since}",
            REASSIGNMENT: f"{many} {are} being reassigned, and {it} can spare a replica when {brokers} is in sync",
            BROKER_DOWN: f"{many} can spare no other replica while {brokers} is down{since}",
            DIRECTORY_OFFLINE: f"{many} can spare no other replica while a directory of {brokers} is offline",
            UNPLACED: f"{many} can spare no other replica while no record says where that of {brokers} is: a directory "
            "failed there",
            ONE_REPLICA: f"{many} {_have(self.partitions)} one replica",
            MIN_ISR: f"{many} need{'s' if self.partitions == 1 else ''} every replica for min.insync.replicas",
            TOGETHER: f"{many} {_have(self.partitions)} replicas on too many of these brokers",
            FAULT: "Kafka's own controller would fail on it, or never let the broker stop",
            QUORUM: "the quorum of controllers would have no majority",
            LAST_COPY: f"{many} {_have(self.partitions)} {its} last complete copy there",
            TRUNCATED: f"{many} {_have(self.partitions)} a leader without writes that only a disk of {brokers} may "
            f"hold, and {its} copy there is truncated when it starts",
            NO_START: f"{brokers} does not start without these directories{since}",
            NEEDED_DISK: f"{many} may need what is on {' and '.join(self.since)} of {brokers}, which "
            f"{'a blank disk replaces' if len(self.since) == 1 else 'blank disks replace'}",
            RETURN: f"{many} would come to harm when a broker is back: after a kill, or with a directory that is "
            "offline or blank, the controller no longer counts its replicas as complete",
            ELECTION: f"{many} {_have(self.partitions)} no leader, and the controller elects a replica that lacks "
            "writes as soon as a broker is back",
        }[self.reason]

    @property
    def named_finding(self) -> str:
        """The finding, with some of the partitions."""
        rest = self.partitions - len(self.names)
        names = ", ".join(self.names) + (f" and {rest:,} more" if rest else "")
        return f"{self.finding}: {names}" if names else self.finding

    @property
    def end(self) -> str:
        """What ends it."""
        return self.advice.text

    @property
    def advice(self) -> Advice:
        """What to do. Nothing here gives up a copy."""
        brokers, names = _brokers(self.waits_for), tuple(self.names)
        if self.reason == TRUNCATED:
            saved = save_before_start(self.waits_for[0], names)
            return replace(saved, text=f"{saved.text}; then accept the loss (check.losses_accepted_until)")
        wait = f"wait until {brokers} has caught up (--wait 10m looks until then)"
        add = f"add a replica of {few(names)} on another broker (kafka-reassign-partitions)"
        text = {
            CATCHING_UP: wait,
            REASSIGNMENT: wait,
            BROKER_DOWN: f"bring {brokers} back first: jbod offline says what its start needs",
            DIRECTORY_OFFLINE: f"first see what the disk of {brokers} needs: jbod offline",
            UNPLACED: f"kafka-log-dirs --describe says whether {brokers} serves {few(names)}; once a record says "
            "where, they count: a restart of that broker makes it report them (jbod safe-to-restart)",
            ONE_REPLICA: f"{add}, or accept that clients wait while the broker is down",
            MIN_ISR: f"{add}, or accept that writes with acks=all are refused while the broker is down",
            TOGETHER: "restart fewer of them at once: jbod restart-plan has the batches",
            FAULT: "jbod safe-to-restart says how the controller would fail",
            QUORUM: "jbod quorum shows the voters",
            LAST_COPY: f"first see which disk holds the data of {few(names)}: jbod offline",
            NO_START: "leave it the directory of its metadata log, if it has one, and one that can be read",
            NEEDED_DISK: f"do not wipe {' or '.join(self.since)}: save these partitions from "
            f"{'it' if len(self.since) == 1 else 'them'} first, or bring their complete copies into use (jbod offline)",
            RETURN: f"{add} where one leads: without a leader nothing is copied; or, if no step forbids it, stop the "
            "broker in order, and take every directory that is not online or is blank out of log.dirs before it starts",
            ELECTION: f"jbod offline says which disk or broker has every write of {few(names)}, and how to bring it "
            "back; where unclean.leader.election.enable is true, set it to false until then",
        }[self.reason]
        action = Action.REASSIGN if self.reason in (ONE_REPLICA, MIN_ISR, RETURN) else Action.LOOK
        return Advice(action, text, partitions=() if self.reason == TOGETHER else names)


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {' or '.join(map(str, ids))}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


@dataclass(frozen=True)
class InFlight:
    """What is in flight in the partitions of the brokers. Where it forbids the restart, ``Blocking`` says so."""

    catching_up: int
    """Partitions with a replica online that is not in sync."""
    reassigning: int
    """Partitions that are being reassigned."""
    offline: int
    """Partitions with a replica offline."""


def in_flight(columns: Columns, brokers: frozenset[int]) -> InFlight:
    """What is in flight in the partitions with a replica on one of ``brokers``."""
    touched = columns.on(brokers).any(axis=1)

    def count(flags: np.ndarray) -> int:
        return int((touched & flags.any(axis=1)).sum())

    return InFlight(
        catching_up=count(columns.online & ~columns.isr),
        reassigning=count(columns.adding | columns.removing),
        offline=count(columns.there & ~columns.online),
    )
