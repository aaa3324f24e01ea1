"""Whether a reassignment may run, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.ask import plan_check as found
from pipelines.ask.plan_check import PlanCheck, Planned
from pipelines.show.rows import Chosen
from pipelines.show.text import Screen, listed, many, say, show_selection, show_table, when

SCREENFUL = 40
"""Rows of a list, unless all are asked for."""
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
        reasons = list(dict.fromkeys(one.why[finding] for one in ones if one.why[finding]))
        if reasons:
            shown = reasons if every else reasons[:MOST_REASONS]
            rest = "" if len(shown) == len(reasons) else f"; and {len(reasons) - len(shown):,} more"
            say(out, f"  {'; '.join(shown)}{rest}", "dim", hang=4)
    _show_cost(out, answer)
    if answer.fault:
        say(out, f"Kafka's own controller (4.1) would fail on this: {answer.fault}", "bold red")
    told = [ADVICE[finding] for finding in answer.groups if finding in ADVICE]
    if told:
        say(out)
        say(out, "What to do", "bold")
        for number, text in enumerate(told, 1):
            say(out, f"  {number}. {text}", hang=5)
    rows = chosen.rows if every or chosen.line else [one for one in chosen.rows if one.findings]
    if rows:
        say(out)
        show_selection(out, chosen)
        _show_rows(out, rows, every or chosen.wanted.orders)


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
    shown = rows if every else rows[:SCREENFUL]
    show_table(
        out,
        ("PARTITION", "REPLICAS", "TARGET", "LEADER", "THEN", "IN SYNC", "THEN", "MIN ISR", "FOUND"),
        (
            (
                one.name,
                ",".join(map(str, one.replicas)) or "-",
                ",".join(map(str, one.target)),
                _leader(one.leader),
                _leader(one.leader_after),
                one.in_sync,
                one.in_sync_after,
                one.min_isr_after,
                ", ".join(one.findings) or "-",
            )
            for one in shown
        ),
        numbers=(5, 6, 7),
    )
    if len(shown) < len(rows):
        say(out, f"and {len(rows) - len(shown):,} more: --all, or --json", "dim")


def _leader(leader: int) -> str:
    return "none" if leader == -1 else str(leader)
