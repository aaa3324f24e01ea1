"""Whether brokers and controllers can be restarted: in order, or by a kill."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from jbod_model.errors import UsageError
from jbod_model.restart import DECIDING, Harm
from pipelines.ask.advice import Action, Advice
from pipelines.ask.configs import in_zookeeper, unseen_disks
from pipelines.ask.json_values import DatedAnswer, jsonable, members
from pipelines.ask.lost_data import losses, truncated
from pipelines.ask.next_start import NextStarts, next_starts, starts_of
from pipelines.ask.restart_columns import columns
from pipelines.ask.restart_judge import Judge, RestartOutcome, Stake
from pipelines.ask.restart_waits import (
    LAST_COPY,
    NAMES,
    NEEDED_DISK,
    NO_START,
    TRUNCATED,
    WAITS,
    Blocking,
    InFlight,
    in_flight,
)
from pipelines.lake.ledger import time_of
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Nodes:
    """The nodes that the log names."""

    brokers: Sequence[int]
    voters: Sequence[int]
    leader: int | None
    """The active controller."""
    controllers: Sequence[int]
    """Controllers that are registered. Empty before metadata.version 3.7-IV0."""
    fenced: Sequence[int]
    """Brokers that are fenced. A node that is a controller, too, is down as both."""

    def role(self, node: int) -> str:
        """broker, controller or both."""
        controls = node in self.voters or node in self.controllers
        if node not in self.brokers:
            return "controller"
        return "both" if controls else "broker"

    def missing(self, ids: Sequence[int]) -> list[int]:
        """Those of ``ids`` that are no node."""
        known = {*self.brokers, *self.voters, *self.controllers}
        return [node for node in ids if node not in known]

    def unknown(self, lake: Lake, missing: Sequence[int]) -> list[str]:
        """A sentence for each of ``missing``."""
        if not missing:
            return []
        known = sorted({*self.brokers, *self.voters, *self.controllers})
        listed = ", ".join(map(str, known)) or "none"
        ended = f"SELECT broker_id, max(to_offset) FROM {lake.until('brokers')} GROUP BY broker_id"
        unregistered = dict(lake.query(ended))
        return [
            f"broker {node} is not registered since offset {unregistered[node]}: see jbod offline"
            if node in unregistered
            else f"no broker and no controller has the id {node}; known: {listed}"
            for node in missing
        ]


def nodes(lake: Lake) -> Nodes:
    """The nodes at the lake's offset."""
    voters = lake.query(f"SELECT node_id, role = 'leader' FROM {lake.at('voters')} WHERE voter ORDER BY node_id")
    brokers = lake.query(f"SELECT broker_id, fenced FROM {lake.at('brokers')} ORDER BY broker_id")
    controllers = lake.query(f"SELECT controller_id FROM {lake.at('controllers')} ORDER BY controller_id")
    return Nodes(
        brokers=[broker for broker, _ in brokers],
        voters=[voter for voter, _ in voters],
        leader=next((voter for voter, leads in voters if leads), None),
        controllers=[controller for (controller,) in controllers],
        fenced=[broker for broker, fenced in brokers if fenced],
    )


@dataclass(frozen=True)
class QuorumEffect:
    """The quorum while nodes of it are down."""

    stopping: Sequence[int]
    """Voters that stop."""
    voters: Sequence[int]
    majority: int
    """Voters that it takes."""
    left: Sequence[int]
    """Voters that stay, are registered, and are no broker that is fenced."""
    unregistered: Sequence[int]
    """Voters that are not registered as controllers: they do not count."""
    fenced: Sequence[int]
    """Voters that stay, and are brokers that are fenced: they do not count."""
    leader_stops: bool
    """Whether the active controller stops, so that another one is elected."""
    also_in_json = ("safe", "ends", "finding")

    @property
    def safe(self) -> bool:
        """Whether a majority stays."""
        return len(self.left) >= self.majority

    @property
    def ends(self) -> bool:
        """Whether it is safe once every voter is registered, and no broker is fenced."""
        return len(self.voters) - len(self.stopping) >= self.majority

    @property
    def finding(self) -> str:
        """What would be so."""
        brought = f", as {_are('voter', self.unregistered)} not registered" if self.unregistered else ""
        down = f", as {_are('broker', self.fenced)} fenced" if self.fenced else ""
        left = f"{len(self.left)} of {len(self.voters)} voters would be left{brought}{down}"
        if self.safe:
            return f"{left}, and {self.majority} are a majority"
        return f"the quorum of controllers would have no majority: {left}, and it takes {self.majority}"

    @property
    def advice(self) -> Advice:
        """What to do if it is not safe."""
        if self.ends:
            absent = sorted({*self.unregistered, *self.fenced})
            return Advice(Action.LOOK, f"start {_named('voter', absent)} first: jbod quorum shows the voters")
        if len(self.stopping) > 1:
            return Advice(Action.LOOK, "restart fewer controllers at once: jbod restart-plan has the batches")
        text = (
            f"a quorum of {len(self.voters)} has no majority while one is down: nothing can be changed meanwhile, and "
            "no leader can be elected; restart it alone, when no broker is being restarted"
        )
        return Advice(Action.LOOK, text)


