"""``jbod plan``: reassignment files that are made, judged and followed (docs/plans.md)."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.options import fetch_again, is_piped
from pipelines.cli.question import Inquiry, Reply, question
from pipelines.show.columns_plans import PLAN, STEPS, UNDO, WATCH

if TYPE_CHECKING:
    from pipelines.ask.plan_watch import PlanWatch

Aim = Callable[[Any], Any]
"""The goal (``pipelines.plan.goals.Goal``) of a problem."""
_of_plan = partial(typer.Option, rich_help_panel="The plan")
"""An option of plans that are made."""
_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 1 << 10,
    "MI": 1 << 20,
    "GI": 1 << 30,
    "TI": 1 << 40,
}


Sizes = Annotated[
    list[str] | None,
    _of_plan(
        "--sizes",
        metavar="SOURCE",
        help="Sizes and paths, as for jbod sizes. Without it replicas are counted, and paths are those of jbod label.",
    ),
]
Rate = Annotated[str, _of_plan(metavar="BYTES", help="Bytes a second of each broker, for throttles and times.")]
Headroom = Annotated[int, _of_plan(metavar="PERCENT", min=0, max=99, help="The part of each disk that stays free.")]
Moves = Annotated[int, _of_plan(metavar="N", min=1, help="Replicas that a step copies at most.")]
StepBytes = Annotated[str, _of_plan("--bytes", metavar="BYTES", help="Bytes that a step copies at most.")]
Into = Annotated[
    str | None, _of_plan("--into", metavar="DIR", help="Write the files here: step-1.json, undo-1.json, ...")
]
Place = Annotated[
    str, typer.Argument(metavar="BROKER[:DIR]", help="A broker, or a directory by its id, path or label.")
]
Disk = Annotated[str, typer.Argument(metavar="BROKER:DIR", help="A directory, by its id, path or label.")]


def made(
    query: Inquiry,
    aim: Aim,
    sizes: Sizes = None,
    rate: Rate = "50M",
    headroom: Headroom = 10,
    moves: Moves = 500,
    step_bytes: StepBytes = "1Ti",
    into: Into = None,
) -> Reply:
    """The plan of a goal, by the options of all plans that are made."""
    from pipelines.plan.answer import plan as ask
    from pipelines.plan.steps import Limits
    from pipelines.show.plan import show_move_plan

    limits = Limits(moves, parse_bytes("--bytes", step_bytes), parse_bytes("--rate", rate))
    answer = ask(query.lake, aim, sizes or (), limits, query.min_isr, headroom, into)
    for line in answer.notes:
        progress.notice(f"plan: {line}")
    return query.reply(STEPS, answer, "steps", show_move_plan, answer.exit_code)


def makes(aim_of: Callable[..., Aim]) -> Callable[..., None]:
    """Makes a command of what says the goal: it has the options of ``made`` besides its own.

    What ``aim_of`` itself refuses is refused before the cluster is read, which can take many seconds.
    """
    own = dict(inspect.signature(aim_of, eval_str=True).parameters)
    options = dict([*inspect.signature(made, eval_str=True).parameters.items()][2:])

    def ask(query: Inquiry, **values: Any) -> Reply:
        aim = aim_of(query, **{name: value for name, value in values.items() if name in own})
        return made(query, aim, **{name: values[name] for name in options})

    ask.__name__, ask.__doc__ = aim_of.__name__, aim_of.__doc__
    ask.__signature__ = inspect.Signature([*(own | options).values()])  # type: ignore[attr-defined]
    return question(STEPS)(ask)


@makes
def drain(query: Inquiry, place: Place, sizes: Sizes = None) -> Aim:
    """Empty a disk: onto the others of its broker, else onto other brokers. Or a whole broker. Exit code 1: no plan."""
    from pipelines.ask.whatif_places import find_place
    from pipelines.plan.goals import drain as goal
    from pipelines.plan.goals import find

    if ":" not in place or not sizes:  # which may say its path
        find_place(query.lake, place, listed=True)
    return lambda it: goal(it, find(it, query.lake, place))


@makes
def fill(query: Inquiry, disk: Disk, sizes: Sizes = None) -> Aim:
    """Fill a disk from the fullest: those of its broker, or of all brokers if it is the first. Exit code 1: no plan."""
    from pipelines.ask.whatif_places import find_place
    from pipelines.plan.goals import fill as goal
    from pipelines.plan.goals import find

    if ":" not in disk:
        raise UsageError(f"{disk}: no directory: write BROKER:DIR, with an id or the beginning of one, or a path")
    if not sizes:
        find_place(query.lake, disk, listed=True)
    return lambda it: goal(it, find(it, query.lake, disk))


@makes
def balance(
    query: Inquiry,
    broker: Annotated[int | None, typer.Argument(metavar="BROKER", help="Only the disks of this broker.")] = None,
    by: Annotated[Literal["bytes", "replicas", "leaders"], _of_plan(help="What is to be even.")] = "bytes",
    sizes: Sizes = None,
) -> Aim:
    """Even all disks of all brokers at once, or those of one broker, with as few bytes moved as it can."""
    from pipelines.ask.whatif_places import find_place
    from pipelines.plan.goals import balance as goal
    from pipelines.plan.goals import refuse_measure

    refuse_measure(by, broker, sized=bool(sizes))
    if broker is not None:
        find_place(query.lake, str(broker))
    return lambda it: goal(it, broker, by)


@makes
def repair(_: Inquiry) -> Aim:
    """Recreate elsewhere the replicas that are offline now: for disks and brokers that do not come back.

    Exit code 1: some cannot be recreated; the plan has the others.
    """
    from pipelines.plan.goals import repair as goal

    return goal


@makes
def replicas(
    query: Inquiry,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC=N", help="A topic, and its number of replicas.")],
) -> Aim:
    """Raise or lower the number of replicas of topics, in as many racks as there are. Exit code 1: no plan."""
    from pipelines.plan.goals import refuse_replicas
    from pipelines.plan.goals import replicas as goal

    wanted = dict(map(_topic, topics))
    if len(wanted) < len(topics):
        raise UsageError(f"{' '.join(topics)}: names a topic twice")
    refuse_replicas(query.lake, wanted)
    return lambda it: goal(it, wanted)


@question(UNDO)
def undo(
    query: Inquiry,
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="What kafka-reassign-partitions would take.")],
    sizes: Sizes = None,
    rate: Rate = "50M",
    into: Into = None,
) -> Reply:
    """The file that brings the partitions of another one back to where they are now. Exit code 1: not all of them."""
    from pipelines.plan.answer import undo as ask
    from pipelines.show.plan import show_undo

    answer = ask(query.lake, file, sizes or (), into, parse_bytes("--rate", rate))
    return query.reply(UNDO, answer, "partitions", show_undo, 1 if answer.left_out else 0)


def _topic(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition("=")
    if not topic or not (number.isascii() and number.isdigit() and 0 < int(number[:9]) < 1000):
        raise UsageError(f"{text}: write TOPIC=N, for instance orders=3")
    return topic, int(number)


def parse_bytes(option: str, text: str) -> int:
    """``50M``, ``1.5TB``, ``1Ti``. Raises UsageError for anything else, and for less than 1."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?)\s*([KMGT]I?)?B?", text.strip().upper(), re.ASCII)
    number = int(float(match[1]) * _UNITS[match[2] or ""]) if match else 0
    if not 0 < number < 1 << 62:
        raise UsageError(f"{option} {text}: not a number of bytes: write 50M, 1.5TB or 1Ti")
    return number


