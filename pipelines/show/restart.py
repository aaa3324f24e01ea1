"""Verdicts about restarts as text: the answer, then the reason, then what to do, then the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jbod_model.restart import DECIDING, Harm
from pipelines.ask.restart import NOT_DECIDABLE, SAFE, RestartVerdict
from pipelines.ask.restart_judge import Stake
from pipelines.ask.restart_waits import Blocking
from pipelines.show.next_start import show_next_starts
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, listed, many, say, show_selection, show_table, when

SCREENFUL = 40
"""Rows of a list, unless all are asked for."""

MEANINGS = {
    Harm.NO_LEADER: "would have no leader: no reads, no writes",
    Harm.WRITES_REFUSED: "would be under min.insync.replicas: writes with acks=all fail",
    Harm.LAST_REPLICA: "would have no replica online",
    Harm.LAST_COPY: "would have no complete copy online: if its disk does not come back, acknowledged writes are lost",
    Harm.UNCLEAN: "would elect, or could elect, a leader that is not in sync: acknowledged writes are lost",
    Harm.ACKS1: "lose what their leader acknowledged with acks=1 and no follower has fetched yet",
}
_NOW = {
    Harm.NO_LEADER: "no leader",
    Harm.WRITES_REFUSED: "under min.insync.replicas",
    Harm.LAST_REPLICA: "no replica online",
    Harm.LAST_COPY: "no complete copy online",
    Harm.UNCLEAN: "an unclean election possible",
}


def show_verdict(out: Screen, answer: RestartVerdict, chosen: Chosen, every: bool = False) -> None:
    """Whether brokers can be restarted."""
    at = f"offset {answer.offset}, {when(answer.time)}"
    say(out, f"{headline(answer)} ({at}).", _style(answer.verdict))
    for reason in answer.undecided:
        say(out, f"  {reason}", hang=4)
    if answer.verdict == NOT_DECIDABLE and answer.as_known != NOT_DECIDABLE:
        say(out, f"As of then: {answer.as_known}.", _style(answer.as_known))
    _show_harms(out, answer)
    for start in answer.starts:
        say(out)
        show_next_starts(out, replace(start, steps=()), every)
    if answer.blocking or (answer.quorum is not None and not answer.quorum.safe):
        say(out)
        say(out, "Why", "bold")
        for group in answer.blocking:
            say(out, f"  {group.finding}: {_some(group)}", hang=4)
        if answer.quorum is not None and not answer.quorum.safe:
            say(out, f"  {answer.quorum.finding}", hang=4)
    if answer.steps:
        say(out)
        say(out, "What to do", "bold")
        for number, text in enumerate(dict.fromkeys(step.text for step in answer.steps), 1):
            say(out, f"  {number}. {text}", hang=5)
    say(out)
    for line in _around(answer):
        say(out, line)
    every = every or bool(chosen.line)
    rows = chosen.rows if every else [one for one in chosen.rows if one.reason]
    if rows:
        say(out)
        show_selection(out, chosen)
        _show_stakes(out, rows, every)


def headline(answer: RestartVerdict) -> str:
    """``Not now: broker 3 cannot be restarted in order``"""
    kind = "controller" if set(answer.brokers) == set(answer.controllers) else "broker"
    nodes = f"{kind}{'' if len(answer.brokers) == 1 else 's'} {listed([*map(str, answer.brokers)])}"
    how = "killed" if answer.kill else "restarted in order"
    if answer.verdict == SAFE:
        return f"Safe: {nodes} can be {how}"
    if answer.verdict == NOT_DECIDABLE:
        return f"Not decidable: whether {nodes} can be {how}"
    return f"{answer.verdict.capitalize()}: {nodes} cannot be {how} without harm"


def _style(verdict: str) -> str:
    return "green" if verdict == SAFE else "bold yellow" if verdict == NOT_DECIDABLE else "bold red"


def _show_harms(out: Screen, answer: RestartVerdict) -> None:
    for harm in Harm:
        hit = answer.caused(harm)
        if harm == Harm.LAST_COPY:  # where no replica is online, this goes without saying
            hit = [one for one in hit if Harm.LAST_REPLICA not in one.harms]
        names = [one.name for one in hit]
        if names and harm in DECIDING:
            say(out, f"{many(len(names), 'partition')} {MEANINGS[harm]}:", "red")
            say(out, f"  {listed(names)}")
        elif names:
            say(out, f"{many(len(names), 'partition')} may {MEANINGS[harm]}. This does not decide.", "dim")
    if answer.refused:
        brokers = listed([f"broker {broker}" for broker in answer.refused])
        say(out, f"The controller does not let {brokers} stop in order: it would still lead.", "red")
    if answer.fault:
        say(out, f"Kafka's own controller would fail on this: {answer.fault}", "bold red")


def _around(answer: RestartVerdict) -> Sequence[str]:
    """What else there is to know."""
    said = []
    if answer.down:
        brokers = listed([f"broker {broker}" for broker in answer.down])
        said.append(f"Down already: {brokers}. What its start does is judged, too.")
    takes = [f"{count:,} by broker {broker}" for broker, count in answer.next_leaders.items()]
    if takes:
        said.append(f"Leaderships taken over: {listed(takes)}.")
    already = [(len(answer.so_already(harm)), text) for harm, text in _NOW.items()]
    before = [f"{count:,} {text}" for count, text in already if count]
    if before:
        said.append(f"So already, and not counted: {', '.join(before)}.")
    flight = answer.in_flight
    moving = [(flight.catching_up, "catching up"), (flight.reassigning, "being reassigned")]
    busy = [f"{count:,} {text}" for count, text in moving if count]
    if busy:
        said.append(f"Partitions in flight: {', '.join(busy)}.")
    if answer.quorum is not None and answer.quorum.safe:
        elected = ", and another one is elected active controller" if answer.quorum.leader_stops else ""
        said.append(f"Controllers: {answer.quorum.finding}{elected}.")
    return said


def _show_stakes(out: Screen, stakes: Sequence[Stake], every: bool) -> None:
    shown = stakes if every else stakes[:SCREENFUL]
    show_table(
        out,
        ("PARTITION", "REPLICAS", "LEADER", "THEN", "IN SYNC", "THEN", "MIN ISR", "HARM", "WHY"),
        (
            (
                one.name,
                ",".join(map(str, one.replicas)),
                _leader(one.leader),
                _leader(one.leader_down),
                one.in_sync,
                one.in_sync_down,
                one.min_isr,
                ", ".join(one.harms).replace("_", " ") or "none; so already: " + ", ".join(one.already),
                one.reason or "-",
            )
            for one in shown
        ),
        numbers=(4, 5, 6),
    )
    if len(shown) < len(stakes):
        say(out, f"and {len(stakes) - len(shown):,} more: --all, or --json", "dim")


def _some(group: Blocking) -> str:
    rest = group.partitions - len(group.names)
    return ", ".join(group.names) + (f" and {rest:,} more" if rest else "")


def _leader(leader: int) -> str:
    return "none" if leader == -1 else str(leader)