def spare_voters(known: Nodes) -> int:
    """How many voters may be down at once (R-RESTART-6); negative if there are too few already."""
    there = [voter for voter in known.voters if not known.controllers or voter in known.controllers]
    return len(there) - (len(known.voters) // 2 + 1)


def quorum_effect(known: Nodes, stopping: Sequence[int]) -> QuorumEffect | None:
    """What the quorum is while ``stopping`` are down; None if none of them votes."""
    down = [voter for voter in known.voters if voter in stopping]
    if not down:
        return None
    absent = [voter for voter in known.voters if known.controllers and voter not in known.controllers]
    fenced = [voter for voter in known.voters if voter in known.fenced and voter not in down]
    return QuorumEffect(
        stopping=down,
        voters=known.voters,
        majority=len(known.voters) // 2 + 1,
        left=[voter for voter in known.voters if voter not in (*down, *absent, *fenced)],
        unregistered=absent,
        fenced=fenced,
        leader_stops=known.leader in down,
    )


def _named(what: str, ids: Sequence[int]) -> str:
    return f"{what}{'' if len(ids) == 1 else 's'} {' and '.join(map(str, ids))}"


def _are(what: str, ids: Sequence[int]) -> str:
    return f"{_named(what, ids)} {'is' if len(ids) == 1 else 'are'}"


MAX_AGE = 60.0
"""Seconds after which knowledge is too old to allow anything."""
SAFE, NOT_NOW, NOT_SAFE, NOT_DECIDABLE = "safe", "not now", "not safe", "not decidable"
EXIT_CODES = {SAFE: 0, NOT_NOW: 1, NOT_SAFE: 1, NOT_DECIDABLE: 2}
_SHORT_TIME = 120
"""Seconds for which a broker that came back counts as just back."""


@dataclass(frozen=True)
class RestartVerdict(DatedAnswer):
    """The answer."""

    brokers: Sequence[int]
    kill: bool
    verdict: str
    """safe, not now, not safe, or not decidable."""
    undecided: Sequence[str]
    """Why it is not decidable."""
    as_known: str
    """The verdict by what is known, even if that is too old."""
    age_seconds: float | None
    """Age of the newest record; None if the question is about the past."""
    partitions: int
    """Partitions with a replica on one of the brokers."""
    stakes: Sequence[Stake]
    """Those that the restart harms first, then those that are harmed already."""
    next_leaders: Mapping[int, int]
    """Broker -> partitions that it takes over."""
    blocking: Sequence[Blocking]
    in_flight: InFlight
    quorum: QuorumEffect | None
    """None if no broker is a voter."""
    refused: Sequence[int]
    """Brokers that the controller never lets stop in order, because they would still lead."""
    controllers: Sequence[int]
    """Those of ``brokers`` that are controllers, and no brokers."""
    down: Sequence[int]
    """Brokers that are down already: they only come back."""
    starts: Sequence[NextStarts] = ()
    """For each of the brokers with a directory that is not online: what its start does if that comes back, comes back
    blank, is taken out, or stays broken."""
    fault: str = ""
    """Defects that Kafka's controller would meet. The answer is that of a repaired controller. Usually empty."""
    unseen_disks: str = ""
    """Why no record says that a disk failed; empty if records do."""

    @property
    def exit_code(self) -> int:
        """0 safe, 1 not, 2 not decidable."""
        return EXIT_CODES[self.verdict]

    def caused(self, harm: str) -> list[Stake]:
        """The partitions to which the restart does this."""
        return [stake for stake in self.stakes if harm in stake.harms]

    def so_already(self, harm: str) -> list[Stake]:
        """The partitions for which this is so without the restart."""
        return [stake for stake in self.stakes if harm in stake.already]

    @property
    def steps(self) -> list[Advice]:
        """What to do, in order."""
        advice = [step for start in self.starts for step in start.steps]
        # Of the copies that a start gives up, its steps say more.
        given_up = {name for start in self.starts if start.steps for name in start.gives_up}
        blocking = [
            reason for reason in self.blocking if reason.reason != LAST_COPY or not given_up.issuperset(reason.names)
        ]
        advice += [reason.advice for reason in blocking if reason.advice not in advice]
        return advice if self.quorum is None or self.quorum.safe else [*advice, self.quorum.advice]

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            **members(self, "offset", "time", "age_seconds", "brokers", "kill"),
            "verdict": self.verdict.replace(" ", "_"),
            "as_known": self.as_known.replace(" ", "_"),
            **members(self, "undecided", "partitions"),
            "harms": {harm.value: len(self.caused(harm)) for harm in Harm},
            "already": {harm.value: len(self.so_already(harm)) for harm in Harm if harm in DECIDING},
            "next_leaders": {str(broker): count for broker, count in self.next_leaders.items()},
            "blocking": [
                {**jsonable(reason), "ends": reason.ends, "finding": reason.finding, "advice": reason.end}
                for reason in self.blocking
            ],
            **members(self, "in_flight", "quorum", "refused", "controllers", "down", "starts"),
            **members(self, "fault", "unseen_disks", "stakes"),
        }


