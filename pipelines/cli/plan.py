"""``jbod plan``: reassignment files (docs/plans.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from jbod_model.errors import UsageError
from pipelines.cli import progress
from pipelines.cli.move_plans import MADE, Headroom, Sizes
from pipelines.cli.piped import is_copied
from pipelines.cli.question import Inquiry, Reply, question
from pipelines.show.columns_plans import PLAN, WATCH

if TYPE_CHECKING:
    from pipelines.ask.plan_watch import PlanWatch


def plan() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(
        help="Make plans of moves, judge them before they run, and follow their execution.", no_args_is_help=True
    )
    group.command("check")(check_plan)
    group.command("watch")(watch_plan)
    for name, command in MADE.items():
        group.command(name)(command)
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
        from pipelines.plan.room import check_with_sizes

        answer = check_with_sizes(query.lake, file, sizes, query.min_isr, headroom)
    else:
        answer = ask(query.lake, file, query.min_isr)
    for line in answer.notes:
        progress.notice(f"plan: {line}")
    chosen = query.choose(PLAN, answer.partitions)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "partitions": query.objects(chosen)},
        lambda out: show_plan_check(out, answer, chosen, query.every),
        exit_code=0 if answer.ok else 1,
    )


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
    from pipelines.show.plan_watch import show_plan_watch

    if follow:
        answer, query = _followed(query, files, sizes or ())
    else:
        answer = ask(query.lake, files, query.min_isr, sizes or ())
    chosen = query.choose(WATCH, answer.partitions)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "partitions": query.objects(chosen)},
        lambda out: show_plan_watch(out, answer, chosen, query.every),
        exit_code=0 if answer.done else 1,
    )


def _followed(query: Inquiry, files: Sequence[str], sources: Sequence[str]) -> tuple[PlanWatch, Inquiry]:
    """The first answer in which nothing can become done by waiting, and the inquiry that gave it."""
    from pipelines.ask.plan_watch import watch_plan as ask
    from pipelines.show.plan_watch import changes
    from pipelines.show.text import plain

    if any(map(is_copied, query.given.logs)):
        raise UsageError("--follow: this log is a copy of what it was: name a folder, as jbod mirror --follow keeps it")
    if query.is_past:
        raise UsageError("--follow looks at the newest offset: leave out --at-offset and --at-time")
    before: PlanWatch | None = None
    while True:
        began = time.monotonic()
        answer = ask(query.lake, files, query.min_isr, sources)
        for line in changes(before, answer):
            typer.echo(plain(line, query.lake.names), err=True)
        if not answer.pending:
            return answer, query
        before = answer
        took = time.monotonic() - began
        time.sleep(max(query.settings.replay.follow_seconds, took))  # at most half of the time goes into looking
        query = Inquiry(query.given)
