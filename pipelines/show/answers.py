"""Answers as text for a person: first the answer, then the reason, then what to do, then the list.

Data that is lost, or only on offline disks, comes before the replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from jbod_model.formats.metadata_version import METADATA_VERSION, level_text
from pipelines.ask.lake_status import Directory, Leaderless, LeaderlessPartition, Status, Troubled
from pipelines.ask.lost_data import LOST, MAY_LACK, UNREACHABLE, DataLoss, Losses
from pipelines.ask.offline_replicas import Offline, OfflineReplica
from pipelines.ask.partition_history import PartitionHistory
from pipelines.quorum.state import WatchedQuorum
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    SCREENFUL,
    Screen,
    age,
    copying,
    in_units,
    listed,
    many,
    partition_name,
    say,
    show_rest,
    show_selection,
    show_table,
    show_title,
    when,
)

TROUBLES = {
    "partitions_data_lost": ("partition with lost data", "partitions with lost data"),
    "partitions_data_unreachable": ("partition with unreachable data", "partitions with unreachable data"),
    "partitions_without_leader": ("partition without a leader", "partitions without a leader"),
    "partitions_led_from_offline": ("partition led from offline", "partitions led from offline"),
    "partitions_under_min_isr": ("partition under min ISR", "partitions under min ISR"),
    "partitions_may_lack_writes": ("partition that may lack writes", "partitions that may lack writes"),
    "offline_replicas": ("offline replica", "offline replicas"),
    "partitions_under_replicated": ("partition under-replicated", "partitions under-replicated"),
}
"""Count of a status -> what it counts, one and several. The worst first."""
MOST_GROUPS = 8
"""Groups, unless all are asked for."""


def losses_in_words(answer: Losses) -> str:
    """``the data of 2 partitions is lost, and 1 partition may lack writes``, empty if there is no loss."""
    lost, away, lacking = map(answer.count, (LOST, UNREACHABLE, MAY_LACK))
    clauses = [f"the data of {many(lost, 'partition')} is lost"] if lost else []
    clauses += [f"{'that' if lost else 'the data'} of {many(away, 'partition')} is unreachable"] if away else []
    clauses += [f"{many(lacking, 'partition')} may lack writes"] if lacking else []
    return ", and ".join(clauses)


def only_local(tiered: Sequence[str]) -> str:
    """What is at stake of the partitions of tiered topics."""
    return (
        f"of {many(len(tiered), 'partition')} only the local part, which was not copied to remote storage yet: "
        f"{listed(tiered)}"
    )


def show_losses(out: Screen, answer: Losses, time: datetime, every: bool = False) -> None:
    """Lost data, the disks that may still have a copy, and what to do; then the disks that must not be wiped."""
    groups = answer.groups if every else answer.groups[:MOST_GROUPS]
    if groups:
        show_title(out, "Data")
    for group in groups:
        _show_group(out, group[0], group, _begin(group[0].offset, group[0].time, time))
    show_rest(out, len(answer.groups) - len(groups), "group", "  ")
    if answer.accepted:
        say(out, f"Lost data that was accepted (check.losses_accepted_until): {answer.accepted:,}", "dim")
    held = answer.held if every else answer.held[:MOST_GROUPS]
    if held or answer.perhaps:
        show_title(out, "Do not wipe")
    for copies, members in held:
        single_copy = len({copy.broker_id for copy in copies}) == 1
        where = (" or " if single_copy else " and ").join(copy.where for copy in copies)
        may = "" if members[0].certain else "may "
        holds = "holds the only complete copy" if single_copy else f"{may}hold the only complete copies"
        names = listed([partition.name for partition in members])
        say(out, f"  {where} {holds} of {many(len(members), 'partition')}: {names}", hang=4)
        tiered = [partition.name for partition in members if partition.tiered]
        if tiered:
            say(out, f"    {only_local(tiered)}", hang=6)
    show_rest(out, len(answer.held) - len(held), "place", "  ")
    for copies, members in answer.perhaps_held if every else answer.perhaps_held[:MOST_GROUPS]:
        names = listed([partition.name for partition in members])
        where = " or ".join(copy.where for copy in copies)
        text = f"{where} may hold the only complete copy of {many(len(members), 'partition')}: {names}"
        say(out, f"  {text}; no record says where it is, kafka-log-dirs --describe may", hang=4)


def _begin(offset: int, time: datetime, now: datetime, from_snapshot: bool = False) -> str:
    """``since offset 5, 2026-11-21 02:21:05.123Z (14 s before)``"""
    since = "at or before" if from_snapshot else "since"
    return f"{since} offset {offset}, {when(time)} ({age(time, now)} before)"


def _show_group(
    out: Screen, reason: DataLoss | Leaderless, group: Sequence[DataLoss | LeaderlessPartition], begin: str
) -> None:
    """Partitions with the same finding, since when the first of them has it, and what to do."""
    say(out, f"  {reason.finding}", "red", hang=4)
    say(out, f"    {many(len(group), 'partition')}: {listed([partition.name for partition in group])}", hang=6)
    say(out, f"    {begin}", "dim", hang=6)
    for text in dict.fromkeys(step.text for step in reason.steps):
        say(out, f"    do: {text}", hang=8)


FIRST_ROWS = 10
"""Rows of the list of offline replicas, unless all are asked for."""
MOST_CAUSES = 8
"""Causes, unless all are asked for: the loss of a zone gives thirty causes."""


def show_offline(out: Screen, answer: Offline, chosen: Chosen, every: bool = False) -> None:
    """What is offline. ``answer`` is about the replicas that match the filters of ``chosen``.

    The causes come first. The list of replicas after them is short unless ``every``.
    """
    at = f"At offset {answer.offset}, {when(answer.time)}:"
    if not chosen.of:
        stuck = sum(len(group.partitions) for group in answer.leaderless)
        no_leader = many(stuck, "partition has no leader", "partitions have no leader") if stuck else ""
        few = len(answer.too_few_in_sync)
        under = f"{many(few, 'partition has', 'partitions have')} too few replicas in sync" if few else ""
        doubt = doubt_in_words(answer.replicas_in_doubt) if answer.perhaps else ""
        but = ", and ".join(filter(None, (no_leader, under, doubt, losses_in_words(answer.data))))
        say(out, f"{at} every replica is online{'; but ' if but else ''}{but}.", "bold red" if but else "green")
        say(out, f"{many(answer.replicas_in_all, 'replica')} of {many(answer.partitions_in_all, 'partition')}.")
    elif chosen.line:
        say(out, f"{at} {chosen.of:,} of {many(answer.replicas_in_all, 'replica')} offline.", "bold red")
        show_selection(out, chosen)
    else:
        in_all = many(answer.replicas_in_all, "replica")
        partitions = f"{answer.partitions_hit:,} of {many(answer.partitions_in_all, 'partition')}"
        say(out, f"{at} {chosen.of:,} of {in_all} offline, in {partitions}.", "bold red")
    if answer.unseen_disks:
        say(out, f"{answer.unseen_disks}.", "bold yellow")
    if answer.replicas or answer.partitions:
        _show_hurt(out, answer)
    if chosen.of and answer.one_copy is not None and answer.one_copy[0]:
        count, held = answer.one_copy
        have = many(count, "partition has", "partitions have")
        say(out, f"{have} one replica online: {in_units(held)} with one copy.", "bold red")
    _show_leaderless(out, answer, every)
    show_losses(out, answer.data, answer.time, every)
    _show_perhaps(out, answer, every)
    if not answer.replicas:
        return
    _show_causes(out, answer, every)
    say(out)
    _show_replicas(out, answer, chosen, every)


def _show_causes(out: Screen, answer: Offline, every: bool) -> None:
    """Why, since when, and what to do."""
    show_title(out, "Why")
    causes = answer.causes if every else answer.causes[:MOST_CAUSES]
    width = max(len(many(cause.replicas, "replica")) for cause in causes)
    for cause in causes:
        say(out, f"  {many(cause.replicas, 'replica'):<{width}}  {cause.finding}", hang=width + 4)
        begin = _begin(cause.from_offset, cause.from_time, answer.time, cause.from_snapshot)
        if cause.last_time is not None:
            begin = f"the first {begin}, the last since offset {cause.last_offset}, {when(cause.last_time)}"
        say(out, f"  {'':<{width}}  {begin}", "dim", width + 4)
        if cause.bytes is not None and cause.copy_seconds is not None:
            say(out, f"  {'':<{width}}  {copying(cause.bytes, cause.copy_seconds)}", hang=width + 4)
    show_rest(out, len(answer.causes) - len(causes), "cause", "  ")
    show_title(out, "What to do")
    for number, advice in enumerate(dict.fromkeys(cause.advice for cause in answer.causes), 1):
        same = [cause for cause in answer.causes if cause.advice == advice]
        brokers = dict.fromkeys(str(cause.broker_id) for cause in same)
        first, *rest = dict.fromkeys(step.text for step in same[0].steps)
        say(out, f"  {number}. {'broker' if len(brokers) == 1 else 'brokers'} {listed([*brokers])}: {first}", hang=5)
        for text in rest:
            say(out, f"     {text}", hang=5)


def _show_leaderless(out: Screen, answer: Offline, every: bool) -> None:
    """Partitions without a leader although their replicas are online, by reason."""
    shown = answer.leaderless if every else answer.leaderless[:MOST_CAUSES]
    if shown:
        show_title(out, "Without a leader, although every replica is online")
    for group in shown:
        first = min(group.partitions, key=lambda partition: partition.from_offset)
        begin = _begin(first.from_offset, first.from_time, answer.time, first.from_snapshot)
        _show_group(out, group, group.partitions, begin)
    show_rest(out, len(answer.leaderless) - len(shown), "group", "  ")


def doubt_in_words(replicas: int) -> str:
    """``1 replica may be in a failed directory``"""
    return many(replicas, "replica may be in a failed directory", "replicas may be in a failed directory")


def _show_perhaps(out: Screen, answer: Offline, every: bool) -> None:
    """Replicas that count as online, and may be in a directory which is not."""
    shown = answer.perhaps if every else answer.perhaps[:MOST_CAUSES]
    if shown:
        show_title(out, "Perhaps offline")
    for broker in shown:
        say(out, f"  {broker.finding}", "red", hang=4)
        for step in broker.steps:
            say(out, f"    do: {step.text}", hang=8)
    show_rest(out, len(answer.perhaps) - len(shown), "broker", "  ")


def _show_replicas(out: Screen, answer: Offline, chosen: Chosen, every: bool) -> None:
    rows: Sequence[OfflineReplica] = chosen.rows
    shown = rows
    if not every and not chosen.wanted.orders:
        shown = _worst_first(answer)[:FIRST_ROWS]
    show_table(
        out,
        (
            ("PARTITION", partition_name),
            (">BROKER", "broker_id"),
            ("DIRECTORY", "directory_id"),
            ("REASON", "reason"),
            (">SINCE", since_offset),
            (">FOR", lambda replica: age(replica.from_time, answer.time)),
        ),
        shown,
    )
    show_rest(out, len(rows) - len(shown))


def _worst_first(answer: Offline) -> Sequence[OfflineReplica]:
    """Puts replicas of unavailable partitions first, because a reader of a long list needs them most."""
    hurt = {
        partition.name
        for partition in answer.partitions
        if partition.without_leader or partition.led_from_offline or partition.under_min_isr
    }
    if not hurt:
        return answer.replicas
    return sorted(answer.replicas, key=lambda replica: f"{replica.topic}-{replica.partition}" not in hurt)


def _show_hurt(out: Screen, answer: Offline) -> None:
    """What clients notice."""
    effects = by_effect(answer.partitions)
    for effect, members in effects:
        say(out, f"{many(len(members), 'partition')} {effect}:", "red")
        say(out, f"  {listed([partition.name for partition in members])}")
    if not effects:
        say(out, "All of these partitions still have a leader and enough in-sync replicas.")
    if answer.too_few_in_sync:
        names = listed([partition.name for partition in answer.too_few_in_sync])
        say(out, f"Every replica of these is online, and too few are in sync: {names}.")
        say(out, "  do: wait until the others are in sync again; if they stay out, the logs of their brokers say why")


def by_effect(partitions: Sequence[Troubled]) -> list[tuple[str, Sequence[Troubled]]]:
    """The effects on clients, each with its partitions."""
    kinds = (
        ("without a leader: no reads, no writes", "without_leader"),
        ("led by a replica that is offline: reads and writes fail until another leads", "led_from_offline"),
        ("under min.insync.replicas: writes with acks=all fail", "under_min_isr"),
    )
    effects = [
        (effect, [partition for partition in partitions if getattr(partition, chosen)]) for effect, chosen in kinds
    ]
    return [(effect, members) for effect, members in effects if members]


def show_status(out: Screen, answer: Status) -> None:
    """The lake and its cluster."""
    behind = "" if answer.offset == answer.newest_offset else f" (newest is {answer.newest_offset})"
    ago = "" if behind else f", {_ago(answer.time, datetime.now(UTC))}"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in answer.replicas.items() if kind != "assigned")
    levels = ", ".join(f"{name} {_level(name, level)}" for name, level in answer.features.items())
    missing = f"; {answer.brokers_missing:,} with replicas not registered" if answer.brokers_missing else ""
    rows = [
        ("cluster", answer.cluster_id or "id unknown"),
        ("offset", f"{answer.offset}{behind}; known from {answer.first_offset} on"),
        ("as of", f"{when(answer.time)}{ago}"),
        ("published", when(answer.published_time)),
        ("features", levels or "none set"),
        ("rules", answer.profile),
        ("brokers", f"{answer.brokers:,}, {answer.brokers_fenced:,} fenced{missing}"),
        ("directories", f"{answer.directories:,} online"),
        ("topics", f"{answer.topics:,} with {many(answer.partitions, 'partition')}"),
        ("replicas", f"{sum(answer.replicas.values()):,}" + (f", of which {kinds}" if kinds else ", all assigned")),
    ]
    for name, value in rows:
        say(out, f"{name:<12} {value}", hang=13)
    if answer.log_end_offset is not None:
        lost = f"offsets {answer.log_end_offset} to {answer.newest_offset}"
        say(out, f"{'log':<12} ended before {lost} at the last run: a later log may contradict them", "bold red", 13)
    if answer.quorum is not None:
        _show_quorum(out, answer.quorum, answer.newest_offset + 1)
    troubles = {name: many(count, *words) for name, words in TROUBLES.items() if (count := getattr(answer, name))}
    if troubles:
        say(out, f"{'trouble':<12} {', '.join(troubles.values())}", "bold red", 13)
        if {*troubles} != {"partitions_under_replicated"}:
            say(out, f"{'':<12} jbod offline shows why")
    else:
        say(out, f"{'trouble':<12} none", "green")


def _ago(time: datetime, now: datetime) -> str:
    """How old the newest record is. Clocks may differ by less than a minute."""
    if time - now >= timedelta(minutes=1):
        return f"{age(now, time)} in the future: the clocks disagree"
    return f"{age(time, now)} ago"


def _show_quorum(out: Screen, quorum: WatchedQuorum, end: int) -> None:
    """How far a lake that ends at offset ``end`` is behind its quorum, and who answers there."""
    now, behind = datetime.now(UTC), quorum.high_watermark - end
    lag = f"{many(behind, 'committed record')} behind" if behind > 0 else "the lake has all that was committed"
    answered = f"controller {quorum.controller} (node {quorum.leader_id}) answered {age(quorum.answered_time, now)} ago"
    say(out, f"{'quorum':<12} {lag}; high watermark {quorum.high_watermark}; {answered}", hang=13)
    if quorum.silent_since is not None:
        since = f"{age(quorum.silent_since, now)}, since {when(quorum.silent_since)}"
        say(out, f"{'':<12} no leader answers for {since}: jbod quorum --live shows who runs", "bold red", 13)


def _level(feature: str, level: int) -> str:
    """``27 (4.1-IV1)`` for a metadata.version, else the number."""
    return level_text(level) if feature == METADATA_VERSION else str(level)


def show_directories(out: Screen, offset: int, time: datetime, answer: Sequence[Directory], chosen: Chosen) -> None:
    """The directories, by broker."""
    registered = [directory for directory in answer if directory.state == "online"]
    dark = sum(directory.broker != "online" for directory in registered)
    gone = [directory for directory in answer if directory.state not in ("online", "unassigned", "migrating")]
    counts = [f"{many(len(registered), 'directory', 'directories')} online"]
    cordoned = sum(directory.cordoned_from_offset is not None for directory in registered)
    if cordoned:
        counts.append(f"{many(cordoned, 'directory', 'directories')} cordoned")
    if dark:
        counts[0] += f" ({dark:,} of them on brokers that are fenced)"
    if gone:
        held = many(sum(directory.replicas for directory in gone), "replica")
        counts.append(f"{held} in {many(len(gone), 'directory that is gone', 'directories that are gone')}")
    say(out, f"At offset {offset}, {when(time)}: {', '.join(counts)}.", "bold")
    show_selection(out, chosen)
    show_table(
        out,
        (
            ("BROKER", broker_and_state),
            ("DIRECTORY", "directory_id"),
            ("IS", _is),
            (">REPLICAS", "replicas"),
            (">LEADERS", "leaders"),
            (">SINCE", since_offset),
            (">FOR", lambda directory: directory.from_time and age(directory.from_time, time)),
        ),
        chosen.rows,
    )


def since_offset(row: Any) -> str:
    """``405``, or ``≤ 405`` if only a snapshot says since when."""
    offset = "" if row.from_offset is None else str(row.from_offset)
    return f"≤ {offset}" if row.from_snapshot else offset


def broker_and_state(row: Any) -> str:
    """``3``, or ``3 fenced``."""
    return str(row.broker_id) if row.broker == "online" else f"{row.broker_id} {row.broker}"


def _is(directory: Directory) -> str:
    if directory.cordoned_from_offset is None:
        return directory.state
    at = "at or before" if directory.cordoned_from_snapshot else "at"
    return f"{directory.state}, cordoned {at} {directory.cordoned_from_offset}"


def show_history(
    out: Screen, offset: int, answer: Sequence[PartitionHistory], chosen: Chosen, every: bool = False
) -> None:
    """The newest events of a partition, or of all partitions of a topic, or ``every`` one, oldest first."""
    named = answer if every else answer[:SCREENFUL]
    for history in named:
        say(out, f"{history.name} at offset {offset}: {_now(history)}.", "bold")
    show_rest(out, len(answer) - len(named), "partition")
    show_selection(out, chosen)
    events = chosen.rows if every or chosen.wanted.orders else chosen.rows[-SCREENFUL:]
    if len(events) < len(chosen.rows):
        say(out, f"{len(chosen.rows) - len(events):,} earlier events: --all, or --json", "dim")
    if len(answer) != 1:
        say(out)
    partition = [] if len(answer) == 1 else [("PARTITION", partition_name)]
    show_table(out, ((">OFFSET", "offset"), ("TIME", "time"), *partition, ("WHAT", "what")), events)


def _now(answer: PartitionHistory) -> str:
    """The state of a partition at the end of its history."""
    last = answer.states[-1]
    if last.to_offset is not None:
        return f"removed at offset {last.to_offset}"
    leader = "no leader" if last.leader == -1 else f"leader {last.leader}"
    off = [str(spell.broker_id) for spell in answer.offline if spell.to_offset is None]
    tail = f", offline on {', '.join(off)}" if off else ", all replicas online"
    return f"{leader}, isr {list(last.isr)}{tail}"