def node_ids(texts: Iterable[str]) -> list[int]:
    """The ids of texts like ``3`` or ``3,4``."""
    nodes: list[int] = []
    for text in texts:
        ids = [number.strip() for number in text.split(",")]
        if not all(number.isascii() and number.isdigit() and len(number) < 11 for number in ids):
            raise UsageError(f"{text}: not ids of brokers: write 3, or 3,4")
        nodes += map(int, ids)
    return nodes


def safe_to_restart(
    lake: Lake,
    brokers: Sequence[int],
    default_min_isr: int = 1,
    *,
    kill: bool = False,
    blank: Sequence[str] = (),
    gone: Sequence[str] = (),
    accepted_until: int = -1,
    max_age: float | None = None,
    now: datetime | None = None,
) -> RestartVerdict:
    """Whether the nodes can be restarted at once at the lake's offset.

    ``blank`` and ``gone``: directories of the only broker that is asked about. A blank disk takes the place of the
    first ones when it starts, the others are taken out of log.dirs. Raises UsageError if one does not exist. Lost data
    up to the offset ``accepted_until`` is accepted.
    ``max_age``: seconds after which what is known is too old; None: the question is about the past. ``now`` is for
    tests. A node may be a broker, a controller, or both.
    """
    ids = tuple(dict.fromkeys(brokers))
    known = nodes(lake)
    judge = Judge(lake, columns(lake, default_min_isr), default_min_isr)
    registered = [broker for broker in ids if broker in judge.columns.registered]
    named = bool(blank or gone)
    judgement = judge.judge(registered, kill=kill, marked=not blank if named else None)
    effect = quorum_effect(known, ids)
    now = now or datetime.now(UTC)
    missing = known.missing(ids)
    undecided = [*known.unknown(lake, missing), *too_old(lake, now, max_age)]
    if lake.incomplete_since is not None:
        undecided.append(f"{lake.incomplete_since}")
    undecided += (absent := in_zookeeper(lake))
    if named:
        if len(ids) > 1:
            raise UsageError("--blank and --gone name directories of one broker: ask about one broker at a time")
        data = losses(lake, default_min_isr, accepted_until)
        starts = [next_starts(lake, ids[0], blank=blank, gone=gone, default_min_isr=default_min_isr, data=data)]
    else:
        starts = starts_of(lake, judge.with_disks_away(registered), default_min_isr, accepted_until)
    starts = [
        replace(start, steps=[replace(step, text=step.text.removesuffix(step.question)) for step in start.steps])
        for start in starts
    ]
    out = [directory for start in starts for outcome in start.starts for directory in outcome.gone] if named else []
    against = truncated_copies(judge, registered, accepted_until, gone=out)
    # The disks that are named go whenever the start comes.
    against += costs_of_starts(starts, () if named else judgement.waiting)
    if named:
        against += _needed_disks(starts[0])
    as_known = verdict_of(judgement, effect)
    if missing or absent or against:
        as_known = NOT_DECIDABLE if missing or absent else NOT_SAFE
    return RestartVerdict(
        offset=lake.offset,
        time=lake.time,
        brokers=ids,
        kill=kill,
        verdict=NOT_DECIDABLE if undecided else as_known,
        undecided=undecided,
        as_known=as_known,
        age_seconds=None if max_age is None else (now - lake.time).total_seconds(),
        partitions=int(judge.columns.on(registered).any(axis=1).sum()),
        stakes=judgement.stakes(),
        next_leaders=judgement.next_leaders,
        blocking=[*against, *_with_since(lake, judgement.blocking())],
        in_flight=in_flight(judge.columns, frozenset(registered)),
        quorum=effect,
        refused=judgement.refused,
        controllers=[node for node in ids if node not in registered and node not in missing],
        down=[broker for broker in registered if judge.columns.registered[broker].fenced],
        starts=starts,
        fault=judgement.fault,
        unseen_disks=unseen_disks(lake),
    )


