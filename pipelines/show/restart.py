"""Restarts as text: the answer, then the reason, then what to do, then the list.

A verdict; what a next start does to replicas in directories that do not come back as they were; the batches of a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import replace

from jbod_model.restart import DECIDING, Harm
from pipelines.ask.advice import directories_of
from pipelines.ask.next_start import NextStarts, StartOutcome
from pipelines.ask.restart import NOT_DECIDABLE, SAFE, RestartVerdict
from pipelines.ask.restart_judge import Stake
from pipelines.ask.restart_plan import DONE, GO, WAIT, PlannedNode, RestartPlan
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    Column,
    Screen,
    led_by,
    listed,
    many,
    say,
    show_chosen,
    show_fault,
    show_selection,
    show_steps,
    show_table,
    show_title,
    when,
)

MEANINGS = {
    Harm.NO_LEADER: "would have no leader: no reads, no writes",
    Harm.WRITES_REFUSED: "would be under min.insync.replicas: writes with acks=all fail",
    Harm.LAST_REPLICA: "would have no replica online",
    Harm.LAST_COPY: "would have no complete copy online: if its disk does not come back, acknowledged writes are lost",
    Harm.UNCLEAN: "would elect, or could elect, a leader that is not in sync: acknowledged writes may be lost",
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
        show_title(out, "Why")
        for group in answer.blocking:
            say(out, f"  {group.named_finding}", hang=4)
        if answer.quorum is not None and not answer.quorum.safe:
            say(out, f"  {answer.quorum.finding}", hang=4)
    show_steps(out, (step.text for step in answer.steps))
    around = _around(answer)
    if around:
        say(out)
    for line in around:
        say(out, line)
    every = every or bool(chosen.line)
    rows = chosen.rows if every else [stake for stake in chosen.rows if stake.reason]
    if rows:
        show_chosen(out, chosen, _STAKES, rows, every)


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
            hit = [stake for stake in hit if Harm.LAST_REPLICA not in stake.harms]
        names = [stake.name for stake in hit]
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
    lines = [f"{answer.unseen_disks}."] if answer.unseen_disks else []
    if answer.down:
        brokers = listed([f"broker {broker}" for broker in answer.down])
        lines.append(f"Down already: {brokers}. What its start does is judged, too.")
    takes = [f"{count:,} by broker {broker}" for broker, count in answer.next_leaders.items()]
    if takes:
        lines.append(f"Leaderships taken over: {listed(takes)}.")
    already = [(len(answer.so_already(harm)), text) for harm, text in _NOW.items()]
    before = [f"{count:,} {text}" for count, text in already if count]
    if before:
        lines.append(f"So already, and not counted: {', '.join(before)}.")
    flight = answer.in_flight
    moving = [(flight.catching_up, "catching up"), (flight.reassigning, "being reassigned")]
    busy = [f"{count:,} {text}" for count, text in moving if count]
    if busy:
        lines.append(f"Partitions in flight: {', '.join(busy)}.")
    if answer.quorum is not None and answer.quorum.safe:
        elected = ", and another one is elected active controller" if answer.quorum.leader_stops else ""
        lines.append(f"Controllers: {answer.quorum.finding}{elected}.")
        lines.append("Whether these voters run, no record says: jbod quorum --live kafka://CONTROLLER:PORT shows it.")
    return lines


def _harm(stake: Stake) -> str:
    return ", ".join(stake.harms).replace("_", " ") or "none; so already: " + ", ".join(stake.already)


_STAKES: Sequence[Column[Stake]] = (
    ("PARTITION", "name"),
    ("REPLICAS", lambda stake: ",".join(map(str, stake.replicas))),
    ("LEADER", lambda stake: led_by(stake.leader)),
    ("THEN", lambda stake: led_by(stake.leader_down)),
    (">IN SYNC", "in_sync"),
    (">THEN", "in_sync_down"),
    (">MIN ISR", "min_isr"),
    ("HARM", _harm),
    ("WHY", lambda stake: stake.reason or "-"),
)


def show_next_starts(out: Screen, answer: NextStarts, every: bool = False) -> None:
    """The cases, the worst consequence of each first, then what to do before the start. Nothing if no case is asked."""
    if not answer.starts:
        return
    if answer.away:
        are = "is" if len(answer.away) == 1 else "are"
        say(out, f"Not online {are} {directories_of(answer.broker_id, answer.away)}.", "bold")
    say(out, f"At the next start of broker {answer.broker_id}:", "bold")
    for outcome in answer.starts:
        given_up = [lost.name for lost in outcome.gives_up]
        style = "bold red" if given_up or outcome.needed else ""
        say(out, f"  {_case(outcome)}: {_consequence(outcome)}", style, hang=4)
        names = given_up or outcome.needed or outcome.leaderless
        if names:
            say(out, f"    {listed(names, len(names) if every else 8)}", hang=4)
    show_fault(out, answer.fault)
    show_steps(out, (step.text for step in answer.steps), "Before the start")


def _case(outcome: StartOutcome) -> str:
    """``if a blank disk takes the place of D``"""
    conditions = [
        (singular if len(directories) == 1 else plural).format(" and ".join(directories))
        for singular, plural, directories in (
            ("if {} comes back with its id", "if {} come back with their ids", outcome.back),
            ("if a blank disk takes the place of {}", "if blank disks take the places of {}", outcome.blank),
            ("if {} is taken out of log.dirs", "if {} are taken out of log.dirs", outcome.gone),
            ("if {} stays in log.dirs and cannot be read", "if {} stay in log.dirs and cannot be read", outcome.broken),
        )
        if directories
    ]
    return ", ".join(conditions)


def _consequence(outcome: StartOutcome) -> str:
    """What happens, in one sentence."""
    if outcome.refused:
        return f"the broker does not start ({outcome.refused})"
    losses = list(_losses(outcome))
    if not losses:
        return " and ".join(["no replica is recreated", *_gains(outcome)])
    return "; ".join([*losses, *_gains(outcome)])


def _losses(outcome: StartOutcome) -> Iterator[str]:
    if outcome.gives_up:
        copies = "the last complete copy" if len(outcome.gives_up) == 1 else "the last complete copies"
        how = "may be" if _vague(outcome) else _are(outcome.gives_up)
        yield f"{copies} of {many(len(outcome.gives_up), 'partition')} {how} given up"
    if outcome.needed:
        yield (
            f"{many(len(outcome.needed), 'partition')} may need what is on {' and '.join(outcome.needed_on)}: save "
            "them first"
        )
    if outcome.recreated:
        perhaps, number = len(outcome.perhaps_recreated), len(outcome.recreated)
        how = "may be" if perhaps == number else _are(outcome.recreated)
        some = f", {perhaps:,} of them perhaps" if 0 < perhaps < number else ""
        yield f"{many(number, 'replica')} {how} recreated empty{some}"
    if outcome.leads_empty:
        yield (
            f"the broker {_leads(outcome, outcome.leads_empty)} {many(len(outcome.leads_empty), 'partition')} "
            "with an empty log"
        )
    if outcome.two_folders:
        yield (
            f"{many(len(outcome.two_folders), 'partition')} would have two folders, and Kafka does not start with two: "
            "one leaves first"
        )


def _gains(outcome: StartOutcome) -> Iterator[str]:
    if outcome.leaderless:
        have = "has" if len(outcome.leaderless) == 1 else "have"
        yield f"{many(len(outcome.leaderless), 'partition')} of the broker {have} no leader"
    led = sorted({*outcome.leads} - {*outcome.leads_empty})
    if led:
        yield f"the broker {_leads(outcome, led)} {many(len(led), 'partition')} that it does not lead now"


def _leads(outcome: StartOutcome, names: Sequence[str]) -> str:
    return "may lead" if {*names} <= {*outcome.perhaps_leads} else "leads"


def _vague(outcome: StartOutcome) -> bool:
    return {lost.name for lost in outcome.gives_up} <= {*outcome.perhaps_recreated, *outcome.perhaps_gives_up}


def _are(names: Sized) -> str:
    return "is" if len(names) == 1 else "are"


MOST_IDS = 20
"""Ids of a batch that are shown, unless all are asked for."""


def show_plan(out: Screen, answer: RestartPlan, chosen: Chosen, every: bool = False) -> None:
    """The plan."""
    at = f"offset {answer.offset}, {when(answer.time)}"
    say(out, _verdict(answer, at), "bold red" if answer.impossible else "green")
    if answer.down:
        say(out, f"Down already, start first: {listed([*map(str, answer.down)])}.", "bold red")
    if answer.restarted:
        say(out, f"Restarted already: {listed([*map(str, answer.restarted)])}.")
    if answer.batches or answer.next.state != DONE:
        say(out, f"Now: {_now(answer)}", "" if answer.next.state in (GO, DONE) else "yellow")
    if answer.batches:
        say(out)
        show_table(
            out,
            (
                (">BATCH", lambda number: number),
                (">NODES", lambda number: len(answer.batches[number - 1])),
                (">LEADERS", lambda number: sum(node.leaders for node in answer.nodes if node.batch == number)),
                ("IDS", lambda number: _ids(answer, answer.batches[number - 1], every)),
            ),
            range(1, len(answer.batches) + 1),
        )
        say(out, "After each batch wait until every replica is in sync again: --next does.", "dim")
    if answer.impossible:
        show_title(out, "In no batch")
        for reason, ids in _by_reason(answer.impossible).items():
            say(out, f"  {listed(ids)}: {reason}", hang=4)
        say(out, "jbod safe-to-restart ID says what to do first.", "dim")
    if chosen.line:
        say(out)
        show_selection(out, chosen)
        for node in chosen.rows:
            where = "in no batch" if node.batch is None else f"batch {node.batch}"
            say(out, f"  {node.role} {node.node_id}: {where}")


def _verdict(answer: RestartPlan, at: str) -> str:
    left_out = len(answer.impossible)
    if not answer.batches:
        what = "Nothing that runs is" if answer.down else "Nothing is"
        return f"No node can be restarted without harm ({at})." if left_out else f"{what} left to restart ({at})."
    planned = len(answer.nodes) - left_out
    return f"{many(len(answer.batches), 'batch', 'batches')} for {many(planned, 'node')} ({at}): {_best(answer)}." + (
        f" {many(left_out, 'node')} cannot be restarted without harm." if left_out else ""
    )


def _best(answer: RestartPlan) -> str:
    if answer.is_best:
        return "no plan has fewer"
    return f"no plan has fewer than {answer.bound}, and whether one has fewer than {len(answer.batches)} is not known"


def _now(answer: RestartPlan) -> str:
    following = answer.next
    if following.state == GO:
        return f"restart {listed([*map(str, following.batch)])}."
    if following.state == WAIT:
        return f"wait: {'; '.join(following.why)}."
    if following.state == DONE:
        return "nothing is left to restart."
    return f"not decidable: {'; '.join(following.why)}."


def _ids(answer: RestartPlan, batch: Sequence[int], every: bool) -> str:
    names = [_name(node) for node in answer.nodes if node.node_id in batch]
    return listed(names, len(names) if every else MOST_IDS)


def _name(node: PlannedNode) -> str:
    what = " (active controller)" if node.active else " (controller)" if node.role != "broker" else ""
    return f"{node.node_id}{what}"


def _by_reason(impossible: Iterable[PlannedNode]) -> dict[str, list[str]]:
    """The nodes of each reason, which names partitions."""
    groups: dict[str, list[str]] = {}
    for node in impossible:
        names = node.reasons[0].names if node.reasons else ()
        groups.setdefault(node.finding + (f" ({listed(names, 4)})" if names else ""), []).append(str(node.node_id))
    return groups
