"""Incidents and moves between disks as text: how many, which have not ended, then each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from pipelines.ask.incident_list import Details, Incident
from pipelines.ask.incidents_effects import LeaderLoss, Outage
from pipelines.ask.lost_data import LOST, MAY_LACK
from pipelines.ask.moves import RECREATED, RETURNED, UNDECIDED, Asking, Move, MoveCounts
from pipelines.lake.names import Names
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    SCREENFUL,
    Column,
    Screen,
    lasted,
    listed,
    many,
    partition_name,
    say,
    short_name,
    show_list,
    show_selection,
    show_table,
    show_title,
    when,
)

OTHERS = {
    RECREATED: "recreated empty in another directory",
    RETURNED: "on the old disk again",
    UNDECIDED: "moved or recreated, as the next registration of the broker tells",
}
"""Outcomes of changes that are not moves."""


def others_in_words(outcomes: Mapping[str, int]) -> str:
    """The number of changes that are not moves, as the end of a sentence."""
    return "".join(
        f"; {many(outcomes[outcome], 'replica')} {what}" for outcome, what in OTHERS.items() if outcomes.get(outcome)
    )


def show_moves(out: Screen, offset: int, time: datetime, moves: Sequence[Move], chosen: Chosen) -> None:
    """The number of moves by outcome, then each move."""
    counts = Counter(move.outcome for move in moves)
    others = others_in_words(counts)
    counts = Counter({outcome: number for outcome, number in counts.items() if outcome not in OTHERS})
    by_outcome = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    summary = f"{many(counts.total(), 'move')} between disks" + (f": {by_outcome}" if by_outcome else "")
    say(out, f"At offset {offset}, {when(time)}: {summary}{others}.")
    show_selection(out, chosen)
    if chosen.rows:
        show_table(
            out,
            (
                ("PARTITION", partition_name),
                (">BROKER", "broker_id"),
                ("FROM", "source"),
                ("TO", "target"),
                ("ASKED", "first_requested_time"),
                ("ACCEPTED", "accepted_time"),
                (">OFFSET", "accepted_offset"),
                ("OUTCOME", outcome),
                (">TOOK", lambda move: None if move.duration is None else f"{move.duration.total_seconds():.3f} s"),
            ),
            chosen.rows,
        )


def outcome(move: Move) -> str:
    """The outcome of a move, with its obstacles."""
    parts = [move.outcome]
    if move.reverted_offset is not None:
        parts.append(f"at {move.reverted_offset}")
    if move.refused:
        parts.append(f"refused {many(move.refused, 'time')}")
    if move.flips:
        parts.append(f"after {many(move.flips, 'flip')}")
    return ", ".join(parts)


STORIES = 12
"""Up to this many incidents are printed in full. If there are more, only those that have not ended are."""


def show_incidents(
    out: Screen, offset: int, time: datetime, answer: Sequence[Incident], chosen: Chosen, every: bool = False
) -> None:
    """All incidents as a table, then each of them in a few lines."""
    at = f"Up to offset {offset}, {when(time)}:"
    if not answer:
        say(out, f"{at} no broker and no directory failed.", "green")
        return
    going = [incident for incident in chosen.rows if incident.going_on]
    still = sum(incident.going_on for incident in answer)
    summary = f"{at} {many(len(answer), 'incident')}, "
    say(out, summary + (f"{still:,} still going on." if still else "all over."), "bold red" if still else "green")
    hit = [
        sorted({name for incident in answer for name in names(incident)})
        for names in (attrgetter("data_lost"), attrgetter("data_unreachable"), attrgetter("may_lack_writes"))
    ]
    for what, names in zip(incident_losses_in_words(*hit), filter(None, hit), strict=True):
        say(out, f"{what[:1].upper()}{what[1:]}: {listed(names)}.", "bold red")
    longest = max(answer, key=lambda incident: incident.longest_offline)
    if longest.replicas_taken:
        span = _at_least(longest, longest.longest_offline)
        say(out, f"The longest time that a replica was offline is {span}: {_name(longest)}.")
    show_selection(out, chosen)
    answer = chosen.rows
    say(out)
    shown = answer if every or chosen.wanted.orders else answer[-SCREENFUL:]
    if len(shown) < len(answer):
        say(out, f"{len(answer) - len(shown):,} earlier ones: --all, or --json", "dim")
    stories = answer if every or len(answer) <= STORIES else going[-STORIES:]
    columns = _columns(out.names)
    show_table(out, columns if len(stories) < len(answer) else columns[:-1], shown)
    for incident in stories:
        say(out)
        show_story(out, incident)
    if len(stories) < len(answer):
        say(out)
        say(out, "One of them, replica by replica: jbod incidents NO", "dim")


def _columns(names: Names) -> Sequence[Column[Incident]]:
    return (
        (">NO", "number"),
        ("BEGAN", lambda it: f"≤ {when(it.from_time)}" if it.from_snapshot else it.from_time),
        (">LASTED", lambda it: "still going" if it.to_time is None else lasted(it.to_time - it.from_time)),
        ("WHAT", lambda it: f"{it.what} {short_name(it.directory_id, names)}" if it.directory_id else it.what),
        (">REPLICAS", "replicas_taken"),
        (">LONGEST", lambda it: lasted(it.longest_offline) if it.replicas_taken else None),
        (">LEADERS LOST", "leaders"),
        (">NO LEADER", "without_leader"),
        (">LONGEST", lambda it: lasted(it.longest_without_leader) if it.without_leader else None),
        ("END", "ending"),
    )


def show_story(out: Screen, incident: Incident) -> None:
    """One incident in a few lines."""
    state = _state(incident)
    lost = "".join(
        f"; {what}"
        for what in incident_losses_in_words(incident.data_lost, incident.data_unreachable, incident.may_lack_writes)
    )
    style = "bold red" if incident.going_on or lost else "bold"
    say(out, f"{incident.number}. {_name(incident)}: {state}; {incident.ending}{lost}", style, 4)
    since = "at or before " if incident.from_snapshot else ""
    say(out, f"   {since}{when(incident.from_time)}: {incident.cause}", hang=6)
    width = max((len(str(event.offset)) for event in incident.events), default=0)
    for event in incident.events:
        say(out, f"   {event.offset:>{width}}  {when(event.time)}  {event.what}", hang=width + 31)
    if incident.replicas_offline and incident.replicas_offline < incident.replicas_taken:
        say(
            out,
            f"   {incident.replicas_offline:,} of {many(incident.replicas_taken, 'replica')} still offline",
            "red",
            6,
        )
    if incident.without_leader_now:
        say(out, f"   {many(incident.without_leader_now, 'partition')} still without a leader", "red", 6)
    for partitions, what, checks in (
        (incident.data_lost, "the last complete copy was given up", "B-32,B-33"),
        (incident.data_unreachable, "the last complete copy was on a broker that was unregistered", "B-37"),
        (incident.may_lack_writes, "it went on under a leader whose copy was not complete", "B-32,B-33"),
    ):
        if partitions:
            say(out, f"   {listed(partitions)}: {what}; what to do: jbod check --only {checks}", "red", 6)
    if incident.going_on:
        for number, text in enumerate(dict.fromkeys(step.text for step in incident.steps)):
            say(out, f"   {'What to do: ' if number == 0 else '  '}{text}", hang=6)


def _state(incident: Incident) -> str:
    """Whether it goes on. A disk that is not back is not over, even if no replica misses it any more."""
    if incident.to_time is None:
        return "still going on"
    span = _at_least(incident, incident.to_time - incident.from_time)
    return f"no replica offline after {span}" if incident.ending.startswith("not ") else f"over after {span}"


def _at_least(incident: Incident, span: timedelta) -> str:
    """The time since its beginning, of which a snapshot tells only the end."""
    return f"at least {lasted(span)}" if incident.from_snapshot else lasted(span)


def incident_losses_in_words(lost: Sequence[str], away: Sequence[str], lacking: Sequence[str]) -> list[str]:
    """``data of 2 partitions lost`` and ``3 partitions may lack writes``, each if it applies."""
    losses = [f"data of {many(len(lost), 'partition')} lost"] if lost else []
    losses += [f"data of {many(len(away), 'partition')} unreachable"] if away else []
    return losses + ([f"{many(len(lacking), 'partition')} may lack writes"] if lacking else [])


def show_moving(out: Screen, moved: MoveCounts, assignments: Asking | None) -> None:
    """Moves between disks and the assignment queue, in two lines."""
    say(out)
    say(out, moves_in_words(moved) + (" Each of them: jbod moves" if moved.count else ""), hang=2)
    if assignments is None:
        say(
            out,
            "When moves were asked for, and the assignment queue, is not in the log: "
            "jbod replay LOG_DIR --requests FILE",
            "dim",
            2,
        )
        return
    say(out, queue_in_words(assignments) + " Step by step: jbod assignments --queue SECONDS", hang=2)


def moves_in_words(moved: MoveCounts) -> str:
    """A sentence: the number of moves, their outcomes, the longest one."""
    outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in moved.outcomes.items() if outcome not in OTHERS)
    number = moved.count - sum(moved.outcomes.get(outcome, 0) for outcome in OTHERS)
    sentence = f"{many(number, 'move')} between disks" + (f": {outcomes}" if outcomes else "")
    if number and not moved.reverted:
        sentence += ", none reverted"
    sentence += others_in_words(moved.outcomes)
    if (longest := moved.longest) is not None and moved.longest_duration is not None:
        what = f"{longest.topic}-{longest.partition} on broker {longest.broker_id}"
        sentence += f"; the longest took {lasted(moved.longest_duration)}: {what}"
    return f"{sentence}."


def queue_in_words(assignments: Asking) -> str:
    """A sentence: the number of assignments and requests, and the longest queue."""
    queue = "no replica ever waited"
    if assignments.waiting_time is not None:
        waiting = many(assignments.waiting, "replica")
        queue = (
            f"the longest queue: {waiting} of broker {assignments.waiting_broker} waiting "
            f"at {when(assignments.waiting_time)}"
        )
    return (
        f"{many(assignments.entries, 'assignment')} in {many(assignments.requests, 'request')}, "
        f"the largest of {assignments.largest:,}; "
        f"{assignments.refused:,} refused, {many(assignments.retries, 'retry', 'retries')}; {queue}."
    )


def show_details(out: Screen, answer: Details, chosen: Chosen, time: datetime, every: bool = False) -> None:
    """One incident with all its replicas and leaders. ``time`` is that of the lake's offset."""
    show_story(out, answer.incident)
    if answer.leader_losses:
        show_title(out, "Leaders")
        show_list(
            out,
            (
                ("PARTITION", partition_name),
                (">OFFSET", "offset"),
                ("LED BY", "leader"),
                ("THEN", lambda loss: _next(loss, time)[0]),
                ("LED AGAIN", lambda loss: _next(loss, time)[1]),
                (">AFTER", lambda loss: _next(loss, time)[2]),
            ),
            answer.leader_losses,
            every,
        )
    if answer.outages:
        show_title(out, "Replicas")
        show_selection(out, chosen)
        show_list(
            out,
            (
                ("PARTITION", partition_name),
                ("BROKER", "broker_id"),
                ("DIRECTORY", "directory_id"),
                ("FROM", lambda outage: _since(answer.incident, outage)),
                ("TO", lambda outage: "still" if outage.to_offset is None else outage.to_offset),
                (">OFFLINE FOR", lambda outage: lasted((outage.to_time or time) - outage.from_time)),
            ),
            chosen.rows,
            every or chosen.wanted.orders,
        )


def _since(incident: Incident, outage: Outage) -> str:
    if incident.from_snapshot and outage.from_offset == incident.from_offset:
        return f"≤ {outage.from_offset}"
    return f"{outage.from_offset}{' (before, too)' if outage.already else ''}"


def _next(loss: LeaderLoss, time: datetime) -> tuple[str, str | None, str | None]:
    """The next leader: at once, later, or none."""
    lacking = {LOST: ", data lost", MAY_LACK: ", may lack writes", None: ""}[loss.lacking]
    if loss.successor != -1:
        return f"{loss.successor}{lacking}", None, None
    waited = lasted((loss.led_again_time or time) - loss.time)
    if loss.led_again_by is not None:
        return "none", f"by {loss.led_again_by} at {loss.led_again_offset}{lacking}", waited
    return "none", "still not" if loss.led_again_time is None else "removed", waited


def _name(incident: Incident) -> str:
    return incident.what if incident.directory_id is None else f"{incident.what}, {incident.directory_id}"