def truncated_copies(
    judge: Judge, brokers: Sequence[int], accepted_until: int = -1, *, gone: Collection[str] = ()
) -> list[Blocking]:
    """For each of the brokers that are down or have a disk away: the partitions of which it may have the only copy of
    writes that their leaders lack. ``gone``: directories that are taken out of log.dirs."""
    away = judge.with_disks_away(brokers)
    may_have = [broker for broker in brokers if broker in away or judge.columns.registered[broker].fenced]
    if not may_have:
        return []
    held = truncated(losses(judge.lake, judge.default_min_isr, accepted_until).losses, gone)
    return [
        Blocking(TRUNCATED, len(names), names[:NAMES], (broker,))
        for broker, names in held.items()
        if broker in may_have
    ]


def _needed_disks(start: NextStarts) -> list[Blocking]:
    names = sorted({name for outcome in start.starts for name in outcome.needed})
    disks = [directory for outcome in start.starts for directory in outcome.needed_on]
    return [Blocking(NEEDED_DISK, len(names), names[:NAMES], (start.broker_id,), disks)] if names else []


def costs_of_starts(starts: Iterable[NextStarts], waiting: Collection[str]) -> list[Blocking]:
    """The partitions whose last copies a start gives up, without those that replicas which catch up save
    (``waiting``); and the brokers that do not start."""
    against = []
    for start in starts:
        if names := sorted({*start.gives_up}.difference(waiting)):
            against.append(Blocking(LAST_COPY, len(names), names[:NAMES], ()))
        if start.starts and all(outcome.refused for outcome in start.starts):
            against.append(Blocking(NO_START, 0, (), (start.broker_id,), [start.starts[0].refused]))
    return against


def verdict_of(judgement: RestartOutcome, effect: QuorumEffect | None) -> str:
    """safe, not now or not safe."""
    if judgement.safe and (effect is None or effect.safe):
        return SAFE
    ends = all(reason in WAITS for reason in judgement.reasons) and not judgement.fault and not judgement.refused
    return NOT_NOW if ends and (effect is None or effect.safe or effect.ends) else NOT_SAFE


def too_old(lake: Lake, now: datetime, max_age: float | None) -> Iterable[str]:
    """Why what is known is too old, or of the future."""
    if max_age is None:
        return
    age = (now - lake.time).total_seconds()
    when = f"{lake.time:%Y-%m-%d %H:%M:%S} UTC"
    if age > max_age:
        todo = "ask the log of a controller that runs (--log), or replay it first"
        yield f"the newest record is of {when}: older than --max-age {max_age:g} s; {todo}"
    elif age < -max_age:
        yield f"the newest record is of {when}, in the future: the clocks disagree"


# SINCE WHEN


def _with_since(lake: Lake, blocking: Sequence[Blocking]) -> list[Blocking]:
    """The same, with what happened to the brokers that are waited for."""
    brokers = sorted({broker for reason in blocking for broker in reason.waits_for})
    if not brokers:
        return list(blocking)
    changes = lake.query(
        f"""
        SELECT broker_id, arg_max(state, from_offset), epoch_us(max(from_time)), arg_max(from_snapshot, from_offset)
        FROM (
            SELECT *, lag(state) OVER (PARTITION BY broker_id ORDER BY from_offset) AS was FROM (
                SELECT broker_id, from_offset, from_time, from_snapshot, CASE WHEN fenced THEN 'is down'
                       WHEN in_controlled_shutdown THEN 'is shutting down' ELSE '' END AS state
                FROM {lake.until("brokers")}
                UNION ALL
                SELECT broker_id, max(to_offset), max(to_time), false, 'is not registered' FROM {lake.until("brokers")}
                GROUP BY broker_id HAVING bool_and(to_offset IS NOT NULL)
            )
        ) WHERE was IS DISTINCT FROM state AND list_contains($1, broker_id) GROUP BY broker_id ORDER BY broker_id
        """,
        [brokers],
    )
    sentences = {}
    for broker, state, micros, from_snapshot in changes:
        since = time_of(micros)
        ago = (lake.time - since).total_seconds()
        if state:
            earlier = " or earlier" if from_snapshot else ""
            sentences[broker] = f"broker {broker} {state} since {since:%Y-%m-%d %H:%M:%S} UTC{earlier}"
        elif ago <= _SHORT_TIME and not from_snapshot:
            sentences[broker] = f"broker {broker} came back {ago:,.0f} s before"
    return [
        replace(reason, since=[sentences[broker] for broker in reason.waits_for if broker in sentences])
        for reason in blocking
    ]
