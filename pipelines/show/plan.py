"""Reassignments as text: whether one may run, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipelines.ask import plan_check as found
from pipelines.ask import plan_watch
from pipelines.ask.plan_check import PlanCheck, Planned
from pipelines.ask.plan_watch import DONE, NOT_BEGUN, UNDER_WAY, Emptied, PlanWatch, Watched
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    Screen,
    at_most,
    led_by,
    listed,
    many,
    say,
    show_fault,
    show_list,
    show_selection,
    show_steps,
    when,
)

MOST_REASONS = 4

MEANINGS: Mapping[str, str] = {
    found.REFUSED: "would be refused by the controller",
    found.NO_COPY: "have no complete copy online: nothing is copied, and the plan could give the data up",
    found.UNCLEAN: "would elect a replica that lacks writes at once",
    found.STUCK: "would never be done",
    found.UNDER_MIN_ISR: "would be under min.insync.replicas: writes with acks=all fail",
    found.DIRECTORY: "are to be placed in a directory that does not take them",
    found.NO_ROOM: "come to a disk that has no room for all that comes, with --headroom, while nothing has left it",
    found.RACKS: "would be in fewer racks",
    found.FEWER: "would have fewer replicas",
    found.REPLACES: "are being reassigned: the plan takes the place of that, and what was copied is lost",
    found.CANCEL: "could be cancelled only while one broker runs: the replicas of before have no other one in sync",
    found.PATH: "with a path that jbod does not know: --sizes, or jbod label, tells it which directory that is",
    found.NOTHING: "are where the file wants them already",
}
ADVICE: Mapping[str, str] = {
    found.REFUSED: "Take them out of the file, or correct it.",
    found.NO_COPY: "First bring their disk or broker back: jbod offline says how. Until then do not reassign them.",
    found.UNCLEAN: "First bring back a replica that was in sync, or forbid unclean elections: jbod offline says more.",
    found.STUCK: "Start these brokers first, or name others in the file.",
    found.UNDER_MIN_ISR: "Bring the replicas of the file into sync first, or name brokers that run.",
    found.DIRECTORY: "Name a directory that is online and not cordoned, or any.",
    found.NO_ROOM: "Run the file in parts, name other disks, or let jbod plan drain or balance make the steps.",
    found.CANCEL: "Bring the other replicas of before into sync first, or do not cancel them once that broker is down.",
}


def show_plan_check(out: Screen, answer: PlanCheck, chosen: Chosen, every: bool = False) -> None:
    """The verdict, the findings, what to do, and the partitions with findings."""
    at = f"at offset {answer.offset}, {when(answer.time)}"
    blocked = [one for one in answer.partitions if one.blocks]
    if blocked:
        of = many(len(answer.partitions), "partition")
        say(out, f"Do not run it as it is: {len(blocked):,} of {of} are blocked, {at}.", "bold red")
    else:
        say(out, f"Nothing blocks it: {many(len(answer.partitions), 'partition')}, {at}.", "green")
    for finding, ones in answer.groups.items():
        blocks = finding in found.BLOCKING
        say(out, f"{many(len(ones), 'partition')} {MEANINGS[finding]}:", "red" if blocks else "yellow")
        say(out, f"  {listed([one.name for one in ones])}", hang=4)
        _show_why(out, (one.why[finding] for one in ones), every)
    _show_cost(out, answer)
    show_fault(out, answer.fault)
    show_steps(out, (ADVICE[finding] for finding in answer.groups if finding in ADVICE))
    rows = chosen.rows if every or chosen.line else [one for one in chosen.rows if one.findings]
    if rows:
        say(out)
        show_selection(out, chosen)
        _show_rows(out, rows, every or chosen.wanted.orders)


def _show_why(out: Screen, reasons: Iterable[str], every: bool) -> None:
    """The reasons of a group, each once."""
    said = list(dict.fromkeys(filter(None, reasons)))
    rest = f"; and {len(said) - MOST_REASONS:,} more" if len(said) > MOST_REASONS and not every else ""
    if said:
        say(out, f"  {'; '.join(said if every else said[:MOST_REASONS])}{rest}", "dim", hang=4)


def _show_cost(out: Screen, answer: PlanCheck) -> None:
    """How much is copied, and who leads afterwards."""
    copies = sum(answer.copies.values())
    said = [f"{many(copies, 'replica')} to copy"] if copies else []
    moves = sum(one.disk_moves for one in answer.partitions)
    said += [f"{many(moves, 'replica')} between disks of a broker"] if moves else []
    led = sum(one.leader_moves for one in answer.partitions)
    said += [f"{many(led, 'leader')} to move"] if led else []
    if said:
        say(out, f"It has {', '.join(said)}.")
    if answer.copies:
        most = sorted(answer.copies.items(), key=lambda item: -item[1])
        say(out, f"Who copies: {listed([f'broker {broker}: {count:,}' for broker, count in most])}.")


def _show_rows(out: Screen, rows: Sequence[Planned], every: bool) -> None:
    show_list(
        out,
        ("PARTITION", "REPLICAS", "TARGET", "LEADER", "THEN", "IN SYNC", "THEN", "MIN ISR", "FOUND"),
        rows,
        lambda one: (
            one.name,
            ",".join(map(str, one.replicas)) or "-",
            ",".join(map(str, one.target)),
            led_by(one.leader),
            led_by(one.leader_after),
            one.in_sync,
            one.in_sync_after,
            one.min_isr_after,
            ", ".join(one.findings) or "-",
        ),
        every,
        numbers=(5, 6, 7),
    )


STATES: Mapping[str, str] = {
    plan_watch.STUCK: "stuck",
    plan_watch.REPLACED: "taken over by another reassignment",
    plan_watch.CANCELLED: "cancelled",
    plan_watch.GONE: "no longer there, or never were",
    plan_watch.UNKNOWN: "to be placed in a path that jbod does not know",
    NOT_BEGUN: "not begun",
    UNDER_WAY: "under way",
}
STATE_ADVICE: Mapping[str, str] = {
    plan_watch.STUCK: "Bring back what they wait for: jbod offline says how. The copies then go on by themselves.",
    plan_watch.REPLACED: "Find out who reassigned them. If this plan is still right: jbod plan check, then execute it.",
    plan_watch.CANCELLED: "If the plan is still right: jbod plan check, then execute it again.",
    plan_watch.GONE: "Take them out of the file: kafka-reassign-partitions refuses them.",
    plan_watch.UNKNOWN: "Name the disks (jbod label, or jbod sizes --keep): until then nobody knows whether they are "
    "there.",
    NOT_BEGUN: "Nothing executed them yet: kafka-reassign-partitions.sh --execute.",
}
LOST = (
    "jbod offline says what failed disks had the last copy of. If they do not come back, make another plan from here: "
    "jbod plan repair."
)


def show_plan_watch(out: Screen, answer: PlanWatch, chosen: Chosen, every: bool = False) -> None:
    """How far it is, what it waits for, the disks that become empty, and what to do."""
    style = (
        "green" if answer.done else "bold red" if plan_watch.STUCK in answer.groups or not answer.pending else "bold"
    )
    say(out, f"{headline(answer)}, at offset {answer.offset}, {when(answer.time)}.", style)
    for state, ones in answer.groups.items():
        if state != DONE:
            say(out, f"{many(len(ones), 'partition')} {STATES[state]}: {listed([one.name for one in ones])}", hang=2)
            _show_why(out, (one.reason for one in ones), every)
    for disk in answer.disks:
        for line in _disk(disk):
            say(out, line, hang=2)
    for line in _offline(answer):
        say(out, line, hang=2)
    advice = [STATE_ADVICE[state] for state in answer.groups if state in STATE_ADVICE]
    show_steps(out, [*advice, LOST] if answer.offline else advice)
    rows = chosen.rows if every or chosen.line else [one for one in chosen.rows if one.state != DONE]
    if rows:
        say(out)
        show_selection(out, chosen)
        columns = ("PARTITION", "REPLICAS", "TARGET", "STATE", "SINCE", "WHY")
        show_list(out, columns, rows, _row, every or chosen.wanted.orders)


def _offline(answer: PlanWatch) -> Iterator[str]:
    for (broker, directory), names in answer.offline.items():
        of = many(len(names), "partition")
        yield f"Directory {directory} of broker {broker} is offline, with replicas of {of} of the plan: {listed(names)}"


def headline(answer: PlanWatch) -> str:
    """``12 of 40 partitions done, 3 under way, about 4 min left``"""
    counts = {state: len(ones) for state, ones in answer.groups.items()}
    of = many(len(answer.partitions), "partition")
    if answer.done:
        return f"All done: {of}"
    said = [f"{counts.get(DONE, 0):,} of {of} done"]
    said += [f"{count:,} {state}" for state, count in counts.items() if state != DONE]
    return ", ".join(said) + (f", about {at_most(answer.left.total_seconds())} left" if answer.left is not None else "")


def changes(before: PlanWatch | None, answer: PlanWatch) -> Iterator[str]:
    """A line for each thing that is so now and was not before."""
    known = {} if before is None else {(one.topic, one.partition): (one.state, one.reason) for one in before.partitions}
    news: dict[tuple[str, str], list[Watched]] = {}
    for one in answer.partitions:
        if known.get((one.topic, one.partition)) != (one.state, one.reason):
            news.setdefault((one.state, one.reason), []).append(one)
    for (state, reason), ones in news.items():
        why = f" ({reason})" if reason else ""
        yield f"{state}: {listed([one.name for one in ones])}{why}"
    if news:
        yield headline(answer)
    empty = set() if before is None else {(one.broker_id, one.directory_id, _safe(one)) for one in before.disks}
    yield from sorted({*_offline(answer)} - (set() if before is None else {*_offline(before)}))
    for disk in answer.disks:
        if not disk.replicas and (disk.broker_id, disk.directory_id, _safe(disk)) not in empty:
            yield from _disk(disk)


def _safe(disk: Emptied) -> bool | None:
    return None if disk.removal is None else disk.removal.safe


def _disk(disk: Emptied) -> Iterator[str]:
    where = f"Directory {disk.directory_id} of broker {disk.broker_id}"
    if disk.removal is None or disk.since_time is None:
        yield f"{where} has {many(disk.replicas, 'replica')} left, all of which are to leave it."
    elif disk.removal.safe:
        yield f"{where} is empty since {when(disk.since_time)}, and may be pulled (jbod safe-to-remove)."
    else:
        why = "; ".join(one.finding for one in disk.removal.reasons if one.blocks)
        yield f"{where} is empty since {when(disk.since_time)}, but may not be pulled yet: {why}."


def _row(one: Watched) -> tuple[object, ...]:
    return (
        one.name,
        ",".join(map(str, one.replicas)) or "-",
        ",".join(map(str, one.target)),
        one.state,
        "-" if one.since_time is None else when(one.since_time),
        one.reason or "-",
    )
