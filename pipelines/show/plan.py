"""Reassignments as text: plans of moves, whether a reassignment may run, and how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipelines.ask import plan_check as check
from pipelines.ask import plan_watch
from pipelines.ask.plan_check import PlanCheck, Planned
from pipelines.ask.plan_watch import (
    DONE,
    ENDS_WITH_A_CHANGE,
    NOT_BEGUN,
    NOT_THERE,
    UNDER_WAY,
    Emptied,
    PlanWatch,
    Watched,
)
from pipelines.plan.answer import MovePlan, Undo
from pipelines.plan.files import WAIT
from pipelines.plan.problem import ANY
from pipelines.plan.solve import Lack
from pipelines.plan.steps import PlanStep, WorstFailure
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    Column,
    Screen,
    about,
    agreeing,
    at_most,
    in_units,
    led_by,
    listed,
    many,
    rate_in_words,
    say,
    say_command,
    show_chosen,
    show_fault,
    show_rest,
    show_selection,
    show_steps,
    show_table,
    show_title,
    when,
)

MOST_REASONS = 4
_PLACES: Sequence[Column[Planned | Watched]] = (
    ("PARTITION", "name"),
    ("REPLICAS", lambda partition: ",".join(map(str, partition.replicas)) or "-"),
    ("TARGET", lambda partition: ",".join(map(str, partition.target))),
)

MEANINGS: Mapping[str, str] = {
    check.REFUSED: "would be refused by the controller or by Kafka's tool",
    check.NO_COPY: "have no complete copy online, or may be left with none: the plan could give the data up",
    check.UNCLEAN: "would elect a replica that lacks writes at once",
    check.STUCK: "would never be done",
    check.UNDER_MIN_ISR: "would be under min.insync.replicas: writes with acks=all fail",
    check.DIRECTORY: "are to be placed in a directory that does not take them",
    check.NO_ROOM: "come to a disk that has no room for all that comes, with --headroom, while nothing has left it",
    check.RACKS: "would be in fewer racks",
    check.FEWER: "would have fewer replicas",
    check.REPLACES: "are being reassigned: the plan takes the place of that, and what was copied for brokers that it "
    "does not name is lost",
    check.CANCEL: "could be cancelled only while one broker runs: no other of the old replicas is in sync",
    check.PATH: "with a path that jbod does not know: --sizes, or jbod label, tells it which directory that is",
    check.NOTHING: "are as the file says already",
}
ADVICE: Mapping[str, str] = {
    check.REFUSED: "take them out of the file, or correct it.",
    check.NO_COPY: "first bring their disk or broker back: jbod offline says how. Until then do not reassign them.",
    check.UNCLEAN: "first bring back a replica that was in sync, or forbid unclean elections: jbod offline says more.",
    check.STUCK: "start these brokers, or move what is in a directory that is not online, or cancel what is under way, "
    "first; or name others.",
    check.UNDER_MIN_ISR: "bring the replicas of the file into sync first, or name brokers that run.",
    check.DIRECTORY: "name a directory that is online and not cordoned, or any.",
    check.NO_ROOM: "run the file in parts, name other disks, or let jbod plan drain or balance make the steps.",
    check.CANCEL: "bring the other old replicas into sync first, or do not cancel them once that broker is down.",
}


def show_plan_check(out: Screen, answer: PlanCheck, chosen: Chosen, every: bool = False) -> None:
    """The verdict, the findings, what to do, and the partitions with findings."""
    at = f"at offset {answer.offset}, {when(answer.time)}"
    blocked = [partition for partition in answer.partitions if partition.blocks]
    if blocked:
        of = many(len(answer.partitions), "partition")
        are = agreeing(len(blocked), "are blocked")
        say(out, f"Do not run it as it is: {len(blocked):,} of {of} {are}, {at}.", "bold red")
    else:
        say(out, f"Nothing blocks it: {many(len(answer.partitions), 'partition')}, {at}.", "green")
    for finding, partitions in answer.groups.items():
        blocks = finding in check.BLOCKING
        meaning = agreeing(len(partitions), MEANINGS[finding])
        say(out, f"{many(len(partitions), 'partition')} {meaning}:", "red" if blocks else "yellow")
        say(out, f"  {listed([partition.name for partition in partitions])}", hang=4)
        _show_why(out, (partition.why[finding] for partition in partitions), every)
    _show_cost(out, answer)
    show_fault(out, answer.fault)
    show_steps(out, (f"{finding}: {ADVICE[finding]}" for finding in answer.groups if finding in ADVICE))
    rows = chosen.rows if every or chosen.line else [partition for partition in chosen.rows if partition.findings]
    if rows:
        show_chosen(out, chosen, _PLANNED, rows, every or chosen.wanted.orders)


def _show_why(out: Screen, reasons: Iterable[str], every: bool) -> None:
    """The reasons of a group, each once. That of a partition may have several parts."""
    unique_reasons = list(dict.fromkeys(part for reason in reasons for part in reason.split("; ") if part))
    rest = (
        f"; and {len(unique_reasons) - MOST_REASONS:,} more" if len(unique_reasons) > MOST_REASONS and not every else ""
    )
    if unique_reasons:
        say(out, f"  {'; '.join(unique_reasons if every else unique_reasons[:MOST_REASONS])}{rest}", "dim", hang=4)


def _show_cost(out: Screen, answer: PlanCheck) -> None:
    """How much is copied, and who leads afterwards."""
    copies = sum(answer.copies.values())
    costs = [f"{many(copies, 'replica')} to copy"] if copies else []
    costs += [f"{many(answer.disk_moves, 'replica')} between disks of a broker"] if answer.disk_moves else []
    costs += [f"{many(answer.leaders_move, 'leader')} to move"] if answer.leaders_move else []
    if costs:
        say(out, f"It has {', '.join(costs)}.")
    if answer.copies:
        most = sorted(answer.copies.items(), key=lambda item: -item[1])
        say(out, f"Who copies: {listed([f'broker {broker}: {count:,}' for broker, count in most])}.")


_PLANNED: Sequence[Column[Planned]] = (
    *_PLACES,
    ("LEADER", lambda partition: led_by(partition.leader)),
    ("THEN", lambda partition: led_by(partition.leader_after)),
    (">IN SYNC", "in_sync"),
    (">THEN", "in_sync_after"),
    (">MIN ISR", "min_isr_after"),
    ("FOUND", lambda partition: ", ".join(partition.findings) or "-"),
)


STATES: Mapping[str, str] = {
    plan_watch.STUCK: "stuck",
    plan_watch.REPLACED: "taken over by another reassignment",
    plan_watch.CANCELLED: "cancelled",
    plan_watch.GONE: "no longer there, or never there",
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
    NOT_BEGUN: "Nothing executed them yet: jbod plan check, then execute it.",
    UNDER_WAY: "No record says whether a move between disks has begun: where kafka-reassign-partitions --verify "
    "says that a partition is not being moved, as after an execution that was cut off, execute the file again, with "
    "--additional.",
}
LOST = (
    "jbod offline says what failed disks had the last copy of. If they do not come back, make another plan from here: "
    "jbod plan repair."
)
SAVE = "jbod offline says what was lost, and which copies to save before their brokers start or their disks are wiped."


def show_plan_watch(out: Screen, answer: PlanWatch, chosen: Chosen, every: bool = False) -> None:
    """How far it is, what it waits for, the disks that become empty, and what to do."""
    style = (
        "green" if answer.done else "bold red" if plan_watch.STUCK in answer.groups or not answer.pending else "bold"
    )
    say(out, f"{headline(answer)}, at offset {answer.offset}, {when(answer.time)}.", style)
    for state, partitions in answer.groups.items():
        if state != DONE:
            names = listed([partition.name for partition in partitions])
            say(out, f"{many(len(partitions), 'partition')} {STATES[state]}: {names}", hang=2)
            _show_why(out, (partition.reason for partition in partitions), every)
    for disk in answer.disks:
        for line in _disk(disk):
            say(out, line, hang=2)
    for line in _troubles(answer):
        say(out, line, hang=2)
    advice = [
        STATE_ADVICE[state]
        for state, partitions in answer.groups.items()
        if state in STATE_ADVICE and any(_is_advised(partition) for partition in partitions)
    ]
    advice += [LOST] if answer.offline else []
    show_steps(out, [*advice, SAVE] if answer.lost else advice)
    rows = chosen.rows if every or chosen.line else [partition for partition in chosen.rows if partition.state != DONE]
    if rows:
        show_chosen(out, chosen, _WATCHED, rows, every or chosen.wanted.orders)


def _is_advised(partition: Watched) -> bool:
    """Whether there is something to do besides waiting, and the reason does not say it."""
    if partition.state == UNDER_WAY:
        return NOT_THERE in partition.reason
    return not partition.reason.startswith((ENDS_WITH_A_CHANGE, check.NEVER_ENDS))


_WATCHED: Sequence[Column[Watched]] = (
    *_PLACES,
    ("STATE", "state"),
    ("SINCE", lambda partition: partition.since_time or "-"),
    ("WHY", lambda partition: partition.reason or "-"),
)


def _troubles(answer: PlanWatch) -> Iterator[str]:
    for (broker, directory), names in answer.offline.items():
        of = many(len(names), "partition")
        yield f"Directory {directory} of broker {broker} is offline, with replicas of {of} of the plan: {listed(names)}"
    if answer.lost:
        of = many(len(answer.lost), "partition")
        yield f"Since the plan began, acknowledged writes of {of} are lost, or may be: {listed(answer.lost)}"


def headline(answer: PlanWatch) -> str:
    """``12 of 40 partitions done, 3 under way, about 4 min left``"""
    counts = {state: len(partitions) for state, partitions in answer.groups.items()}
    of = many(len(answer.partitions), "partition")
    if answer.done:
        return f"All done: {of}"
    phrases = [f"{counts.get(DONE, 0):,} of {of} done"]
    phrases += [f"{count:,} {state}" for state, count in counts.items() if state != DONE]
    return ", ".join(phrases) + (
        f", about {at_most(answer.left.total_seconds())} left" if answer.left is not None else ""
    )


def changes(before: PlanWatch | None, answer: PlanWatch) -> Iterator[str]:
    """A line for each thing that is so now and was not before."""
    old_partitions, old_disks, old_troubles = (
        ((), (), ()) if before is None else (before.partitions, before.disks, _troubles(before))
    )
    known = {(old.topic, old.partition): (old.state, old.reason) for old in old_partitions}
    news: dict[tuple[str, str], list[Watched]] = {}
    for partition in answer.partitions:
        if known.get((partition.topic, partition.partition)) != (partition.state, partition.reason):
            news.setdefault((partition.state, partition.reason), []).append(partition)
    for (state, reason), partitions in news.items():
        why = f" ({reason})" if reason else ""
        yield f"{state}: {listed([partition.name for partition in partitions])}{why}"
    if news:
        yield headline(answer)
    empty = {(old.broker_id, old.directory_id, _safe(old)) for old in old_disks}
    yield from sorted({*_troubles(answer)} - {*old_troubles})
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
        why = "; ".join(reason.finding for reason in disk.removal.reasons if reason.blocks)
        yield f"{where} is empty since {when(disk.since_time)}, but may not be pulled yet: {why}."


UNLESS = "unless jbod plan watch says not to cancel"
"""R-REASSIGN-3: a cancellation may put a replica in sync that lacks writes."""
MOST_STEPS = 20
"""Steps and commands that are shown, unless all are asked for."""


def show_move_plan(out: Screen, answer: MovePlan, chosen: Chosen, every: bool = False) -> None:
    """The verdict first."""
    at = f"the log at offset {answer.offset}, {when(answer.time)}"
    if not answer.steps:
        _show_none(out, answer, at)
        return
    amount = f" ({in_units(answer.bytes)})" if answer.bytes is not None else ""
    takes = f", about {about(answer.seconds)} at {rate_in_words(answer.rate)}" if answer.seconds is not None else ""
    count = answer.replicas + answer.removed or answer.partitions
    title = agreeing(count, answer.title)
    say(out, f"{many(count, 'replica')}{amount} {title}: {many(len(answer.steps), 'step')}{takes}; {at}.", "bold")
    _show_lacks(out, answer.lacks)
    _show_even(out, answer)
    if not answer.sized and answer.replicas:
        say(out, "Sizes are not known, so replicas are counted: give --sizes for bytes, room and time.", "yellow")
    say(out)
    show_selection(out, chosen)
    _show_steps(out, answer, chosen.rows if every or chosen.line else chosen.rows[:MOST_STEPS])
    show_rest(out, 0 if every or chosen.line else len(chosen.rows) - MOST_STEPS)
    _show_commands(out, answer, every)


def _show_none(out: Screen, answer: MovePlan, at: str) -> None:
    if answer.lacks:
        say(out, f"There is no plan to {answer.aim}; {at}.", "bold red")
        _show_lacks(out, answer.lacks)
    elif answer.ends:
        say(out, f"No move would {answer.aim} any further; {at}.", "yellow")
        _show_even(out, answer)
    else:
        say(out, f"Nothing has to be done to {answer.aim}; {at}.", "green")
        _show_even(out, answer)


def _show_lacks(out: Screen, lacks: Sequence[Lack]) -> None:
    for lack in lacks:
        room = f": {lack.disk} is nearest, and lacks {in_units(lack.bytes)} for {lack.example}" if lack.disk else ""
        example = "" if lack.disk else f"; one is {lack.example}"
        say(out, f"{many(lack.replicas, 'replica')} cannot go anywhere: {lack.reason}{room}{example}.", "red")


def _show_even(out: Screen, answer: MovePlan) -> None:
    if not answer.measure:
        return
    before, after = (_level(answer, spread) for spread in answer.spread)
    moved = answer.replicas or answer.partitions
    if answer.measure == "bytes":
        moved = answer.bytes or 0
    bound = in_units(round(answer.bound)) if answer.measure == "bytes" else f"{round(answer.bound):,}"
    more = (
        f", {100 * (moved / answer.bound - 1):.0f} % more than the least possible ({bound})"
        if answer.bound >= 1
        else ""
    )
    now = f", in place of {before}{more}" if answer.steps else ""
    say(out, f"The fullest and the emptiest are {after} apart{now}.")
    if answer.ends:
        fullest, emptiest = answer.ends
        say(out, f"That is not even: the fullest is {fullest}. The emptiest is {emptiest}.", "yellow")


def _level(answer: MovePlan, spread: float) -> str:
    if answer.by_size:
        return f"{100 * spread:.1f} % of a disk"
    if answer.measure == "bytes":
        return in_units(round(spread))
    return many(round(spread), answer.measure.removesuffix("s"))


def _show_steps(out: Screen, answer: MovePlan, steps: Sequence[PlanStep]) -> None:
    disk, broker = answer.now
    show_table(
        out,
        (
            (">STEP", lambda step: step.number if step else "now"),
            (">PARTITIONS", lambda step: step.partitions if step else "-"),
            (">COPIES", lambda step: step.replicas if step else "-"),
            (">BETWEEN DISKS", lambda step: step.between_disks if step else "-"),
            (">BYTES", lambda step: in_units(step.bytes) if step else "-"),
            (">TIME", lambda step: about(step.seconds) if step else "-"),
            ("IF A DISK FAILS THEN", lambda step: _cost(step.disk if step else disk)),
            ("IF A BROKER FAILS THEN", lambda step: _cost(step.broker if step else broker)),
        ),
        [None, *steps],
        ("COPIES", "BETWEEN DISKS", "BYTES", "TIME"),
    )


def _cost(failure: WorstFailure) -> str:
    """``2 unavailable, 3 under min ISR (/data/a of broker 1)``: of the worst failure."""
    effects = [f"{failure.last_replicas:,} unavailable"] if failure.last_replicas else []
    effects += [f"{failure.unclean:,} elected uncleanly"] if failure.unclean else []
    effects += [f"{failure.under_min_isr:,} under min ISR"] if failure.under_min_isr else []
    return f"{', '.join(effects)} ({failure.place})" if effects else "nothing"


def _show_commands(out: Screen, answer: MovePlan, every: bool) -> None:
    show_title(out, "What to do")
    if not answer.paths:
        say(out, "  --into DIR writes the files; --json prints them.", "yellow")
    most = None if every else MOST_STEPS
    for number, command in enumerate(answer.commands[:most], 1):
        say_command(out, f"  {number}. {command}")
    show_rest(out, len(answer.commands[MOST_STEPS:]) if most else 0, indent="  ")
    say(out, "  Begin a step when the verification of the one before says that it is complete.")
    if any(step.waits or any(step.undo_waits) for step in answer.steps):
        say(out, f"  {WAIT}: Kafka keeps what moved away so long; longer, if log.segment.delete.delay.ms is larger.")
    if answer.undone:
        rest = answer.partitions - answer.undone
        without = f" ({many(rest, 'partition')} cannot go back: a broker or a disk of it is down)" if rest else ""
        unless = f", {UNLESS}" if any("--cancel" in command for command in answer.undo) else ""
        say(out, f"  To undo it{without}{unless}:")
        for command in answer.undo[:most]:
            say_command(out, f"     {command}")
        show_rest(out, len(answer.undo[MOST_STEPS:]) if most else 0, indent="     ")
    else:
        say(out, "  It cannot be undone: the old brokers or disks are down.")


def show_undo(out: Screen, answer: Undo, _chosen: Chosen, _every: bool = False) -> None:
    """What it brings back, and what it cannot."""
    number = len(answer.partitions)
    say(out, f"{many(number, 'partition')} would be as at offset {answer.offset}, {when(answer.time)}.", "bold")
    unknown = sum(path == ANY for partition in answer.partitions for path in partition.log_dirs)
    if unknown:
        say(out, f"Of {many(unknown, 'replica')} the path is not known: give --sizes, or see jbod label.", "yellow")
    if answer.left_out:
        partitions = listed(list(answer.left_out))
        say(
            out,
            "Left out, as there is no such partition, a broker or a disk of it is down, or it is being reassigned, "
            f"which kafka-reassign-partitions --cancel takes back, {UNLESS}: {partitions}.",
            "yellow",
        )
    if number:
        ends = (
            "The first command ends what is under way of that, the last one takes the throttles away once it is done:"
        )
        say(out, f"Execute it to undo the file, {UNLESS}. {ends}")
        for command in (answer.cancel, answer.command, answer.verify):
            say_command(out, f"  {command}")
        if not answer.path:
            say(out, "--into DIR writes it; --json prints it.", "yellow")
