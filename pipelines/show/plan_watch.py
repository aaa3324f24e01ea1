"""How far a reassignment is, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipelines.ask import plan_watch as found
from pipelines.ask.plan_watch import DONE, NOT_BEGUN, UNDER_WAY, Emptied, PlanWatch, Watched
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, at_most, listed, many, say, show_selection, show_table, when

SCREENFUL = 40
"""Rows of a list, unless all are asked for."""
MOST_REASONS = 4
MEANINGS: Mapping[str, str] = {
    found.STUCK: "stuck",
    found.REPLACED: "taken over by another reassignment",
    found.CANCELLED: "cancelled",
    found.GONE: "no longer there, or never were",
    found.UNKNOWN: "to be placed in a path that jbod does not know",
    NOT_BEGUN: "not begun",
    UNDER_WAY: "under way",
}
ADVICE: Mapping[str, str] = {
    found.STUCK: "Bring back what they wait for: jbod offline says how. The copies then go on by themselves.",
    found.REPLACED: "Find out who reassigned them. If this plan is still right: jbod plan check, then execute it.",
    found.CANCELLED: "If the plan is still right: jbod plan check, then execute it again.",
    found.GONE: "Take them out of the file: kafka-reassign-partitions refuses them.",
    found.UNKNOWN: "Name the disks (jbod label, or jbod sizes --keep): until then nobody knows whether they are there.",
    NOT_BEGUN: "Nothing executed them yet: kafka-reassign-partitions.sh --execute.",
}
LOST = (
    "jbod offline says what failed disks had the last copy of. If they do not come back, make another plan from here: "
    "jbod plan repair."
)


def show_plan_watch(out: Screen, answer: PlanWatch, chosen: Chosen, every: bool = False) -> None:
    """How far it is, what it waits for, the disks that become empty, and what to do."""
    style = "green" if answer.done else "bold red" if found.STUCK in answer.groups or not answer.pending else "bold"
    say(out, f"{headline(answer)}, at offset {answer.offset}, {when(answer.time)}.", style)
    for state, ones in answer.groups.items():
        if state != DONE:
            say(out, f"{many(len(ones), 'partition')} {MEANINGS[state]}: {listed([one.name for one in ones])}", hang=2)
            reasons = list(dict.fromkeys(one.reason for one in ones if one.reason))
            rest = f"; and {len(reasons) - MOST_REASONS:,} more" if len(reasons) > MOST_REASONS and not every else ""
            if reasons:
                say(out, f"  {'; '.join(reasons if every else reasons[:MOST_REASONS])}{rest}", "dim", hang=4)
    for disk in answer.disks:
        for line in _disk(disk):
            say(out, line, hang=2)
    for line in _offline(answer):
        say(out, line, hang=2)
    advice = [ADVICE[state] for state in answer.groups if state in ADVICE]
    if answer.offline:
        advice.append(LOST)
    if advice:
        say(out)
        say(out, "What to do", "bold")
        for number, text in enumerate(advice, 1):
            say(out, f"  {number}. {text}", hang=5)
    rows = chosen.rows if every or chosen.line else [one for one in chosen.rows if one.state != DONE]
    if rows:
        say(out)
        show_selection(out, chosen)
        shown = rows if every or chosen.wanted.orders else rows[:SCREENFUL]
        show_table(out, ("PARTITION", "REPLICAS", "TARGET", "STATE", "SINCE", "WHY"), map(_row, shown))
        if len(shown) < len(rows):
            say(out, f"and {len(rows) - len(shown):,} more: --all, or --json", "dim")


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
