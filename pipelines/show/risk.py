"""The effects of failures as text: the answer, then the reason, then what to do, then the list."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from jbod_model.formats.metadata_version import ELR_FEATURE
from pipelines.ask.removal import Reason, Removal
from pipelines.ask.risk import Exposure, Risk
from pipelines.ask.whatif import LeaderChange, WhatIf
from pipelines.ask.whatif_config import ConfigEffect, ReconfiguredPartition
from pipelines.ask.whatif_places import Already
from pipelines.show.answers import only_local
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    SCREENFUL,
    Column,
    Screen,
    at_most,
    in_units,
    led_by,
    listed,
    many,
    rate_in_words,
    say,
    show_chosen,
    show_fault,
    show_rest,
    show_selection,
    show_steps,
    show_table,
    show_title,
    when,
)

ADVICE = (
    (
        "without_leader",
        "If no broker could take over, no other replica is in sync: `jbod offline` says why. "
        "Partitions of one replica need a second one: jbod plan replicas TOPIC=2.",
    ),
    ("all_offline", "Where the last replica online is at stake, take no broker or disk out until another one is back."),
    ("unclean", "Where an unclean election would follow, acknowledged writes would be lost: see the topic's settings."),
    (
        "last_complete",
        "Where the last complete copy online is at stake, wipe no disk afterwards: while it exists nothing is lost, "
        "and replicas that are recreated or elected without it lack writes.",
    ),
    (
        "under_min_isr",
        "Where in-sync replicas would be too few, writes with acks=all would stop until another one is in sync.",
    ),
    (
        "stalled",
        "Where writes would wait, bring a majority of the controllers back first: only they take dead replicas off.",
    ),
    (
        "perhaps_unserved",
        "Where perhaps nobody would answer, `jbod offline` names the replica that may be offline already. "
        "kafka-log-dirs --describe says where it is, and a restart of its broker makes it report that.",
    ),
)

_DATA = ("all_offline", "last_complete", "unclean")
"""What may cost data."""
FIELDS = {"all_offline": "last_replicas"}
"""Fields that have another name in an exposure than in a change."""


def show_risk(out: Screen, answer: Risk, shown: Risk, chosen: Chosen, every: bool = False) -> None:
    """The effects of each single failure. ``shown`` has only what matches the filters of ``chosen``."""
    at = f"At offset {answer.offset}, {when(answer.time)}:"
    bad = [exposure for exposure in (*answer.brokers, *answer.directories) if not exposure.harmless]
    brokers = [exposure for exposure in bad if exposure.directory_id is None]
    perhaps = [exposure for exposure in answer.directories if exposure.harmless and exposure.unplaced_at_risk]
    if not answer.brokers:
        wipe_none = "Wipe no disk: jbod offline names the last copies."
        say(out, f"{at} no broker is unfenced: all is offline already. {wipe_none}", "bold red")
    elif not bad:
        say(out, f"{at} any one broker or directory can fail: only leaders would move.", "green")
    else:
        directories = len(bad) - len(brokers)
        say(
            out,
            f"{at} {len(brokers):,} of {many(len(answer.brokers), 'broker')} and {directories:,} of "
            f"{many(len(answer.directories), 'directory', 'directories')} cannot fail without loss.",
            "bold red",
        )
        if perhaps:
            more = many(len(perhaps), "more directory", "more directories")
            say(out, f"{more} may not: no record says in which of them replicas of their broker are.", "bold red")
        say(out, f"Worst: {_cost(bad[0])}", hang=7)
        if brokers and directories:
            say(out, f"Worst: {_cost(bad[len(brokers)])}", hang=7)
    if stuck := {exposure.broker_id: exposure.no_quorum for exposure in answer.brokers if exposure.no_quorum}:
        places = listed([f"broker {broker}" for broker in sorted(stuck)])
        say(out, f"Nobody could elect leaders without {places}: {min(stuck.values())}.", "bold red")
    _show_already(out, answer)
    if answer.tiered_topics and any(exposure.last_replicas or exposure.unclean for exposure in bad):
        topics = listed(answer.tiered_topics)
        say(
            out,
            f"Of tiered topics only the local part is at stake, which was not copied to remote storage yet: {topics}",
        )
    if bad:
        worst = bad[0]
        place = f"{worst.broker_id}" if worst.directory_id is None else f"{worst.broker_id}:{worst.directory_id}"
        lost = {what for what, _ in ADVICE if any(getattr(exposure, FIELDS.get(what, what), 0) for exposure in bad)}
        _show_advice(out, lost, f"For the partitions one by one: jbod whatif --fail {place}")
    if chosen.line:
        say(out)
        show_selection(out, chosen)
    if answer.sizes_time is not None:
        say(out)
        reckoned = f"to copy them again is reckoned at {rate_in_words()}"
        say(out, f"Bytes are those of {when(answer.sizes_time)}; {reckoned}.", "dim")
    for title, exposures in (("Brokers", shown.brokers), ("Directories", shown.directories)):
        if exposures:
            say(out)
            _show_exposures(out, title, exposures, every or chosen.wanted.orders)


def _show_advice(out: Screen, lost: Container[str], *more: str) -> None:
    show_steps(out, [*(text for what, text in ADVICE if what in lost), *more])


def _cost(exposure: Exposure) -> str:
    """An exposure as a sentence."""
    place = (
        f"broker {exposure.broker_id}"
        if exposure.directory_id is None
        else f"{exposure.directory_id} of broker {exposure.broker_id}"
    )
    costs = [
        f"{count:,} {what}"
        for count, what in (
            (exposure.without_leader, "without a leader"),
            (exposure.last_replicas, "without any replica online"),
            (exposure.unclean, "led by a replica that was not in sync"),
            (exposure.under_min_isr, "under min.insync.replicas"),
            (exposure.stalled, "waiting for a dead in-sync replica"),
            (exposure.perhaps_unserved, "in need of a replica that may be offline"),
        )
        if count
    ]
    return f"{place} would leave partitions behind: {', '.join(costs)}."


def _show_already(out: Screen, answer: Risk) -> None:
    """What is lost already."""
    troubles = [
        many(count, f"partition {what}", f"partitions {what}")
        for count, what in ((answer.without_leader, "without a leader"), (answer.under_min_isr, "under min ISR"))
        if count
    ]
    if answer.fenced_brokers:
        troubles.append(f"fenced: {listed([f'broker {broker}' for broker in answer.fenced_brokers])}")
    if troubles:
        say(out, f"As it is: {', '.join(troubles)}. Not counted below.", "dim", 10)


def _show_exposures(out: Screen, title: str, exposures: Sequence[Exposure], every: bool) -> None:
    shown = exposures if every else exposures[:SCREENFUL]
    say(out, f"{title}, worst first", "bold")
    show_table(
        out,
        (
            (">BROKER", "broker_id"),
            ("DIRECTORY", lambda it: f"{it.directory_id} (stops its broker)" if it.stops_broker else it.directory_id),
            (">NO LEADER", "without_leader"),
            (">LAST REPLICA", "last_replicas"),
            (">UNCLEAN", "unclean"),
            (">UNDER MIN ISR", "under_min_isr"),
            (">LEADERS MOVE", "moved"),
            (">REPLICAS", "replicas"),
            (">UNPLACED", "unplaced"),
            (">BYTES", lambda it: "" if it.bytes is None else in_units(it.bytes)),
            (">ONE COPY", lambda it: in_units(it.last_bytes) if it.last_bytes else ""),
            (">COPY AGAIN", lambda it: "" if it.bytes is None else at_most(it.copy_seconds)),
            (">WRITES WAIT", "stalled"),
            (">PERHAPS UNSERVED", "perhaps_unserved"),
        ),
        shown,
        ("DIRECTORY", "UNCLEAN", "UNPLACED", "BYTES", "ONE COPY", "COPY AGAIN", "WRITES WAIT", "PERHAPS UNSERVED"),
    )
    show_rest(out, len(exposures) - len(shown))


def show_whatif(out: Screen, answer: WhatIf, chosen: Chosen, every: bool = False) -> None:
    """The effects of one set of failures."""
    hurt = [change for change in answer.changes if not change.harmless]
    last = len(answer.last_unplaced) + len(answer.last_offline) + len(answer.went_on)
    failing = listed([place.name for place in answer.failing])
    if answer.nothing_new:
        say(out, f"Nothing would change at offset {answer.offset}, {when(answer.time)}: it has failed already.", "bold")
        for failure in answer.already:
            say(out, f"  {_already(failure)}", hang=4)
        if answer.last_offline or answer.went_on or any(failure.held for failure in answer.already):
            say(out, "jbod offline shows the present state, and what to do.")
        _show_last(out, answer)
        return
    say(
        out,
        f"If {failing} failed at offset {answer.offset}, {when(answer.time)}: " + _in_short(hurt, last),
        "bold red" if hurt or last else "green",
    )
    moved = len(answer.chosen("moved"))
    say(
        out, f"{many(answer.replicas, 'replica')} would go offline; {many(moved, 'partition')} would be led by another."
    )
    for what, meaning in (
        ("without_leader", "would have no leader: no reads, no writes"),
        ("all_offline", "would have no replica surely online: if the disks are dead, the data is gone"),
        ("last_complete", "would lose the last complete copy online: what is lost if that disk is dead or wiped"),
        ("unclean", "would elect a leader that is not in sync: acknowledged writes may be lost"),
        ("under_min_isr", "would be under min.insync.replicas: writes with acks=all fail"),
        ("stalled", "would wait for a dead in-sync replica: writes with acks=all time out, consumers see nothing new"),
        ("perhaps_unserved", "would need a replica that may be offline, as no record says where it is"),
    ):
        names = _hit(answer, what)
        if names:
            say(out, f"{many(len(names), 'partition')} {meaning}:", "red")
            say(out, f"  {listed(names)}")
            tiered = [
                leader_change.name
                for leader_change in answer.chosen(what)
                if leader_change.tiered and leader_change.name in names
            ]
            if tiered and what in _DATA:
                say(out, f"  {only_local(tiered)}")
    _show_last(out, answer)
    for failure in answer.already:
        say(out, f"Nothing changes with what has failed already: {_already(failure)}", "yellow")
    for place in answer.failing:
        if place.online and place.directory_id is not None and place.halts:
            why = "has the metadata log of its node" if place.metadata else "is of a broker in ZooKeeper mode"
            why = "is the only one its broker has" if place.only else why
            say(out, f"{place.name} {why}: the whole broker stops.", "yellow")
    if answer.quorum is not None and not answer.quorum.safe:
        say(out, f"Nobody elects leaders or changes in-sync sets: {answer.quorum.finding}.", "bold red")
    show_fault(out, answer.fault)
    if hurt:
        _show_advice(out, {what for what, _ in ADVICE if _hit(answer, what)})
    if answer.changes:
        show_chosen(out, chosen, _CHANGES, chosen.rows, every or chosen.wanted.orders)


def _in_short(hurt: Sequence[LeaderChange], last: int) -> str:
    """``last``: partitions whose last copy is in no use, or may be on a disk that fails."""
    if hurt:
        surely = any(not replace(change, perhaps_unserved=False).harmless for change in hurt)
        return f"{many(len(hurt), 'partition')} {'would' if surely else 'may'} lose something."
    if last:
        return f"{many(last, 'partition')} may lose the last complete copy."
    return "only leaders would move."


def _show_last(out: Screen, answer: WhatIf) -> None:
    """The last copies that are offline already, or may be on a disk that fails, and that would go with the disks."""
    groups: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for partition in answer.last_offline:
        groups.setdefault((partition.certain, tuple(copy.where for copy in partition.copies)), []).append(
            partition.name
        )
    for (certain, where), names in groups.items():
        places = (" and " if certain else " or ").join(where)
        several = certain and len(where) > 1
        hold = "hold the last complete copies" if several else "holds the last complete copy"
        why = "of which none is in use: if those disks are" if several else "offline already: if that disk is"
        say(
            out,
            f"{places} {hold} of {many(len(names), 'partition')}, {why} dead or wiped, the data is gone:",
            "bold red",
        )
        say(out, f"  {listed(names)}")
    if names := list(dict.fromkeys(partition.name for partition in answer.went_on)):
        went_on = f"{many(len(names), 'partition')} went on without writes that a copy there may hold"
        say(out, f"{went_on}: save these before it is wiped (jbod check --only B-32,B-33):", "bold red")
        say(out, f"  {listed(names)}")
    names = [partition.name for partition in answer.last_unplaced]
    if names:
        brokers = sorted({copy.broker_id for partition in answer.last_unplaced for copy in partition.copies})
        of = f"broker{'s' if len(brokers) > 1 else ''} {' or '.join(map(str, brokers))} has it"
        its = "its" if len(names) == 1 else "their"
        say(
            out,
            f"{many(len(names), 'partition')} may have {its} last complete copy there "
            f"(no record says which directory of {of}): if it is on a disk that is dead or wiped, the data is gone:",
            "bold red",
        )
        say(out, f"  {listed(names)}")


def _hit(answer: WhatIf, what: str) -> list[str]:
    """The affected partitions. One without an online replica also has no complete replica online."""
    return [change.name for change in answer.chosen(what) if not (what == "last_complete" and change.all_offline)]


_CHANGES: Sequence[Column[LeaderChange]] = (
    ("PARTITION", "name"),
    ("REPLICAS", lambda change: ",".join(map(str, change.replicas))),
    ("LEADER", lambda change: led_by(change.leader)),
    ("THEN", lambda change: led_by(change.leader_after)),
    (">IN SYNC", "in_sync"),
    (">THEN", "in_sync_after"),
    (">MIN ISR", "min_isr"),
    ("LOSES", lambda change: ", ".join(_losses(change)) or "nothing"),
)


def _losses(change: LeaderChange) -> Iterable[str]:
    if change.without_leader:
        yield "its leader"
    if change.all_offline:
        yield "its last replica online"
    elif change.last_complete:
        yield "its last complete copy online"
    if change.unclean:
        yield "writes that the new leader lacks" if change.leader_after >= 0 else "writes, if others fail first"
    if change.under_min_isr or change.stalled:
        yield "acks=all writes"
    if change.perhaps_unserved:
        yield "perhaps its leader or acks=all writes"


def _already(failure: Already) -> str:
    """How and when a place failed, and which replicas it held."""
    at = "at or before" if failure.from_snapshot else "at"
    at = "" if failure.from_time is None else f" {at} offset {failure.from_offset}, {when(failure.from_time)}"
    since = at.replace(" at offset", " since offset")
    what = {
        "fenced": f"fenced{since}",
        "failed": f"its broker reported it failed{at}",
        "deregistered": f"its broker came back without it{at}",
        "unregistered": f"its broker was unregistered{at}",
        "moved": f"its disk is in another broker{since}",
        "unknown": "no record has it online on its broker",
    }.get(failure.state, f"it went{at}")
    where = "on" if failure.place.directory_id is None else "in"
    left = (
        "none is now"
        if not failure.held
        else "all still are"
        if failure.held == failure.took
        else f"{failure.held:,} are now"
    )
    return f"{failure.place.name}: {what}; {many(failure.took, 'replica')} were {where} it, {left}."


def show_removal(out: Screen, answer: Removal, chosen: Chosen, every: bool = False) -> None:
    """Whether a directory can be removed."""
    name = f"directory {answer.directory_id} of broker {answer.broker_id}"
    at = f"at offset {answer.offset}, {when(answer.time)}"
    blocking = [reason for reason in answer.reasons if reason.blocks]
    if answer.safe:
        say(out, f"Safe to remove: {name}, {at}: no replica is in it.", "green")
    else:
        say(out, f"Not safe to remove: {name}, {at}.", "bold red")
        _show_reasons(out, blocking, every)
    rest = [reason for reason in answer.reasons if not reason.blocks]
    if rest:
        show_title(out, "Before you pull it" if answer.safe else "Also")
        for reason in rest:
            say(out, f"  {reason.finding}", hang=4)
            if reason.advice:
                say(out, f"    {reason.advice}", "dim", hang=4)
    if chosen.line:
        say(out)
        show_selection(out, chosen)
        for replica in chosen.rows:
            say(out, f"  {replica.name}")


def _show_reasons(out: Screen, reasons: Sequence[Reason], every: bool) -> None:
    show_title(out, "Why")
    for reason in reasons:
        say(out, f"  {reason.finding}", hang=4)
        if reason.partitions:
            say(out, f"    {listed(reason.partitions, len(reason.partitions) if every else 8)}", "dim", hang=4)
    show_steps(out, (step.text for reason in reasons for step in reason.steps))


EFFECTS = (
    ("refuses_writes", "would refuse writes with acks=all", "red"),
    ("lacks_writes", "would elect a leader at once that lacks acknowledged writes: they are lost", "bold red"),
    ("elects", "would elect a leader at once", "yellow"),
    ("stranded", "would have no leader, and no replica left that can be elected but uncleanly", "bold red"),
    ("loses_eligible", "would lose eligible leaders", "yellow"),
    ("accepts_writes", "would accept writes with acks=all again", "green"),
)
CONFIG_ADVICE = (
    (
        "refuses_writes",
        "First bring the other replicas into sync: kafka-topics --describe --under-min-isr-partitions lists what is "
        "missing afterwards.",
    ),
    (
        "lacks_writes",
        "First bring back a replica that was in sync (jbod offline says which disk or broker): once another replica "
        "leads, its writes are gone.",
    ),
    (
        "loses_eligible",
        "First start the brokers of the eligible leaders, and wait until these partitions have an in-sync set of "
        "min.insync.replicas: until then only the eligible leaders may be elected cleanly.",
    ),
)


def show_config(out: Screen, answer: ConfigEffect, chosen: Chosen, every: bool = False) -> None:
    """The effects of one change, the worst first."""
    setting = f"{answer.name}={answer.value} for {_scope(answer)}"
    at = f"at offset {answer.offset}, {when(answer.time)}"
    if answer.refused:
        say(out, f"The controller refuses {setting} {at}: {answer.refused}", "bold red")
        return
    bad = [
        partition
        for partition in answer.changes
        if partition.refuses_writes or partition.lacks_writes or partition.loses_eligible
    ]
    if bad:
        say(out, f"{setting}, set {at}: {many(len(bad), 'partition')} would lose something.", "bold red")
    else:
        say(out, f"{setting}, set {at}: no partition would lose anything.", "green")
    say(out, _before(answer))
    for what, meaning, style in EFFECTS:
        names = [partition.name for partition in answer.chosen(what)]
        if names:
            say(out, f"{many(len(names), 'partition')} {meaning}:", style)
            say(out, f"  {listed(names)}")
    if answer.at_limit:
        say(
            out,
            f"{many(answer.at_limit, 'partition')} would refuse writes with acks=all as soon as one more replica falls "
            "out of sync, also while a broker restarts.",
            "yellow",
        )
    if answer.removed_from:
        say(
            out,
            "The controller removes the min.insync.replicas of single brokers: "
            + ", ".join(f"broker {broker}" for broker in answer.removed_from),
        )
    if answer.name == ELR_FEATURE:
        say(out, f"Whether all nodes support the level: jbod upgrade-check --to {answer.name}={answer.value}", "dim")
    show_fault(out, answer.fault)
    show_steps(out, (text for what, text in CONFIG_ADVICE if answer.chosen(what)))
    if answer.changes:
        show_chosen(out, chosen, _RECONFIGURED, chosen.rows, every or chosen.wanted.orders)


def _scope(answer: ConfigEffect) -> str:
    if answer.topics:
        return f"{'topic' if len(answer.topics) == 1 else 'topics'} {listed(answer.topics)}"
    if answer.brokers:
        return listed([f"broker {broker}" for broker in answer.brokers])
    return "the cluster" if answer.name == ELR_FEATURE else "all brokers"


def _before(answer: ConfigEffect) -> str:
    """The value now, and what it means that it is the same."""
    if answer.unchanged:
        same = "It is set to this value already"
        if answer.topics:
            return f"{same}: the controller writes nothing."
        if answer.chosen("loses_eligible"):
            return f"{same}. The controller writes it again, and clears the eligible leaders all the same."
        return f"{same}."
    if not answer.before:
        return "It is not set there now."
    values = sorted({*answer.before.values()})
    return f"It is {' or '.join(values)} now."


_RECONFIGURED: Sequence[Column[ReconfiguredPartition]] = (
    ("PARTITION", "name"),
    ("REPLICAS", lambda partition: _brokers(partition.replicas)),
    ("LEADER", lambda partition: led_by(partition.leader)),
    ("THEN", lambda partition: led_by(partition.leader_after)),
    ("IN SYNC", lambda partition: _brokers(partition.isr)),
    ("ELIGIBLE", lambda partition: _brokers(partition.eligible)),
    ("THEN", lambda partition: _brokers(partition.eligible_after)),
    (">MIN ISR", "min_isr"),
    (">THEN", "min_isr_after"),
)


def _brokers(brokers: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in brokers if broker >= 0) or "none"
