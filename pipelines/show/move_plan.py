"""A plan of moves, as text: the verdict, the steps, and what has to be typed."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.plan.answer import MovePlan, Undo
from pipelines.plan.files import WAIT
from pipelines.plan.problem import ANY
from pipelines.plan.solve import Lack
from pipelines.plan.steps import PlanStep, WorstFailure
from pipelines.show.rows import Chosen
from pipelines.show.text import (
    Screen,
    about,
    in_units,
    listed,
    many,
    say,
    show_columns,
    show_rest,
    show_selection,
    when,
)

MOST_STEPS = 20
"""Steps and commands that are shown, unless all are asked for."""


def show_move_plan(out: Screen, answer: MovePlan, chosen: Chosen, every: bool = False) -> None:
    """The verdict first."""
    at = f"the log at offset {answer.offset}, {when(answer.time)}"
    if not answer.steps:
        _show_none(out, answer, at)
        return
    amount = f" ({in_units(answer.bytes)})" if answer.bytes is not None else ""
    takes = f", about {about(answer.seconds)} at {in_units(answer.rate)}/s" if answer.seconds is not None else ""
    what = many(answer.replicas + answer.removed or answer.partitions, "replica")
    say(out, f"{what}{amount} {answer.title}: {many(len(answer.steps), 'step')}{takes}; {at}.", "bold")
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
    for one in lacks:
        room = f": {one.disk} is nearest, and lacks {in_units(one.bytes)} for {one.example}" if one.disk else ""
        example = "" if one.disk else f"; one is {one.example}"
        say(out, f"{many(one.replicas, 'replica')} cannot go anywhere: {one.reason}{room}{example}.", "red")


def _show_even(out: Screen, answer: MovePlan) -> None:
    if not answer.measure:
        return
    before, after = (_level(answer, one) for one in answer.spread)
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
    say(out, f"Between the fullest and the emptiest are {after}{now}.")
    if answer.ends:
        fullest, emptiest = answer.ends
        say(out, f"That is not even: the fullest is {fullest}. The emptiest is {emptiest}.", "yellow")


def _level(answer: MovePlan, spread: float) -> str:
    if answer.by_size:
        return f"{100 * spread:.1f} % of a disk"
    return in_units(round(spread)) if answer.measure == "bytes" else f"{spread:,.0f} {answer.measure}"


def _show_steps(out: Screen, answer: MovePlan, steps: Sequence[PlanStep]) -> None:
    columns = (
        "STEP",
        "PARTITIONS",
        "COPIES",
        "BETWEEN DISKS",
        "BYTES",
        "TIME",
        "IF A DISK FAILS THEN",
        "IF A BROKER FAILS THEN",
    )
    rows: list[tuple[object, ...]] = [("now", "-", "-", "-", "-", "-", *map(_cost, answer.now))]
    rows += [
        (
            one.number,
            one.partitions,
            one.replicas,
            one.between_disks,
            in_units(one.bytes),
            about(one.seconds),
            _cost(one.disk),
            _cost(one.broker),
        )
        for one in steps
    ]
    kept = [at for at in range(len(columns)) if at in (0, 1, 6, 7) or any(row[at] not in ("-", 0) for row in rows)]
    show_columns(out, columns, rows, kept, range(6))


def _cost(one: WorstFailure) -> str:
    """``2 unavailable, 3 under min ISR (/data/a of broker 1)``: of the worst failure."""
    said = [f"{one.last_replicas:,} unavailable"] if one.last_replicas else []
    said += [f"{one.unclean:,} elected uncleanly"] if one.unclean else []
    said += [f"{one.under_min_isr:,} under min ISR"] if one.under_min_isr else []
    return f"{', '.join(said)} ({one.place})" if said else "nothing"


def _show_commands(out: Screen, answer: MovePlan, every: bool) -> None:
    say(out)
    say(out, "What to do", "bold")
    if not answer.paths:
        say(out, "  --into DIR writes the files; --json prints them.", "yellow")
    most = None if every else MOST_STEPS
    for number, command in enumerate(answer.commands[:most], 1):
        say(out, f"  {number}. {command}", hang=5)
    show_rest(out, len(answer.commands[MOST_STEPS:]) if most else 0, indent="  ")
    say(out, "  Begin a step when the verification of the one before says that it is complete.")
    if any(one.waits or any(one.undo_waits) for one in answer.steps):
        say(out, f"  {WAIT}: Kafka keeps what moved away so long; longer, if log.segment.delete.delay.ms is larger.")
    if answer.undone:
        rest = answer.partitions - answer.undone
        without = f" ({many(rest, 'partition')} cannot go back: a broker or a disk of it is down)" if rest else ""
        say(out, f"  To undo it{without}:")
        for command in answer.undo[:most]:
            say(out, f"     {command}", hang=5)
        show_rest(out, len(answer.undo[MOST_STEPS:]) if most else 0, indent="     ")
    else:
        say(out, "  It cannot be undone: the brokers or disks of before are down.")


def show_undo(out: Screen, answer: Undo) -> None:
    """What it brings back, and what it cannot."""
    number = len(answer.partitions)
    say(out, f"{many(number, 'partition')} would be as at offset {answer.offset}, {when(answer.time)}.", "bold")
    unknown = sum(path == ANY for one in answer.partitions for path in one.log_dirs)
    if unknown:
        say(out, f"Of {many(unknown, 'replica')} the path is not known: give --sizes, or see jbod label.", "yellow")
    if answer.left_out:
        said = listed(list(answer.left_out))
        say(out, f"Left out, as there is no such partition, or a broker or a disk of it is down: {said}.", "yellow")
    if number:
        say(out, "Execute it to undo the file, also while that is under way:")
        say(out, f"  {answer.command}", hang=4)
        if not answer.path:
            say(out, "--into DIR writes it; --json prints it.", "yellow")