def plan() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(
        help="Make plans of moves, judge them before they run, and follow their execution.", no_args_is_help=True
    )
    group.command("check")(check_plan)
    group.command("watch")(watch_plan)
    for command in (drain, fill, balance, repair, replicas, undo):
        group.command(command.__name__)(command)
    return group


@question(PLAN)
def check_plan(
    query: Inquiry,
    file: Annotated[
        str, typer.Argument(metavar="FILE.json", help="What kafka-reassign-partitions --execute would take.")
    ],
    sizes: Sizes = None,
    headroom: Headroom = 10,
) -> Reply:
    """What a reassignment breaks, overfills (--sizes), leaves undone or costs to cancel. Exit code 1: it is blocked."""
    from pipelines.ask.plan_check import check_plan as ask
    from pipelines.show.plan import show_plan_check

    if sizes:
        from pipelines.plan.files import check_with_sizes

        answer = check_with_sizes(query.lake, file, sizes, query.min_isr, headroom)
    else:
        answer = ask(query.lake, file, query.min_isr)
    for line in answer.notes:
        progress.notice(f"plan: {line}")
    return query.reply(PLAN, answer, "partitions", show_plan_check, 0 if answer.ok else 1)


@question(WATCH)
def watch_plan(
    query: Inquiry,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE.json", help="What kafka-reassign-partitions --execute has taken.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Look again, a line for each change, until nothing is left to wait for.")
    ] = False,
    sizes: Sizes = None,
) -> Reply:
    """How far a reassignment is, what is stuck and why, and which disks it has emptied. Exit code 0: all done, 1: not.

    It reads the log, so it sees what brokers and controller have recorded.
    """
    from pipelines.ask.plan_watch import watch_plan as ask
    from pipelines.show.plan import show_plan_watch

    if follow:
        answer, query = _followed(query, files, sizes or ())
    else:
        answer = ask(query.lake, files, query.min_isr, sizes or (), query.accepted_until)
    return query.reply(WATCH, answer, "partitions", show_plan_watch, 0 if answer.done else 1)


def _followed(query: Inquiry, files: Sequence[str], sources: Sequence[str]) -> tuple[PlanWatch, Inquiry]:
    """The first answer in which nothing can become done by waiting, and the inquiry that gave it."""
    from pipelines.ask.plan_watch import watch_plan as ask
    from pipelines.show.plan import changes
    from pipelines.show.text import plain

    if any(map(is_piped, query.given.logs)):
        raise UsageError("--follow: this log is a copy of what it was: name a folder, as jbod mirror --follow keeps it")
    if query.is_past:
        raise UsageError("--follow looks at the newest offset: leave out --at-offset and --at-time")
    before: PlanWatch | None = None
    while True:
        began = time.monotonic()
        answer = ask(query.lake, files, query.min_isr, sources, query.accepted_until)
        for line in changes(before, answer):
            typer.echo(plain(line, query.lake.names), err=True)
        if not answer.pending:
            return answer, query
        before = answer
        took = time.monotonic() - began
        time.sleep(max(query.settings.replay.follow_seconds, took))  # at most half of the time goes into looking
        fetch_again(query.given.logs)
        query = Inquiry(query.given)
