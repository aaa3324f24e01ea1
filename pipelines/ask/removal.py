"""Whether a directory can be removed from its broker: the verdict, its reasons, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from jbod_model.ids import Uuid
from jbod_model.loss.fate import OperatorAction
from pipelines.ask.advice import (
    Action,
    Advice,
    Advised,
    bring_home,
    drain,
    look,
    reassign_or_start,
    reassign_or_take_out,
    restart_costs,
)
from pipelines.ask.advice_last_copies import wait_until_in_sync
from pipelines.ask.configs import in_zookeeper, tiered_topics, zookeeper_brokers
from pipelines.ask.json_values import DatedAnswer, NamedPartition
from pipelines.ask.last_copies import LastCopies
from pipelines.ask.lost_data import AtRisk, DataLoss, Losses, complete_copies, losses
from pipelines.ask.whatif_places import Place, already, find_directory, metadata_directories
from pipelines.lake.reader import Lake


@dataclass(frozen=True)
class Held(NamedPartition):
    """A replica that is in the directory, or may be in it."""

    replicas: Sequence[int]
    kind: str
    """assigned: it is in the directory; unassigned, migrating or lost: the log does not know its directory."""
    leads: bool
    only_online: bool
    """No other replica of the partition is online."""
    last_complete: bool
    """No other online replica holds every acknowledged write."""
    arriving: bool
    """A reassignment adds it to the broker."""
    leaving: bool
    """A reassignment removes it from the broker."""
    tiered: bool = False
    """Whether only the local part of the topic is at stake, which was not copied to remote storage yet."""

    @property
    def stays(self) -> bool:
        """Whether it is in the directory, and no reassignment brings it or takes it away."""
        return self.kind == "assigned" and not (self.leaving or self.arriving)


@dataclass(frozen=True)
class Reason(Advised):
    """A reason against the removal, or a fact that the log does not know."""

    blocks: bool
    finding: str
    steps: Sequence[Advice]
    """What to do, in order."""
    partitions: Sequence[str] = ()
    also_in_json = ("advice",)


def _reasons(lake: Lake, place: Place, held: Sequence[Held], data: Losses) -> list[Reason]:
    """Every reason against the removal, and facts that the log does not know."""
    last = data.last_copies
    offline = set(_gives_up(place, last))
    known = {replica.name for replica in held} | offline
    reasons = [
        *(Reason(True, finding, look("ask again then")) for finding in in_zookeeper(lake)),
        *_about_last_offline(place, last),
        *_about_unused(place, data, offline, known),
        *_about_replicas(lake, place, held, last),
        *_about_other_brokers(lake, place),
        *_about_broker(place, last),
        *_about_last(place, held, offline),
    ]
    return [*reasons, *_unknown(lake, place, last, blocked=any(reason.blocks for reason in reasons))]


def needing(lake: Lake, broker: int, directory: str, data: Losses) -> set[str]:
    """The partitions that may need what is on a disk of a broker which a blank one replaces (R-ACT-9)."""
    place, last = find_directory(lake, f"{broker}:{directory}"), data.last_copies
    unused = (reason.partitions for reason in _about_unused(place, data))
    return last.may_lie_in(broker, directory).union(_gives_up(place, last), *unused)


def _about_unused(
    place: Place, data: Losses, offline: Collection[str] = (), known: Collection[str] = ()
) -> Iterator[Reason]:
    """What may be needed of the disk, and is in no use. The disk may be in another broker by now: its id counts."""
    lost = [loss for loss in data.losses if not loss.accepted and loss.holds_more(place.broker_id, place.directory_id)]
    yield from _about_lost(place, [loss for loss in lost if loss.name not in offline])
    yield from _about_perhaps(place, [at for at in (*data.perhaps, *data.at_risk) if at.name not in known])
    yield from _about_recreated(place, data, offline)


def _about_lost(place: Place, lost: Sequence[DataLoss]) -> Iterator[Reason]:
    """The disk may be the only place that still has the data."""
    if names := tuple(dict.fromkeys(loss.name for loss in lost)):
        last = any(copy in loss.copies for loss in lost for copy in loss.held_in(place.broker_id, place.directory_id))
        held = f"{'the last complete' if last else 'an older'} copy of {_count(names, 'partition')}"
        saved = look(f"do not wipe {place.name}: save these partitions from it first (jbod check --only B-32,B-33)")
        yield Reason(True, f"it held {held} whose data is lost or lacks writes", saved, names)


def _about_perhaps(place: Place, perhaps: Sequence[AtRisk]) -> Iterator[Reason]:
    """The last copies of replicas that may be in it, and may have been recreated empty in another directory. The disk
    may be in another broker by now: its id counts."""
    hit = [
        at for at in perhaps if any(copy.may_be_away and place.directory_id in copy.directories for copy in at.copies)
    ]
    if names := tuple(dict.fromkeys(at.name for at in hit)):
        yield Reason(
            True,
            f"it may hold the last complete copy of {_count(names, 'partition')}: a broker started without it while no "
            "record said in which directory they were, and may have recreated them empty",
            look(f"do not wipe {place.name}: save these partitions from it first"),
            names,
        )


def _about_recreated(place: Place, data: Losses, named: Collection[str]) -> Iterator[Reason]:
    """Replicas that were recreated elsewhere may have left their next best copies in it (R-ACT-8)."""
    at, last = place.directory_id or "", data.last_copies
    left = set() if place.listed else last.left_in(place.broker_id, at) - {*named}
    judged = {loss.name for loss in data.losses if loss.accepted or loss.held_in(place.broker_id, at)}
    hurt = sorted(left & ({loss.name for loss in data.losses} - judged | {replica.name for replica in data.at_risk}))
    if hurt:
        what = f"it may hold a part of {_count(hurt, 'partition')} whose complete copies are lost or not in use"
        yield Reason(True, what, look(f"do not wipe {place.name}: save these partitions from it first"), hurt)
    if left and (late := sorted(left & last.only_leader_in_sync(place.broker_id) - {*hurt})):
        what = (
            f"{_count(late, 'replica')} recreated elsewhere may have left a log in it, and only the leader is in sync"
        )
        yield Reason(True, what, [wait_until_in_sync(place.broker_id, late)], late)


def _gives_up(place: Place, last: LastCopies) -> list[str]:
    """The partitions whose last copy is given up if the directory is replaced."""
    directory = Uuid.parse(place.directory_id or "")
    return last.given_up(OperatorAction(kind="replace", broker_id=place.broker_id, directory=directory))


def _keep(place: Place, last: LastCopies) -> list[Advice]:
    """The steps that keep the last copies on the broker."""
    if place.broker == "missing":
        return last.about_missing(place.broker_id)
    if place.broker == "fenced" and not last.away.get(place.broker_id):
        return last.about_fenced(place.broker_id, in_order=False)
    return last.steps(place.broker_id, running=place.broker == "online")


def _about_last_offline(place: Place, last: LastCopies) -> Iterator[Reason]:
    """The last copies that the removal gives up while they are offline, or online and in no list (R-ACT-1)."""
    if names := _gives_up(place, last):
        what = _count(names, "partition")
        finding = f"without it broker {place.broker_id} gives up the last complete copy of {what}, which is not in use"
        steps = _keep(place, last) or look("keep it: jbod offline says what brings a complete copy into use again")
        yield Reason(True, finding, steps, tuple(names))


def _about_last(place: Place, held: Sequence[Held], known: set[str]) -> Iterator[Reason]:
    """The last complete copies, except of partitions already reported.

    A reassignment that removes a replica waits until another one is complete.
    """
    last = [replica for replica in held if replica.kind == "assigned" and replica.last_complete and not replica.leaving]
    last = [replica for replica in last if not (replica.only_online and place.online) and replica.name not in known]
    in_use = " until they have left it, or another replica of each is in sync"
    kept = in_use if place.online else ": bring it back, or another complete copy"
    if last:
        yield Reason(
            True,
            f"it holds the last complete copy of {_count(last, 'partition')}: no other replica that is online has "
            f"every acknowledged write{_only_local(last)}",
            look(f"do not wipe {place.name}{kept}"),
            tuple(replica.name for replica in last),
        )


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things):,} {what}" + ("s" if len(things) != 1 else "")


def _about_replicas(lake: Lake, place: Place, held: Sequence[Held], last: LastCopies) -> list[Reason]:
    broker = place.broker_id
    inside = [replica for replica in held if replica.kind == "assigned"]
    staying = [replica for replica in held if replica.stays]
    mode = " under KRaft" if broker in zookeeper_brokers(lake) else ""
    reasons = [
        _reason(staying, f"{{}} in it{_weight(staying)}", _how_to_empty(lake, place, last)),
        _reason(
            [replica for replica in inside if replica.leaving],
            "{} in it, which a reassignment that is under way takes away",
            look("wait until the reassignment is done: kafka-reassign-partitions --verify"),
        ),
        _reason(
            [replica for replica in held if replica.arriving],
            "{} that a reassignment is bringing to the broker, into this directory or one that is not known yet",
            look("wait until the reassignment is done, and ask again"),
        ),
        _reason(
            [replica for replica in held if replica.kind == "unassigned" and not replica.arriving],
            f"{{}} of broker {broker} in no directory yet (UNASSIGNED): they may be in this one",
            look(
                f"wait for broker {broker} to report where they are; if they stay, its next restart{mode} reports "
                f"them: jbod safe-to-restart {broker}"
            ),
        ),
        _reason(
            [replica for replica in held if replica.kind == "migrating"],
            f"{{}} of broker {broker} from before directories were recorded (MIGRATING): they may be in this one",
            _restart(
                last, broker, f"restart broker {broker}{mode}: it then reports where they are{restart_costs(broker)}"
            ),
        ),
        _reason(
            [replica for replica in held if replica.kind == "lost" and not place.listed],
            f"{{}} of broker {broker} in a directory that failed, which one the log does not say (LOST)",
            look(f"run jbod disks on broker {broker} to find out which directory failed"),
        ),
    ]
    return [reason for reason in reasons if reason is not None]


def _about_other_brokers(lake: Lake, place: Place) -> Iterator[Reason]:
    """Replicas that the directory had when another broker listed it: its disk was moved."""
    for broker, names in lake.query(
        f"""
        SELECT broker_id, list(topic || '-' || partition ORDER BY topic, partition)
        FROM {lake.at("assignments")} WHERE directory_id = $1 AND broker_id <> $2 GROUP BY ALL ORDER BY ALL
        """,
        [place.directory_id, place.broker_id],
    ):
        yield Reason(
            True,
            f"{_count(names, 'replica')} of broker {broker} in it: it was a disk of broker {broker}",
            bring_home(broker, names),
            tuple(names),
        )


def _restart(last: LastCopies, broker: int, text: str) -> list[Advice]:
    kept = last.steps(broker, running=True)
    return kept or [*last.before_start(broker, running=True), Advice(Action.RESTART, text, broker)]


def drain_command(lake: Lake, place: Place) -> str:
    """The command that plans how to empty a directory."""
    directory = place.directory_id or ""
    name = lake.names.get(directory)
    # The full id would be shown with its name behind it.
    text = directory if name is None else name.path or directory[:8]
    return f"jbod plan drain {quote(f'{place.broker_id}:{text}')}"


def _how_to_empty(lake: Lake, place: Place, last: LastCopies) -> Sequence[Advice]:
    """Only a running broker can move replicas between its disks, and only from a disk that works."""
    broker = place.broker_id
    if place.broker == "missing":
        return () if last.away.get(broker) else [reassign_or_start(broker)]
    if _gives_up(place, last) and not place.online:
        return ()  # another reason says what to do
    if place.listed:
        return [drain(broker, drain_command(lake, place))]
    running = place.broker == "online"
    return [*last.before_start(broker, running=running), reassign_or_take_out(broker, place.directory_id or "")]


def _reason(held: Sequence[Held], finding: str, steps: Sequence[Advice]) -> Reason | None:
    if not held:
        return None
    return Reason(True, finding.format(_count(held, "replica")), steps, tuple(replica.name for replica in held))


def _weight(held: Sequence[Held]) -> str:
    """How many of the replicas lead, and how many are the last ones online."""
    leading, last = sum(replica.leads for replica in held), sum(replica.only_online for replica in held)
    weights = ((leading, "of them leading"), (last, "with no other replica online"))
    phrases = [f"{count:,} {what}" for count, what in weights if count]
    if not phrases:
        return ""
    return f", {' and '.join(phrases)}{_only_local([replica for replica in held if replica.only_online])}"


def _only_local(last: Sequence[Held]) -> str:
    """Which part of the last copies is at stake if topics are tiered."""
    tiered = sum(replica.tiered for replica in last)
    return f" (of {tiered:,} only the local part, which was not copied to remote storage yet)" if tiered else ""


def _about_broker(place: Place, last: LastCopies) -> Iterator[Reason]:
    broker = place.broker_id
    if place.broker == "fenced":
        finding = f"broker {broker} is fenced: what it does with its directories now is not known"
        yield Reason(True, finding, _start_and_ask(broker, last))
        return
    first = [*last.before_start(broker, running=True)] if place.broker == "online" else []
    if place.online:
        at = f"{broker} --gone {place.directory_id}"
        first += look(f"ask jbod safe-to-restart {at} first, or --blank for a blank disk in its place")
    if first:
        yield Reason(False, f"without it broker {broker} has to restart", first)
    if place.metadata:
        yield Reason(
            True,
            f"it has the metadata log of node {broker}: the process stops without it, and does not start again",
            look(
                f"move the controller first: remove voter {broker} from the quorum, change metadata.log.dir, "
                "format it, and add the voter again (kafka-metadata-quorum remove-controller, add-controller)"
            ),
        )
    elif place.only:
        yield Reason(
            True,
            f"it is the only directory that broker {broker} has online: the broker stops without it",
            look("give the broker another directory first (log.dirs and a restart), or take the whole broker out"),
        )


def _start_and_ask(broker: int, last: LastCopies) -> list[Advice]:
    if kept := last.steps(broker, running=False):
        return kept
    names = tuple(sorted(set(last.down.get(broker, ()))))
    text = f"start broker {broker} with all its disks and ask again; it reports its replicas when it is back"
    step = Advice(Action.START, text, broker, partitions=names, every_disk=True)
    return [*last.before_start(broker, running=False), step]


def _unknown(lake: Lake, place: Place, last: LastCopies, *, blocked: bool) -> list[Reason]:
    """New replicas that may be placed in the directory, and facts that no record contains."""
    broker = place.broker_id
    if not place.listed:
        return [_not_listed(lake, place, last, blocked=blocked)]
    ((cordoned,),) = lake.query(f"SELECT cordoned_log_dirs FROM {lake.at('brokers')} WHERE broker_id = $1", [broker])
    if cordoned and place.directory_id in cordoned:
        placement = Reason(
            False,
            "it is cordoned: no new replica is placed in it",
            look(
                "take its path out of cordoned.log.dirs once the broker runs without it: while a cordon names a path "
                "that is not in log.dirs, Kafka applies and takes no configuration of the broker"
            ),
        )
    else:
        placement = Reason(
            False,
            "it is not cordoned: a partition that is created now may be placed in it",
            look("cordon it (cordoned.log.dirs, Kafka 4.3 and later), or create no topics until it is out"),
        )
    unknown, where = "whether it is the metadata log directory, or ", "at metadata.log.dir in server.properties, and "
    if broker in metadata_directories(lake):
        unknown = where = ""
    return [
        placement,
        Reason(
            False,
            f"no record says {unknown}whether a copy is being moved into it",
            look(f"look {where}for isFuture in kafka-log-dirs --broker-list {broker}"),
        ),
    ]


def _not_listed(lake: Lake, place: Place, last: LastCopies, *, blocked: bool) -> Reason:
    """``blocked``: another reason says what to do first, and no restart comes before that."""
    rows = lake.query(
        f"SELECT broker_id FROM {lake.at('brokers')} WHERE list_contains(log_dirs, $1)", [place.directory_id]
    )
    if rows:
        other = rows[0][0]
        return Reason(
            True, f"the directory is on broker {other} now", look(f"ask about it there: {other}:{place.directory_id}")
        )
    if (since := already(lake, place)) and place.broker == "missing":
        earlier = " or earlier" if since.from_snapshot else ""
        when = "" if since.from_offset is None else f" since offset {since.from_offset}{earlier}"
        return Reason(
            False,
            f"broker {place.broker_id} has not been registered{when}: started with this disk, it would count what is "
            "on it",
            () if _gives_up(place, last) else look("once no replica names it, keep the disk away from that broker"),
        )
    out = Advice(
        Action.REPLACE,
        f"take it out of log.dirs of broker {place.broker_id} before the next restart",
        place.broker_id,
        (place.directory_id or "",),
    )
    return Reason(
        False,
        "the broker does not list the directory: it failed, or is gone, and no new replica is placed in it",
        () if blocked else [*last.before_start(place.broker_id, running=True), out],
    )


@dataclass(frozen=True)
class Removal(DatedAnswer):
    """The answer."""

    broker_id: int
    broker: str
    """online, fenced or missing."""
    directory_id: str
    listed: bool
    """Whether the broker lists the directory as online."""
    safe: bool
    reasons: Sequence[Reason]
    """The reasons, blocking ones first."""
    held: Sequence[Held]
    plan: str | None
    """The command that plans how to empty it. None if nothing is in it to be moved, or if the broker cannot move it."""


def safe_to_remove(lake: Lake, text: str, default_min_isr: int = 1, accepted_until: int = -1) -> Removal:
    """Whether ``BROKER:DIRECTORY`` can be removed at the lake's offset. Raises UsageError if it does not exist.

    Lost data up to the offset ``accepted_until`` is accepted.
    """
    place = find_directory(lake, text)
    held = _held(lake, place, default_min_isr)
    data = losses(lake, default_min_isr, accepted_until)
    reasons = sorted(_reasons(lake, place, held, data), key=lambda reason: not reason.blocks)
    return Removal(
        lake.offset,
        lake.time,
        place.broker_id,
        place.broker,
        place.directory_id or "",
        place.listed,
        not any(reason.blocks for reason in reasons),
        reasons,
        held,
        drain_command(lake, place) if place.listed and any(replica.stays for replica in held) else None,
    )


def _held(lake: Lake, place: Place, default_min_isr: int) -> list[Held]:
    """Replicas in the directory, and those of its broker whose directory is unknown."""
    rows = lake.query(
        f"""
        SELECT p.topic, p.partition, p.replicas, a.kind, p.leader = a.broker_id,
               list_contains(p.adding, a.broker_id), list_contains(p.removing, a.broker_id), p.topic_id,
               list_filter(p.replicas, lambda b: b <> a.broker_id AND NOT list_contains(coalesce(o.down, []), b)),
               list_concat(p.isr, p.elr)
        FROM {lake.at("assignments")} a JOIN {lake.at("partitions")} p USING (topic_id, partition)
        LEFT JOIN {lake.offline_brokers()} o USING (topic_id, partition)
        WHERE a.broker_id = $1 AND (a.directory_id = $2 OR a.kind <> 'assigned')
        ORDER BY p.topic, p.partition
        """,
        [place.broker_id, place.directory_id],
    )
    # The partition's lists name the complete copies, unless a copy was damaged. The model knows these cases.
    doubtful = [(row[7], row[1]) for row in rows if not set(row[8]) & set(row[9])]
    complete = complete_copies(lake, doubtful, default_min_isr)
    held_replicas = []
    tiered = tiered_topics(lake)
    for topic, partition, replicas, kind, leads, arriving, leaving, topic_id, online, named in rows:
        copies = complete.get((topic_id, partition))
        mine = copies is None or place.broker_id in copies
        last = mine and not set(online) & set(named if copies is None else copies)
        held_replicas.append(
            Held(topic, partition, replicas, kind, leads, not online, last, arriving, leaving, topic in tiered)
        )
    return held_replicas
