"""``jbod plan``: reassignment files (docs/plans.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.question import Inquiry, Reply, question
from pipelines.show.columns_plans import PLAN


def plan() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="Judge a reassignment before it runs.", no_args_is_help=True)
    group.command("check")(check_plan)
    return group


@question(PLAN)
def check_plan(
    query: Inquiry,
    file: Annotated[
        str, typer.Argument(metavar="FILE.json", help="What kafka-reassign-partitions --execute would take.")
    ],
) -> Reply:
    """What a reassignment breaks, leaves undone or costs to cancel. Exit code 0: nothing blocks it, 1: not so."""
    from pipelines.ask.plan_check import check_plan as ask
    from pipelines.show.plan import show_plan_check

    answer = ask(query.lake, file, query.min_isr)
    chosen = query.choose(PLAN, answer.partitions)
    return Reply(
        chosen,
        lambda: {**answer.as_json(), "partitions": query.objects(chosen)},
        lambda out: show_plan_check(out, answer, chosen, query.every),
        exit_code=0 if answer.ok else 1,
    )
